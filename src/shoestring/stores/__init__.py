"""Stores remember: an append-only sequence of entries per study, and who runs it.

Read `store` (the contract) and `memory` (the shortest one), then `rows` (what a row looks like and how damage shows),
`tables` and `database` (a connection, with patience: `files` for SQLite, `servers` for PostgreSQL), `entry_table` (rows in and
out) and `sql` (the store made of these). `snapshots` make opening a long study quick. `lease` and `heartbeat` say who runs a
study and charge for the step that a crash cut off; `repair` saves what is good; `opening` goes from an address to a store.
"""
