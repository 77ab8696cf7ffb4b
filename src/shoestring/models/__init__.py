"""What the ledger makes us believe: pure numerics, NumPy and SciPy only."""
