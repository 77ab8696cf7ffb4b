"""Softmax: an arm with probability proportional to exp(mean reward / temperature).

Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.2.

    paper   here           meaning                                     unit
    tau     temperature    how much worse an arm may be and be pulled  reward

Departs from the paper: arms never observed go first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from shoestring.core.arrays import Floats
from shoestring.core.settings import require_between
from shoestring.models.online.bandits import softmax
from shoestring.policies.online.bandit import BanditState, OnlineBandit


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(OnlineBandit):
    name: ClassVar[str] = "softmax"
    temperature: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_between(self, "temperature", 0.0, math.inf, "at 0 nothing but the leader is pulled", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return softmax(state.counts, state.sums, self.temperature)
