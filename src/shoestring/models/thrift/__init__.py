"""The learned belief: see `network`."""
