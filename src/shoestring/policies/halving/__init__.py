"""Races: many trials for a few steps, and the best of them for more steps.

Karnin, Koren and Somekh, ICML 2013 (`sequential_halving`); Jamieson and Talwalkar, arXiv:1502.07943; Li et al., JMLR 18, 2018
(Hyperband); Li et al., arXiv:1810.05934 (ASHA).

The default policy, `thrift`, begins with `sequential_halving`; read it with `halving_rounds` (the arms of a round).
`asha`, `successive_halving` and `hyperband` share the settings in `rungs`; the last two also share `brackets`, and `asha`
promotes without waiting. `top_k_after_one` is the simplest rule that knows its budget.
"""
