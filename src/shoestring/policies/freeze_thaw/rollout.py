"""Rollout: buy the step after which a few more steps, bought greedily, are expected to improve most on the best loss.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Appendix C: the baseline that knows
the budget but looks only `horizon` steps ahead. The value is computed in `models.freeze_thaw.rollout_value`.

    paper   here        meaning                                              unit
    h       horizon     stages looked at after the step being decided        steps
    zeta    best_loss   smallest loss so far                                 loss

Departs from the paper: only the `shortlist` arms of largest one-step improvement are looked at, since arms far behind are
not reached in a few steps. Before the first loss zeta is the common start value, or else one prior standard deviation
above the mean. With several parameter samples the values are averaged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.reproducible import NAT, find_best, sort_best_first
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.core.values.checks import require_whole
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawBelief
from shoestring.models.freeze_thaw.rollout_value import roll_out
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.policies.freeze_thaw.arms import Reach
from shoestring.policies.freeze_thaw.curve_policy import CurvePolicy, Outlook, ParametersSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(CurvePolicy):
    name: ClassVar[str] = "rollout"
    parameters: ParametersSetting = "most_probable"
    horizon: int = 3
    nodes: int = 3
    shortlist: int = 16

    def __post_init__(self) -> None:
        CurvePolicy.__post_init__(self)
        require_whole(self, "horizon", 0, "it is the number of stages looked at after the next step", "Try 3.")
        require_whole(self, "nodes", 1, "an expectation needs a node", "Try 3.")
        require_whole(self, "shortlist", 1, "there is nothing to choose among", "Try 16.")

    def choose_arm(self, outlook: Outlook, reach: Reach, rng: np.random.Generator) -> tuple[int, Why]:
        trained = outlook.arms.trained
        bests = [_find_best_loss(outlook, belief) for belief in outlook.beliefs]
        listed = self._shortlist(outlook, np.flatnonzero(reach.room), bests)
        stages = int(min(self.horizon + 1, reach.buys[listed].max()))
        can_run = np.arange(stages) < reach.room[listed, None]  # (n_listed, stages)
        values = np.mean(
            [
                self._roll_out(belief, listed, trained[listed], can_run, best)
                for belief, best in zip(outlook.beliefs, bests, strict=True)
            ],
            axis=0,
        )
        chosen = find_best(values, "highest")
        scores = values * outlook.scaling.scale
        name = f"improvement to expect of the next {stages} steps"
        why = compare_scores(name, "highest", scores, chosen, lambda i: outlook.arms.say(int(listed[i])))
        return int(listed[chosen]), {**why, "value": float(scores[chosen]), "stages": stages}

    def _shortlist(self, outlook: Outlook, free: Indices, bests: list[float]) -> Indices:
        """The arms of largest expected improvement in one step, in their order."""
        step = outlook.arms.trained[free]  # index of the next loss
        mean, variance = (each[:, free, step] for each in outlook.predict())  # (n_samples, n_free)
        gains = [
            log_expected_improvement(m, np.sqrt(v + belief.parameters.noise), best)
            for m, v, belief, best in zip(mean, variance, outlook.beliefs, bests, strict=True)
        ]
        ranked = sort_best_first(np.mean(gains, axis=0), "highest", self.shortlist, spread=NAT)
        return free[np.sort(ranked)]

    def _roll_out(
        self, belief: FreezeThawBelief, listed: Indices, trained: Indices, can_run: Flags, best: float
    ) -> Floats:
        stages = can_run.shape[1]
        epochs = self.epochs_per_step * (trained[:, None] + 1 + np.arange(stages))
        mean, cov = belief.predict_joint(np.repeat(listed, stages).tolist(), epochs.ravel().tolist())
        return roll_out(mean.reshape(-1, stages), cov, can_run, belief.parameters.noise, best, self.nodes)


def _find_best_loss(outlook: Outlook, belief: FreezeThawBelief) -> float:
    best, p = outlook.best_scaled_loss, belief.parameters
    if math.isfinite(best):
        return best
    start = belief.curves.start
    return start if start is not None else p.mean + math.sqrt(p.s2 + p.sx2)
