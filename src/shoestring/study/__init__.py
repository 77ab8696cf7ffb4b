"""A study, and how an order passes through it.

Read `study` (what a study is), `begin` (its first entry), `journal` (the ledger in its store), then `run_study`, `loop`
(decide, record, submit, wait) and `decide`. `tune` begins and runs a study in one call. `ask` and `online` are for users who
train in their own loop. `simulation` runs studies in simulated time (`plan` and `replay`), `retrain` trains the best trial
again, and `predicted_history` asks a policy for its predictions at past orders.
"""
