"""The experiments of arXiv:1909.09593, Bayesian optimisation for iterative learning. The results are in README.md."""
