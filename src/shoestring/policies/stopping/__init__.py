"""Is this run worth finishing? Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping", ICML 2019.

The method is `bo_bos`. Read `search` (which config next), `runs` (one run after another), then `bo_bos`; `error_range` maps
losses to [0, 1]. Its rivals `gp_ucb`, `boca` and `lc_prediction` share `runs`. The mathematics is in `models.stopping`.
"""
