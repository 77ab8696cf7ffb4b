"""The mathematics of one run whose config changes from round to round: a function that drifts, and is observed only at a cost.

Wang, Ren, Bogunovic, Xiong and Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590. The method is
`policies.online.ce_gp_ucb`. Read in this order:

    time_varying               a Gaussian process that forgets, on a finite set of points
    parameter_fit              its parameters, learned within bounds by the marginal likelihood
    query_rules                the next point, its competitors, and whether to validate it
    time_varying_continuous    the same process on the unit cube, and the modes of its upper confidence bound
    bandits                    the baselines without a model
"""
