"""UCB1: the arm of greatest mean reward plus sqrt(2 ln t / n), each arm once before that.

Auer, Cesa-Bianchi, Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47, 2002, Fig. 1.
Departs from the paper: the round t counts rounds without validation too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.choosing import find_best
from shoestring.core.comparing import compare_scores
from shoestring.core.parameters import Scalar
from shoestring.models.online.bandits import ucb1_bounds
from shoestring.policies.online.bandit import BanditState, OnlineBandit


@dataclass(frozen=True, slots=True, kw_only=True)
class UCB1(OnlineBandit):
    name: ClassVar[str] = "ucb1"

    def _pull(self, state: BanditState, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        bounds = ucb1_bounds(state.counts, state.sums, round=len(state.run.configs) + 1)
        arm, name = find_best(bounds, "highest"), "mean reward that the arm could have (confidence bound)"
        why = compare_scores(name, "highest", bounds, arm, state.keys.__getitem__)
        return arm, {**why, "observed": int(state.counts[arm]), "sum": float(state.sums[arm])}
