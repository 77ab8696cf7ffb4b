"""Models of the cost of a trial, and rules that trade expected improvement against cost.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456.

Read `trade_off` (which candidate to train) and `candidate_search`; then `cost_features`, `linear` and
`cost_models` (what a configuration will cost). The policy is `policies.cost_aware.cost_aware_ei`.
"""
