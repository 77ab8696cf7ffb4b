"""Stores remember: an append-only sequence of entries per study, and who runs it.

Read `store` (the contract) and `memory` (the shortest one), then `rows` (what a row looks like and how damage shows),
`database` (SQLite or PostgreSQL) and `sql` (the store made of both). `lease` and `heartbeat` say who runs a study and charge
for the step that a crash cut off; `repair` saves what is good; `opening` goes from an address to a store.
"""
