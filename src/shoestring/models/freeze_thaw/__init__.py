"""The freeze-thaw model of learning curves, and what the policies of `policies.freeze_thaw` compute from it.

Swersky, Snoek and Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, in the form of Lu, Chiang and Sha,
arXiv:1902.00532.

    arm_curves       the kernel of a curve, the observed losses, and the Cholesky factor that all arms share
    curve_posterior  the likelihood of the losses, and the prediction of each curve
    parameter_fit    the most probable parameters, or samples of them
    action_value     what BHPT computes from the prediction: Q, the value of information, tau*
    rollout_value    what the baseline Rollout computes: expected improvement of a few greedy steps

Read the modules in this order.
"""
