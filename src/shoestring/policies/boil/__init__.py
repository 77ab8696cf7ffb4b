"""BOIL: choose a config and its length of training, when curves are noisy.

Nguyen, Schulze and Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593.

The method is `boil.BOIL`; its docstring has the idea, the symbols, and the differences from the paper. Read in this order:

    boil          the policy: settings, and what happens at a decision (algorithm 1)
    loss_curves   the curves and costs of trials that are not being trained
    prefixes      the points of these curves that the model is fitted to (algorithm 1, line 5)
    score_model   the model: scores, costs, and what is stored in the memo
    next_trial    the search for the next trial by that model (eq. 3)

The mathematics is in `models.boil`.
"""
