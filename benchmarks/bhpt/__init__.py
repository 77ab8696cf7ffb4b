"""Budgeted freeze-thaw tuning: the experiments of arXiv:1902.00532, and more. README.md says what was found."""
