"""A study that is served to workers: the session that answers them, and the queue of their requests."""
