"""Model providers: one file each, behind the messages of `agents.messages`."""
