"""A study and the way of an order through it.

Read `study` (what a study is), then `loop` (decide, record, buy, wait). `tune` is all of it in one call. `ask` and
`online` are for people who own their training loop; `replay` and `plan` run a study in simulated time.
"""
