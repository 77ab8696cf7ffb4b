"""Successive halving: many trials for a few steps, the best third for three times as many, and so on to full training.

Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016,
arXiv:1502.07943, Algorithm 1.

    paper   here               meaning                                    unit
    n       arms               new trials of a bracket                    —
    eta     reduction_factor   one in eta stays (2 in the paper)          —
    —       min_steps          the fewest steps of a new trial            steps

Differences from the paper: rungs are fixed by full training, not by the budget (`sequential_halving` knows the budget). When a
bracket is finished, another begins with new configurations. Arms are resumed, so only their additional steps cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.policies.halving.brackets import decide_in_brackets, make_rungs
from shoestring.policies.halving.rungs import RungSettings, count_halvings
from shoestring.policy import Decision, Ledger, require_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveHalving(RungSettings):
    arms: int | None = None  # new trials of a bracket; None: as many as are needed to train one of them in full
    name: ClassVar[str] = "successive_halving"

    def __post_init__(self) -> None:
        RungSettings.__post_init__(self)
        require_whole(self, "arms", 1, "a bracket without arms trains nothing", "Leave it out.", optional=True)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        halvings = count_halvings(ledger.max_steps, self.min_steps, self.reduction_factor)
        arms = self.arms or self.reduction_factor**halvings
        bracket = make_rungs(arms, halvings, ledger.max_steps, self.reduction_factor)
        return decide_in_brackets(ledger, lambda number: bracket, self.reduction_factor, self.newcomers)
