"""Gaussian processes, shared by every method that searches with one.

Read `kernels`, `posterior`, `fit`; `acquisition` and `information_gain` are what is asked of a posterior.
"""
