"""Rules that decide whether to stop a trial before its end.

Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019:

    curve_paths        random future curves of a trial
    decision_map       the stopping problem solved backwards on these curves (Algorithm 2)
    optimal_stopping   the rule: from losses to a decision; K1, C2 and the allowance for noise

Read the modules in this order. The policy that uses them is `policies.stopping.bo_bos`; the rule can be used alone, too.

The baseline `policies.stopping.lc_prediction` extrapolates a curve instead (Domhan, Springenberg and Hutter, IJCAI 2015):

    curve_families     eleven parametric curves, and their weighted sum by Markov chain Monte Carlo
    forecasts          the final error of a trial, by that sum or by `curve_paths`
"""
