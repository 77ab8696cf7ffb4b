"""Which paused run gets the next epoch, given what is left? Lu, Chiang and Sha, "Hyper-parameter Tuning under a Budget
Constraint", arXiv:1902.00532.

The method is `bhpt`. Read `arms`, `curve_belief`, then `bhpt`; its rivals are `rollout`, `freeze_thaw_bo` and
`fabolas_epochs`. The mathematics is in `models.freeze_thaw`.
"""
