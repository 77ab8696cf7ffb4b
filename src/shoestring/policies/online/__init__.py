"""Is it worth paying for a validation pass now? Wang, Ren, Bogunovic, Xiong and Urtasun, "Cost-Efficient Online
Hyperparameter Optimization", arXiv:2101.06590.

The method is `ce_gp_ucb`. Read `rounds`, `domain`, `belief`, then `ce_gp_ucb`. Of its rivals, `tv_gp_ucb`, `r_gp_ucb` and
`gp_ucb_bandit` change a setting of it, `epsilon_greedy`, `softmax`, `exp3s` and `ucb1` share `bandit`. The mathematics is in
`models.online`.
"""
