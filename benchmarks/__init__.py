"""Measurements: what a run costs, what survives, who wins. `python -m benchmarks` lists them."""
