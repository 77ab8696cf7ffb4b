"""Gaussian processes, shared by every method that searches with one.

Read `kernels`, `posterior` and `fit`; then `acquisition` (expected improvement) and `information_gain`, which use a posterior.
"""
