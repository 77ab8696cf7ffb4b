"""Gaussian processes, shared by every method that searches with one.

Read `kernels`, `posterior`, `fit`; `acquisition` (log EI) and `information_gain` are what methods ask of a posterior.
"""
