"""The experiments of arXiv:2101.06590, online tuning that validates only when unsure. The results are in README.md."""
