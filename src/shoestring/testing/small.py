"""Settings that suit tiny budgets, for checks that run a policy hundreds of times; the policies' own where nothing is listed."""

from __future__ import annotations

from typing import Any

from shoestring import policies
from shoestring.core.policy import Policy

_BELIEF = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)  # roughly what standardised losses of real tables gave: no fit is needed
_SMALL: dict[str, dict[str, Any]] = {
    "asha": {"reduction_factor": 2},
    "bhpt": {"arms": 6, "samples": 1},
    "bo_bos": {"initial_trials": 2, "candidates": 40, "n0": 3, "paths": 2000, "cells": 20},
    "boca": {"initial_trials": 2, "candidates": 40},
    "boil": {"initial_trials": 2, "candidates": 40, "max_points": 4},
    "ce_gp_ucb": {"n_starts": 4},
    "cost_aware_ei": {"initial_trials": 2, "candidates": 40},
    "epsilon_greedy": {"most_arms": 4},
    "exp3s": {"most_arms": 8, "mixing": 0.5},
    "fabolas_epochs": {"arms": 6, "representatives": 4},
    "freeze_thaw_bo": {"arms": 6, "parameters": _BELIEF, "old": 3, "new": 2},
    "gp_ucb": {"initial_trials": 2, "candidates": 40},
    "gp_ucb_bandit": {"n_starts": 4},
    "grid": {"levels": 2},
    "hyperband": {"reduction_factor": 2},
    "lc_prediction": {"initial_trials": 2, "candidates": 40, "n0": 3, "forecast": "process"},
    "r_gp_ucb": {"n_starts": 4},
    "replay_fixed": {"orders": ((0, None, 1), (1, None, 2), (0, None, 3), (2, None, 1), (1, None, 3))},
    "rollout": {"arms": 6, "parameters": _BELIEF, "horizon": 1},
    "sequential_halving": {"arms_per_curve": 4.0},
    "softmax": {"most_arms": 4},
    "successive_halving": {"reduction_factor": 2, "arms": 4},
    "thrift": {"opening": 0.1, "arms_per_curve": 4.0, "look_back": True},
    "tv_gp_ucb": {"n_starts": 4},
    "ucb1": {"most_arms": 4},
}


def small(name: str) -> Policy:
    """The registered policy of that name, with settings for tiny budgets."""
    return policies.make(name, _SMALL.get(name))
