"""Ledger stores: an append-only sequence of entries for each study, and the right to run the study.

Read `ledger_store` (the contract) and `in_memory` (the shortest implementation) first. Then `rows` (how an entry is written
as a row, and how damage is recognised), `database` (the connection and its tables; `sqlite_file` opens SQLite's files) and
`sql` (the store made of both). With `snapshots` a long study opens quickly. `lease` is the right to run a study, and finds the
time of steps that a crash interrupted. `repair` copies the good entries of a damaged store. `addresses` turns an address into
a store.
"""
