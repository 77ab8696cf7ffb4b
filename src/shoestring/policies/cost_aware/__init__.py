"""Which config next, when some cost a thousand times more than others? Guinet, Perrone and Archambeau,
"Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization", arXiv:2011.11456.

Read `cost_aware_ei`, the method, then `trial_costs`, which predicts the bill. The mathematics is in `models.cost_aware` (what
a trial costs, and what to give up for a lower cost) and `models.gp`.
"""
