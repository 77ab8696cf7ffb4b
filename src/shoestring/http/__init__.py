"""A small HTTP server for a few trusted clients: `access` decides which requests are allowed, `server` reads and answers them.

The commands `watch` and `serve` use it. They provide the answers; this folder only handles access, limits and time limits.
"""
