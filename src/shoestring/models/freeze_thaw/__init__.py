"""Where paused learning curves are heading. Swersky, Snoek and Adams, arXiv:1406.3896, as used by Lu, Chiang and Sha,
arXiv:1902.00532.

Read `curves`, `sums`, `belief`, `fit`, then `action_value`: what BHPT makes of the belief. The policy is
`policies.freeze_thaw.bhpt`.
"""
