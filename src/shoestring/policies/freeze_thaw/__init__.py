"""Policies that choose which paused trial gets the next step, given the rest of the budget: Lu, Chiang and Sha,
"Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532.

The method is `bhpt`. Read the modules in this order:

    arm_table       the configurations to choose from, and how far each can be trained
    curve_policy    predictions of their curves, and how a decision is made
    bhpt            which arm to train: Algorithm 1

The paper's baselines `rollout` (Appendix C) and `freeze_thaw_bo` (Swersky, Snoek and Adams, arXiv:1406.3896) differ from it in
one method, `choose_arm`. A third baseline, `fabolas_epochs` (after Klein et al., arXiv:1605.07079), shares only the arms. The
mathematics is in `models.freeze_thaw`.
"""
