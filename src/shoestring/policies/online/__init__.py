"""Is it worth paying for a validation pass now? One run changes its config from round to round, and validates sparingly.

Wang, Ren, Bogunovic, Xiong and Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590. The method is
`ce_gp_ucb`. Read in this order:

    rounds           the run so far: the config of each round, and what it was worth
    online_policy    settings that all online policies share; the walls that validation meets
    belief           a drifting Gaussian process of those rewards; what it proposes for the coming round
    ce_gp_ucb        the decision: which config, and whether to look at the result

Its rivals in the paper's tables: `tv_gp_ucb`, `r_gp_ucb` and `gp_ucb_bandit` are the same policy with another setting;
`epsilon_greedy`, `softmax`, `exp3s` and `ucb1` have no model and share `bandit`. The mathematics is in `models.online`.
"""
