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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.decision import Decision
from shoestring.core.ledger import Ledger
from shoestring.core.settings import require_whole
from shoestring.models.freeze_thaw.belief import Belief
from shoestring.models.freeze_thaw.rollout_value import rollout_values
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.policies.freeze_thaw.arms import Flags, Floats, Integers, forced, step_of
from shoestring.policies.freeze_thaw.curve_belief import CurveBelief, Outlooks


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout(CurveBelief):
    name: ClassVar[str] = "rollout"
    parameters: Literal["sampled", "most_probable"] | Sequence[float] = "most_probable"
    horizon: int = 3
    nodes: int = 3
    shortlist: int = 16

    def __post_init__(self) -> None:
        CurveBelief.__post_init__(self)
        require_whole(self, "horizon", 0, "it is the number of stages looked at after the next step", "Try 3.")
        require_whole(self, "nodes", 1, "an expectation needs a node", "Try 3.")
        require_whole(self, "shortlist", 1, "there is nothing to choose among", "Try 16.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms, now = self.now(ledger)
        if (answer := forced(ledger, arms, now)) is not None:
            return answer
        outlooks = self.outlooks(ledger, arms)
        free = np.flatnonzero(now.room)
        step = arms.trained[free]  # index of the next loss
        mean, variance = (p[:, free, step] for p in outlooks.predict())  # (n_samples, n_free)
        bests = [_best_loss(outlooks, belief) for belief in outlooks.beliefs]
        noise = np.array([belief.parameters.noise for belief in outlooks.beliefs])[:, None]
        gains = np.array(
            [
                log_expected_improvement(m, s, best)
                for m, s, best in zip(mean, np.sqrt(variance + noise), bests, strict=True)
            ]
        )
        listed = free[np.sort(np.argsort(-gains.mean(axis=0), kind="stable")[: self.shortlist])]
        stages = int(min(self.horizon + 1, now.buys[listed].max()))
        can_run = np.arange(stages) < now.room[listed, None]  # (n_listed, stages)
        values = np.mean(
            [
                self._values(belief, listed, arms.trained, can_run, best)
                for belief, best in zip(outlooks.beliefs, bests, strict=True)
            ],
            axis=0,
        )
        chosen = int(np.argmax(values))
        arm = int(listed[chosen])
        return step_of(
            ledger,
            arms,
            arm,
            why={"arm": arm, "value": float(values[chosen]) * outlooks.scaling.scale, "stages": stages},
            memo=outlooks.memo,
        )

    def _values(self, belief: Belief, listed: Integers, trained: Integers, can_run: Flags, best: float) -> Floats:
        stages = can_run.shape[1]
        epochs = self.epochs_per_step * (trained[listed, None] + 1 + np.arange(stages))
        mean, cov = belief.at(np.repeat(listed, stages).tolist(), epochs.ravel().tolist())
        return rollout_values(mean.reshape(-1, stages), cov, can_run, belief.parameters.noise, best, self.nodes)


def _best_loss(outlooks: Outlooks, belief: Belief) -> float:
    best, p = outlooks.best_scaled_loss, belief.parameters
    if math.isfinite(best):
        return best
    start = belief.curves.start
    return start if start is not None else p.mean + math.sqrt(p.s2 + p.sx2)
