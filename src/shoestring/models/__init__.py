"""What the ledger makes us believe: pure numerics, NumPy and SciPy only.

A folder per method; its policy lies in the folder of the same name in `policies`. `gp` (Gaussian processes) and
`loss_scaling` (losses of any size to mean 0 and variance 1) are shared by several of them.
"""
