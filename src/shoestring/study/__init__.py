"""A study and the way of an order through it.

Read `study` (what a study is), `begin` (its first entry), `journal` (the ledger in its store), then `loop` (decide, record,
buy, wait) and `decide`. `tune` is all of it in one call. `ask` and `online` (with the `schedule` it finds) are for people
who own their training loop; `replay` and `plan` run a study in simulated time; `beliefs` asks a policy about its past orders.
"""
