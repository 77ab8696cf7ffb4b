"""Bayesian optimisation where some configurations cost a thousand times more than others.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456.

Read `cost_aware_ei`, the method, then `trial_costs`, which predicts the cost of a trial. The mathematics is in
`models.cost_aware` (cost models, and rules that trade improvement against cost) and `models.gp`.
"""
