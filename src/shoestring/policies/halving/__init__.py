"""Races: many trials for a few steps, the best of them for more. Karnin, Koren and Somekh, ICML 2013 (`sequential_halving`);
Jamieson and Talwalkar, arXiv:1502.07943; Li et al., JMLR 18, 2018 (Hyperband); Li et al., arXiv:1810.05934 (ASHA).

`sequential_halving` is what the default policy, `thrift`, begins with: read it with `rounds`, which says who is in, and
`race_plan`, its arithmetic. `successive_halving` and `hyperband` share `brackets` and `bracket_view`, which says what is under
way; `asha` promotes without waiting; the rungs of these three are in `ladder`. `top_k_after_one` is the simplest rule that
knows its budget.
"""
