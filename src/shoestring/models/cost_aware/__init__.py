"""What a trial will cost, and how to trade improvement against it. Guinet, Perrone and Archambeau, arXiv:2011.11456.

Read `linear` (the low-variance models) and `cost_models` (all seven), then `search`. The policy is
`policies.cost_aware.cost_aware_ei`.
"""
