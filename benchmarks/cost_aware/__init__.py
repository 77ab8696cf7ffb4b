"""Cost-aware Bayesian optimisation: the experiments of arXiv:2011.11456. README.md has the results."""
