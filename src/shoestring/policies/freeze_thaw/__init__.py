"""Which paused run gets the next step, given what is left? Lu, Chiang and Sha, "Hyper-parameter Tuning under a Budget
Constraint", arXiv:1902.00532.

The method is `bhpt`. Read

    arms            the configs to choose among, and what can be bought of each
    curve_policy    the belief about their curves, and how a decision comes about
    bhpt            which of them to buy: Algorithm 1

The paper's rivals differ from it in one function, `choose_arm`: `rollout` (Appendix C) and `freeze_thaw_bo` (Swersky, Snoek
and Adams, arXiv:1406.3896). A third, `fabolas_epochs` (after Klein et al., arXiv:1605.07079), shares the arms only. The
mathematics is in `models.freeze_thaw`.
"""
