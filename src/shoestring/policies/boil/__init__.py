"""Which config, and how long should it be trained, when curves are noisy?

Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593.

The method is `boil.BOIL`; its docstring gives the idea, the symbols, and where we depart from the paper. Read in this order:

    boil        the policy: settings, and what it does at a decision (algorithm 1)
    runs        what it knows: trials at rest as curves with costs
    prefixes    which points of these curves its model sees (algorithm 1, line 5)
    belief      the model made of them: scores, costs, and what travels in the memo
    search      what to buy next by that model: a new config with a length, or more of an old run (eq. 3)

The mathematics is in `models.boil`.
"""
