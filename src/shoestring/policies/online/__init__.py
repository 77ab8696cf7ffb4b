"""Policies that change the config of one run from round to round, and that validate only when it is worth the cost.

Wang, Ren, Bogunovic, Xiong and Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590. The method is
`ce_gp_ucb`. Read in this order:

    online_run         the run so far: the config of each round and its reward; the order of the next round
    online_policy      the settings that all online policies share; the limits on validation
    drift_model        a drifting Gaussian process of the rewards, and its proposal for the next round
    ce_gp_ucb          the decision: which config, and whether to validate the round
    gp_ucb_variants    baselines: the same policy with other settings (`tv_gp_ucb`, `gp_ucb_bandit`, `r_gp_ucb`)
    bandit_policies    baselines without a model (`epsilon_greedy`, `exp3s`, `softmax`, `ucb1`)

The mathematics is in `models.online`.
"""
