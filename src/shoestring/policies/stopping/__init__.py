"""Policies that decide whether to finish a trial: Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal
Stopping", ICML 2019.

The method is `bo_bos`: GP-UCB with a stopping check after each step of a trial. Read the modules in this order:

    surrogate       the Gaussian process on configurations
    ucb_search      the next configuration, by a confidence bound
    active_trials   the active trials, and how the memo stores them
    ucb_policy      base class: one trial after another; and `gp_ucb`
    bo_bos          the method: the stopping check
    error_range     losses as errors in [0, 1], for the models of curves

The baselines are `gp_ucb` (finishes every trial), `boca` (chooses the length of a training before it starts) and `lc_prediction`
(stops trials by extrapolation). The mathematics of stopping is in `models.stopping`.
"""
