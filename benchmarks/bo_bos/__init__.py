"""Optimal stopping inside Bayesian optimisation: the experiments of the ICML 2019 paper. README.md says what was found."""
