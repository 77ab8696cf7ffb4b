"""Races: many trials for a few steps, the best of them for more.

`sequential_halving` is the default policy: read it with `rounds`, which says who is in. `successive_halving` and
`hyperband` share `brackets`; `asha` promotes without waiting; the rungs of these three are in `ladder`. `top_k_after_one` is
the simplest rule that knows its budget.
"""
