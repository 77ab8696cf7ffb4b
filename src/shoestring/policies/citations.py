"""The publication to cite for each registered policy."""

from __future__ import annotations

_BANDITS = (
    "Auer, Cesa-Bianchi, Fischer, Finite-time Analysis of the Multiarmed Bandit Problem, Machine Learning 47, 2002"
)
_BOGUNOVIC = (
    "Bogunovic, Scarlett, Cevher, Time-Varying Gaussian Process Bandit Optimization, AISTATS 2016, arXiv:1601.06650"
)
_HALVING = (
    "Jamieson, Talwalkar, Non-stochastic Best Arm Identification and Hyperparameter Optimization, AISTATS 2016, "
    "arXiv:1502.07943"
)
_KULESHOV = "Kuleshov, Precup, Algorithms for Multi-Armed Bandit Problems, arXiv:1402.6028"
_LU = "Lu, Chiang, Sha, Hyper-parameter Tuning under a Budget Constraint, arXiv:1902.00532"
_SRINIVAS = (
    "Srinivas, Krause, Kakade, Seeger, Gaussian Process Optimization in the Bandit Setting, ICML 2010, arXiv:0912.3995"
)

CITATIONS = {
    "asha": "Li et al., A System for Massively Parallel Hyperparameter Tuning, MLSys 2020, arXiv:1810.05934",
    "bhpt": _LU,
    "bo_bos": "Dai, Yu, Low, Jaillet, Bayesian Optimization Meets Bayesian Optimal Stopping, ICML 2019",
    "boca": (
        "Kandasamy, Dasarathy, Schneider, Póczos, Multi-fidelity Bayesian Optimisation with Continuous Approximations, "
        "ICML 2017, arXiv:1703.06240"
    ),
    "boil": "Nguyen, Schulze, Osborne, Bayesian Optimization for Iterative Learning, NeurIPS 2020, arXiv:1909.09593",
    "ce_gp_ucb": (
        "Wang, Ren, Bogunovic, Xiong, Urtasun, Cost-Efficient Online Hyperparameter Optimization, arXiv:2101.06590"
    ),
    "cost_aware_ei": (
        "Guinet, Perrone, Archambeau, Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization, "
        "arXiv:2011.11456"
    ),
    "epsilon_greedy": _KULESHOV,
    "exp3s": (
        "Auer, Cesa-Bianchi, Freund, Schapire, The Nonstochastic Multiarmed Bandit Problem, SIAM J. Comput. 32, 2002"
    ),
    "fabolas_epochs": (
        "Klein et al., Fast Bayesian Optimization of Machine Learning Hyperparameters on Large Datasets, AISTATS 2017, "
        "arXiv:1605.07079"
    ),
    "freeze_thaw_bo": "Swersky, Snoek, Adams, Freeze-Thaw Bayesian Optimization, arXiv:1406.3896",
    "gp_ucb": _SRINIVAS,
    "gp_ucb_bandit": _SRINIVAS,
    "hyperband": (
        "Li, Jamieson, DeSalvo, Rostamizadeh, Talwalkar, Hyperband: A Novel Bandit-Based Approach to Hyperparameter "
        "Optimization, JMLR 18, 2018"
    ),
    "lc_prediction": (
        "Domhan, Springenberg, Hutter, Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by "
        "Extrapolation of Learning Curves, IJCAI 2015"
    ),
    "r_gp_ucb": _BOGUNOVIC,
    "random_search": "Bergstra, Bengio, Random Search for Hyper-Parameter Optimization, JMLR 13, 2012",
    "rollout": "Lam, Willcox, Wolpert, Bayesian Optimization with a Finite Budget, NeurIPS 2016",
    "sequential_halving": (
        "Karnin, Koren, Somekh, Almost Optimal Exploration in Multi-Armed Bandits, ICML 2013; " + _HALVING
    ),
    "softmax": _KULESHOV,
    "successive_halving": _HALVING,
    "tv_gp_ucb": _BOGUNOVIC,
    "ucb1": _BANDITS,
}


def cite(policy: str) -> str | None:
    """Return the reference of a policy; None for policies that are our own, common knowledge, or from another package."""
    return CITATIONS.get(policy)
