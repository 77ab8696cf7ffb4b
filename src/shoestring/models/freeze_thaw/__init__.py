"""Where is every paused learning curve heading, and what is that worth knowing? Swersky, Snoek and Adams, "Freeze-Thaw
Bayesian Optimization", arXiv:1406.3896, as used by Lu, Chiang and Sha, arXiv:1902.00532.

    curves          the kernel of a curve, the losses seen, and the one factor that all arms share
    belief          how likely the losses are, and where each curve is heading
    fit             choosing the parameters: the most probable ones, or samples
    action_value    what BHPT makes of the belief: Q, the value of information, tau*
    rollout_value   what its rival makes of it: improvement expected of a few greedy steps

Read them in this order. The policies are in `policies.freeze_thaw`; the method is `bhpt` there.
"""
