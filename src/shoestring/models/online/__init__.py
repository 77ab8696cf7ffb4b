"""The mathematics of one run whose config changes as it goes: a function that drifts, observed only where somebody paid.

Wang, Ren, Bogunovic, Xiong and Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590. The method is
`policies.online.ce_gp_ucb`. Read in this order:

    time_varying               a Gaussian process that forgets, on a finite set of points; learning how fast it forgets
    query_rules                where to act, who competes with that point, and whether to pay for a look
    time_varying_continuous    the same process on the unit cube, and the humps of its upper confidence bound
    bandits                    the rules of rivals that have no model
"""
