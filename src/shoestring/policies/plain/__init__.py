"""Policies that never look at a value: `random_search`, `grid`, and `replay_fixed`, which follows a given list."""
