"""Surrogate models of losses and costs, and the mathematics of choosing with them: NumPy and SciPy only.

Each method has a folder here, and its policy is in the folder of the same name in `policies`. Several methods share `gp`
(Gaussian processes) and `loss_scaling` (losses of any size to mean 0 and variance 1). `first_looks` (the order of trials after
few steps) belongs to the policies of `halving`.
"""
