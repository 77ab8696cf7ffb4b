"""A small HTTP server for a few trusted clients: `access` decides which requests are allowed, `server` reads and answers them.

The commands `watch` and `serve` use it. They supply the answers; this folder handles access, limits and time limits only.
"""
