"""What a trial will cost, and how to trade improvement against it. Guinet, Perrone and Archambeau, "Pareto-efficient
Acquisition Functions for Cost-Aware Bayesian Optimization", arXiv:2011.11456.

Read `trade_off` (which candidate to buy) and `search` (where candidates are improved); then `features`, `linear` and
`cost_models` (what a config will cost). The policy is `policies.cost_aware.cost_aware_ei`.
"""
