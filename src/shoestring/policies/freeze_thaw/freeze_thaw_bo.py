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

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.reproducible import NAT, find_best, sort_best_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.core.values.checks import require_whole
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawBelief
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.information_gain import information_gain
from shoestring.policies.freeze_thaw.arms import Reach
from shoestring.policies.freeze_thaw.curve_policy import CurvePolicy, Outlook, ParametersSetting


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeThawBO(CurvePolicy):
    name: ClassVar[str] = "freeze_thaw_bo"
    parameters: ParametersSetting = "most_probable"
    old: int = 10
    new: int = 3
    fantasies: int = 5

    def __post_init__(self) -> None:
        CurvePolicy.__post_init__(self)
        require_whole(self, "old", 1, "a run that has begun must be able to go on", "Try 10.")
        require_whole(self, "new", 1, "otherwise no run ever begins", "Try 3.")
        require_whole(self, "fantasies", 1, "a gain is an expectation over imagined losses", "Try 5.")

    def choose_arm(self, outlook: Outlook, reach: Reach, rng: np.random.Generator) -> tuple[int, Why]:
        arms, beliefs = outlook.arms, outlook.beliefs
        basket = self._fill_basket(beliefs, np.flatnonzero(reach.room), arms.trained)
        step = arms.trained[basket]  # index of the next loss
        _, variance = outlook.predict()
        each = [self._gain(b, basket, step, v[basket, step], rng) for b, v in zip(beliefs, variance, strict=True)]
        gains = np.mean(each, axis=0)
        chosen = find_best(gains, "highest")
        arm = int(basket[chosen])
        name = "information about which run ends best (nats)"
        return arm, {
            **compare_scores(name, "highest", gains, chosen, lambda i: arms.say(int(basket[i]))),
            "information": float(gains[chosen]),
            "asymptote": outlook.to_value(float(np.mean([belief.asymptote_mean[arm] for belief in beliefs]))),
            "new": arms.trial_of[arm] is None,
        }

    def _fill_basket(self, beliefs: list[FreezeThawBelief], free: Indices, trained: Indices) -> Indices:
        """The arms of largest expected improvement of the asymptote on the lowest one expected, old and new apart."""
        begun = trained > 0
        scores = []
        for belief in beliefs:
            level = belief.asymptote_mean[begun].min() if begun.any() else belief.parameters.mean
            std = np.sqrt(belief.asymptote_variance)
            scores.append(log_expected_improvement(belief.asymptote_mean, std, float(level)))
        ranked = free[sort_best_first(np.mean(scores, axis=0)[free], "highest", spread=NAT)]
        return np.concatenate([ranked[begun[ranked]][: self.old], ranked[~begun[ranked]][: self.new]])

    def _gain(
        self, belief: FreezeThawBelief, basket: Indices, step: Indices, variance: Floats, rng: np.random.Generator
    ) -> Floats:
        """What the next loss of each arm in the basket tells about the asymptotes of all of them."""
        omega = belief.omega[belief.curves.row_of_step[step], basket]
        cov = belief.asymptote_cov_of(basket)
        return information_gain(
            belief.asymptote_mean[basket],
            cov,
            cov * omega,
            variance + belief.parameters.diagonal,
            rng,
            self.fantasies,
        )
