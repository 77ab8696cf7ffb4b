"""Optimal stopping inside Bayesian optimisation: the experiments of the ICML 2019 paper. README.md has the results."""
