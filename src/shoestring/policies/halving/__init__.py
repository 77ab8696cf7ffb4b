"""Races: many trials for a few steps, and the best of them for more steps.

Karnin, Koren and Somekh, ICML 2013 (`sequential_halving`); Jamieson and Talwalkar, arXiv:1502.07943; Li et al., JMLR 18, 2018
(Hyperband); Li et al., arXiv:1810.05934 (ASHA).

The default policy, `guided_halving`, is `sequential_halving` with a model that chooses new configurations. Read in this order:

    halving_rounds        the arms of a round
    newcomers             which configuration is started next, by chance or by the model
    sequential_halving    how many new configurations are started, and how far each is trained
    guide                 the model
    guided_halving        the default, also for trials of one step

`asha`, `successive_halving` and `hyperband` share the settings in `rungs`; the last two also share `brackets`, and `asha`
promotes without waiting. `top_k_after_one` is the simplest rule that knows its budget.
"""
