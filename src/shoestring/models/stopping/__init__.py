"""Is this run worth finishing? Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019.

Read `curve_paths` (futures of a curve), then `optimal_stopping` (the rule). `curve_families` serves the baseline
`lc_prediction`. The policy is `policies.stopping.bo_bos`.
"""
