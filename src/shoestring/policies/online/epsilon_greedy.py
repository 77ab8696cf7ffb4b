"""Epsilon-greedy: the arm of best mean reward, and now and then any arm.

Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.1.

    paper   here           meaning                           unit
    eps     exploration    share of rounds played at random  —

Departs from the paper: arms never observed go first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from shoestring.core.arrays import Floats
from shoestring.core.settings import require_within
from shoestring.models.online.bandits import epsilon_greedy
from shoestring.policies.online.bandit import BanditState, OnlineBandit


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy(OnlineBandit):
    name: ClassVar[str] = "epsilon_greedy"
    exploration: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_within(self, "exploration", 0.0, 1.0, "it is a share of rounds", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return epsilon_greedy(state.counts, state.sums, self.exploration)
