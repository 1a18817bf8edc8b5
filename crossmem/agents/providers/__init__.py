"""Model providers: a file each, which sends the messages of `agents.messages` and reads the replies."""
