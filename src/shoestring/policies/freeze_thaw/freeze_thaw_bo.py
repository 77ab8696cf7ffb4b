"""Freeze-thaw Bayesian optimisation: buy one step of the run that tells most about which run will end lowest.

Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, section 4. It freezes and thaws like BHPT and
shares its belief, but does not know the budget.

    paper    here       meaning                                                             unit
    B_old    old        runs in the basket that have begun, by improvement of their end     —
    B_new    new        runs in the basket that have not                                    —
    n_fant   fantasies  imagined next losses of a run                                       —
    P_min    —          probability of each run in the basket to end lowest                 —

Departs from the paper: new runs come from a fixed set of arms; P_min is over the basket alone and counted over draws
(`models.gp.information_gain`); a fantasy is one step long. With several parameter samples the gains are averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.decision import Decision
from shoestring.core.ledger import Ledger
from shoestring.core.settings import require_whole
from shoestring.models.freeze_thaw.belief import Belief
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.information_gain import information_gain
from shoestring.policies.freeze_thaw.arms import Floats, Integers, forced, step_of
from shoestring.policies.freeze_thaw.curve_belief import CurveBelief


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeThawBO(CurveBelief):
    name: ClassVar[str] = "freeze_thaw_bo"
    parameters: Literal["sampled", "most_probable"] | Sequence[float] = "most_probable"
    old: int = 10
    new: int = 3
    fantasies: int = 5

    def __post_init__(self) -> None:
        CurveBelief.__post_init__(self)
        require_whole(self, "old", 1, "a run that has begun must be able to go on", "Try 10.")
        require_whole(self, "new", 1, "otherwise no run ever begins", "Try 3.")
        require_whole(self, "fantasies", 1, "a gain is an expectation over imagined losses", "Try 5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms, now = self.now(ledger)
        if (answer := forced(ledger, arms, now)) is not None:
            return answer
        outlooks = self.outlooks(ledger, arms)
        free = np.flatnonzero(now.room)
        basket = self._basket(outlooks.beliefs, free, arms.trained)
        _, variance = outlooks.predict()
        gains = np.mean(
            [self._gains(belief, basket, arms.trained, variance[i], rng) for i, belief in enumerate(outlooks.beliefs)],
            axis=0,
        )
        chosen = int(np.argmax(gains))
        arm = int(basket[chosen])
        ends = np.mean([belief.asymptote_mean[arm] for belief in outlooks.beliefs])
        return step_of(
            ledger,
            arms,
            arm,
            why={
                "arm": arm,
                "information": float(gains[chosen]),
                "asymptote": outlooks.value(float(ends)),
                "new": arms.trial_of[arm] is None,
            },
            memo=outlooks.memo,
        )

    def _basket(self, beliefs: list[Belief], free: Integers, trained: Integers) -> Integers:
        """The arms of largest expected improvement of the asymptote on the lowest one expected, old and new apart."""
        begun = trained > 0
        scores = []
        for belief in beliefs:
            level = belief.asymptote_mean[begun].min() if begun.any() else belief.parameters.mean
            std = np.sqrt(belief.asymptote_variance)
            scores.append(log_expected_improvement(belief.asymptote_mean, std, float(level)))
        ranked = free[np.argsort(-np.mean(scores, axis=0)[free], kind="stable")]
        return np.concatenate([ranked[begun[ranked]][: self.old], ranked[~begun[ranked]][: self.new]])

    def _gains(
        self, belief: Belief, basket: Integers, trained: Integers, variance: Floats, rng: np.random.Generator
    ) -> Floats:
        step = trained[basket]  # index of the next loss
        row_of_step = np.argsort(belief.curves.order)[-variance.shape[1] :]
        omega = belief.omega[row_of_step[step], basket]
        if belief.asymptote_cov is None:
            cov = np.diag(belief.asymptote_variance[basket])
        else:
            cov = belief.asymptote_cov[np.ix_(basket, basket)]
        return information_gain(
            belief.asymptote_mean[basket],
            cov,
            cov * omega,
            variance[basket, step] + belief.parameters.diagonal,
            rng,
            self.fantasies,
        )
