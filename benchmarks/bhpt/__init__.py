"""Budgeted freeze-thaw tuning: the experiments of arXiv:1902.00532, and others. README.md has the results."""
