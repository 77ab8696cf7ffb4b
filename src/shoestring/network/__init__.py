"""A small HTTP server for a few trusted clients: `access` says who may ask, `server` reads requests and sends answers.

`watch` serves pages with it, `serve` orders and receipts. What is answered is theirs; here are only the door and the clock.
"""
