"""Serve a study to workers: `session` answers their requests, and `request_queue` collects these from many threads."""
