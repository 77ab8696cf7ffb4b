"""Which config and how long, from noisy curves? Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative
Learning", NeurIPS 2020, arXiv:1909.09593.

The method is `boil`. Read `runs` (what is known), `belief`, `search`, then `boil`. The mathematics is in `models.boil`.
"""
