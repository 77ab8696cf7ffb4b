"""Rollout: train the trial whose next step, followed by a few greedy steps, is expected to improve most on the best loss.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix C: a baseline that knows the
budget but looks only `horizon` steps ahead. The value is computed in `models.freeze_thaw.rollout_value`.

    paper   here        meaning                                              unit
    h       horizon     stages after the step being decided                  steps
    zeta    best_loss   smallest loss so far                                 loss

Differences from the paper: only the 16 arms with the largest one-step improvement are compared, because a few steps do not
reach arms that are far behind. Three Gauss-Hermite nodes stand for the losses of a stage. Before the first loss zeta is the
common start value, or else one prior standard deviation above the mean. With several parameter samples the values are
averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior
from shoestring.models.freeze_thaw.rollout_value import roll_out
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.policies.freeze_thaw.arm_table import ARM_LABELS, ArmLimits
from shoestring.policies.freeze_thaw.curve_policy import CurveForecast, CurvePolicy, ParametersSetting
from shoestring.policy import LOG_SPREAD, Labels, Why, compare_scores, find_best, require_whole, sort_best_first

_SHORTLIST = 16  # arms compared
_NODES = 3  # losses simulated in a stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(CurvePolicy):
    name: ClassVar[str] = "rollout"
    why_labels: ClassVar[Labels] = {
        **ARM_LABELS,
        "stages": "steps looked ahead (steps)",
        "value": "expected improvement over these steps (value)",
    }
    parameters: ParametersSetting = "most_probable"
    horizon: int = 3

    def __post_init__(self) -> None:
        CurvePolicy.__post_init__(self)
        require_whole(self, "horizon", 0, "it is the number of stages after the next step", "Try 3.")

    def choose_arm(self, forecast: CurveForecast, limits: ArmLimits, rng: np.random.Generator) -> tuple[int, Why]:
        trained = forecast.arms.trained
        bests = [_find_best_loss(forecast, posterior) for posterior in forecast.posteriors]
        listed = _make_shortlist(forecast, np.flatnonzero(limits.room), bests)
        stages = int(min(self.horizon + 1, limits.affordable[listed].max()))
        can_train = np.arange(stages) < limits.room[listed, None]  # (n_listed, stages)
        values = np.mean(
            [
                _roll_out(posterior, listed, trained[listed], can_train, best)
                for posterior, best in zip(forecast.posteriors, bests, strict=True)
            ],
            axis=0,
        )
        chosen = find_best(values, "highest")
        scores = values * forecast.scaling.scale
        name = f"expected improvement over the next {stages} steps"
        why = compare_scores(name, "highest", scores, chosen, lambda i: forecast.arms.identify(int(listed[i])))
        return int(listed[chosen]), {**why, "value": float(scores[chosen]), "stages": stages}


def _make_shortlist(forecast: CurveForecast, free: Indices, bests: list[float]) -> Indices:
    """Return the arms with the largest expected improvement in one step, in ascending order."""
    step = forecast.arms.trained[free]  # index of the next loss
    mean, variance = (each[:, free, step] for each in forecast.predict())  # (n_samples, n_free)
    gains = [
        log_expected_improvement(m, np.sqrt(v + posterior.parameters.noise), best)
        for m, v, posterior, best in zip(mean, variance, forecast.posteriors, bests, strict=True)
    ]
    ranked = sort_best_first(np.mean(gains, axis=0), "highest", _SHORTLIST, spread=LOG_SPREAD)
    return free[np.sort(ranked)]


def _roll_out(
    posterior: FreezeThawPosterior, listed: Indices, trained: Indices, can_train: Flags, best: float
) -> Floats:
    stages = can_train.shape[1]
    steps = trained[:, None] + 1 + np.arange(stages)
    mean, cov = posterior.predict_joint(np.repeat(listed, stages).tolist(), steps.ravel().tolist())
    return roll_out(mean.reshape(-1, stages), cov, can_train, posterior.parameters.noise, best, _NODES)


def _find_best_loss(forecast: CurveForecast, posterior: FreezeThawPosterior) -> float:
    best, p = forecast.best_scaled_loss, posterior.parameters
    if math.isfinite(best):
        return best
    start = posterior.curves.start
    return start if start is not None else p.mean + math.sqrt(p.s2 + p.sx2)
