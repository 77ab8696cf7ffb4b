"""Ledger stores: an append-only sequence of entries per study, and the right to run it.

Read `ledger_store` (the contract) and `in_memory` (the shortest implementation) first. Then `rows` (how an entry is written
as a row, and how damage is recognised), `database` (the connection and its tables; `sqlite_file` opens SQLite's files) and
`sql` (the store made of both). `snapshots` lets a long study open quickly. `lease` holds the right to run a study, and charges
for the step that a crash cut off. `repair` copies the good entries of a damaged store. `addresses` turns an address into a
store.
"""
