"""BHPT: buy one step of the run whose future is worth knowing most, and when money runs short, of the best one.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, Algorithm 1 with eq. 5 (BHPT) or
eq. 11 (BHPT-eps). The value Q is computed in `models.freeze_thaw.action_value`, the belief in `models.freeze_thaw.belief`.

    paper    here         meaning                                                                      unit
    B        budget       what the study may spend                                                     steps, s, $
    r        buys         steps that all the money left would buy of an arm                            steps
    tau*     tau_star     steps after which the best arm is expected to be at its best                 steps
    c_hat    c_hat        arm whose expected best is lowest                                            —
    Q        Q            E min(best of this arm, expected best of the others)                         loss
    eps      eps          probability of c_hat in BHPT-eps; None: BHPT                                 —

`why` tells of the arm bought: Q, VoI (what knowing its future is worth), mu and sigma (its expected best and how sure
that is, in the unit of the values) and tau (steps until then); and of the moment: c_hat, tau_star, r, committed.

Ablations are settings: `commit=False` is Q alone, with `eps=0.5` Q-eps alone; `eps=1` is greedy.

Departs from the paper:
- In time and money an arm's horizon r is what is left divided by the arm's own mean price of a step; an arm that has not
  run is priced at the mean of those that have. "Committed" compares tau* with the r of the arm expected to be best.
- Several workers: an arm that is being trained is left out of the choice, and r counts only what is not reserved.
- A diverged or failed arm is out; its diverged loss stays in the belief as a bad one.
- `tolerance` (off) lets the best arm count as done once only that share of its expected progress is missing; without it
  a curve expected to fall for ever commits at once.
- `past_best` (off) counts only what would be lower than the best loss so far; Q as printed looks forward alone.
- `falling` (off) gives curves a prior mean that falls, where the paper's stays: see `models.freeze_thaw.curves`.
- When every arm is at its end, further configs are drawn and trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.decision import Decision, Why
from shoestring.core.ledger import Ledger
from shoestring.errors import PolicyError
from shoestring.models.freeze_thaw.action_value import Plan, choose, plan
from shoestring.policies.freeze_thaw.arms import Choices, Floats, Integers, forced, step_of
from shoestring.policies.freeze_thaw.curve_belief import CurveBelief, Outlooks


@dataclass(frozen=True, slots=True, kw_only=True)
class BHPT(CurveBelief):
    name: ClassVar[str] = "bhpt"
    eps: float | None = None
    commit: bool = True
    tolerance: float = 0.0
    past_best: bool = False

    def __post_init__(self) -> None:
        CurveBelief.__post_init__(self)
        if self.eps is not None and not 0.0 <= self.eps <= 1.0:
            raise PolicyError(f"BHPT(eps={self.eps}) is a probability, or None for plain BHPT. Try 0.5.")
        if not 0.0 <= self.tolerance < 1.0:
            raise PolicyError(
                f"BHPT(tolerance={self.tolerance}) is a share of the progress to come, below 1. Try 0.05."
            )

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms, now = self.now(ledger)
        if (answer := forced(ledger, arms, now)) is not None:
            return answer
        outlooks = self.outlooks(ledger, arms)
        mean, variance = within_reach(*outlooks.predict(), arms.trained, now)
        best = outlooks.best_scaled_loss if self.past_best else math.inf
        decided = plan(mean, variance, arms.trained, int(now.room.max()), self.tolerance, best)
        decided = replace(decided, remaining=int(now.buys[decided.top_arm]))
        # a plan that is never short of money never commits
        arm = choose(decided if self.commit else replace(decided, remaining=decided.tau_star + 1), rng, self.eps)
        why = _why(decided, arm, mean, variance, outlooks, self.commit and decided.committed)
        return step_of(ledger, arms, arm, why=why, memo=outlooks.memo)


def within_reach(mean: Floats, variance: Floats, trained: Integers, now: Choices) -> tuple[Floats, Floats]:
    """Predictions (…, n_arms, n_steps) with an infinite loss wherever an arm cannot or need not be trained to."""
    step = np.arange(mean.shape[-1])
    reach = (step >= trained[:, None]) & (step < (trained + now.room)[:, None])  # (n_arms, n_steps)
    return np.where(reach, mean, np.inf), np.where(reach, variance, 0.0)


def _why(decided: Plan, arm: int, mean: Floats, variance: Floats, outlooks: Outlooks, committed: bool) -> Why:
    at = int(outlooks.arms.trained[arm] + decided.tau[arm]) - 1
    mu = mean[:, arm, at]
    sigma = float(np.sqrt(variance[:, arm, at].mean() + mu.var()))
    centre = float(mu.mean())
    return {
        "arm": arm,
        "c_hat": decided.top_arm,
        "committed": committed,
        "Q": outlooks.value(float(decided.q[arm])),
        "VoI": float(decided.gain[arm]) * outlooks.scaling.scale,
        "mu": outlooks.value(centre),
        "sigma": abs(outlooks.value(centre + sigma) - outlooks.value(centre - sigma)) / 2.0,
        "tau": int(decided.tau[arm]),
        "tau_star": decided.tau_star,
        "r": decided.remaining,
    }
