"""Is this run worth finishing? Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019.

The method is `bo_bos`: GP-UCB that asks after each step of a run whether to give it up. Read

    surrogate       what the trials say about every config
    search          which config next, by a confidence bound
    runs            which runs are under way, and how that travels in the memo
    ucb_policy      one run after another: the frame that all four policies fill in
    bo_bos          the method: how a run is judged
    error_range     losses as errors in [0, 1], for those who model curves

Its rivals are `gp_ucb` (finishes every run), `boca` (chooses the length of a run before it begins) and `lc_prediction` (gives
runs up by extrapolation). The mathematics of stopping is in `models.stopping`.
"""
