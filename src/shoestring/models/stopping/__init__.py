"""Is this run worth finishing? Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019.

    curve_paths        where a learning curve may go: random futures of a run
    decision_map       the stopping problem solved backwards on such futures (Algorithm 2)
    optimal_stopping   the rule: from losses to a verdict; K1, C2 and the allowance for noise

Read them in this order. The method that uses them is `policies.stopping.bo_bos`; the rule also serves alone.

Its rival `policies.stopping.lc_prediction` asks another question of a curve, Domhan, Springenberg and Hutter, IJCAI 2015:

    curve_families     eleven parametric curves
    family_sampler     their weighted sum, by Markov chain Monte Carlo
    forecasts          how low a run will end, by that sum or by `curve_paths`
"""
