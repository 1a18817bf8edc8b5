"""A run as it goes and as it lies on disk: episodes, judgement, table files, the log."""
