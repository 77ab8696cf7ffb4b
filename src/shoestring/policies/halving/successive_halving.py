"""Successive halving: many trials for a few steps, the best third for three times as many, and so on to full training.

Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016,
arXiv:1502.07943, Algorithm 1.

    paper   here               meaning                                    unit
    n       arms               newcomers of a bracket                     —
    eta     reduction_factor   one in eta is kept (2 in the paper)        —
    —       min_steps          the least that a newcomer is trained       steps

Departs from the paper: rungs are fixed by full training, not by the budget (`sequential_halving` is the one that
knows the budget); when a bracket is through, another begins with new configs. Arms are resumed and pay only the increment.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.checks import require_whole
from shoestring.policies.halving.brackets import Ladder, decide_in_brackets, most_halvings, rungs


@dataclass(frozen=True, slots=True, kw_only=True)
class SuccessiveHalving(Ladder):
    arms: int | None = None  # None: as many as it takes for one of them to be trained in full
    name: ClassVar[str] = "successive_halving"

    def __post_init__(self) -> None:
        Ladder.__post_init__(self)
        require_whole(self, "arms", 1, "a bracket without arms trains nothing", "Leave it out.", optional=True)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        halvings = most_halvings(ledger.max_steps, self.min_steps, self.reduction_factor)
        arms = self.arms or self.reduction_factor**halvings
        bracket = rungs(arms, halvings, ledger.max_steps, self.reduction_factor)
        return decide_in_brackets(ledger, lambda number: bracket, self.reduction_factor)
