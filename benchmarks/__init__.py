"""Benchmarks of speed, of safety after a kill, and of quality. `python -m benchmarks` lists them."""
