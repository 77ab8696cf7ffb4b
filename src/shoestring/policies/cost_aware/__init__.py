"""Which config next, when some cost a thousand times more than others? Guinet, Perrone and Archambeau,
"Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization", arXiv:2011.11456.

The method is `cost_aware_ei`; `trial_costs` predicts the bill. The mathematics is in `models.cost_aware` and `models.gp`.
"""
