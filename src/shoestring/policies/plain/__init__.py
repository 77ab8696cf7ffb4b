"""Policies that do not use values: `random_search`, `grid`, and `replay_fixed`, which follows a given list."""
