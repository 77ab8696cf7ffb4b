"""Bayesian optimisation for iterative learning: the experiments of arXiv:1909.09593. README.md says what was found."""
