"""EXP3.S: exponential weights that always leak a little to every arm, so that the best arm may change.

Auer, Cesa-Bianchi, Freund, Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J. Comput. 32, 2002, Sect. 8.

    paper   here       meaning                                                      unit
    gamma   mixing     share of rounds played uniformly                             —
    alpha   sharing    share of all weight that flows to each arm; None: 1 / T      —

Departs from the paper: gains, clipped to ±clip, are moved to [0, 1]; values are taken as they are. Weights change only in
validated rounds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.parameters import Scalar
from shoestring.errors import PolicyError
from shoestring.models.online.bandits import draw, exp3s
from shoestring.policies.online.bandit import Arms, ArmsState, OnlineBandit


@dataclass(frozen=True, slots=True, kw_only=True)
class EXP3S(OnlineBandit):
    name: ClassVar[str] = "exp3s"
    mixing: float = 0.1
    sharing: float | None = None

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        if not 0.0 < self.mixing <= 1.0:
            raise PolicyError(
                f"EXP3S(mixing={self.mixing!r}) must lie in (0, 1]: no arm may have probability 0. Try 0.1."
            )
        if self.sharing is not None and not 0.0 <= self.sharing <= 1.0:
            raise PolicyError(
                f"EXP3S(sharing={self.sharing!r}) must lie in [0, 1], or be None for one over the rounds."
            )

    def _view(self) -> Arms:
        return replace(OnlineBandit._view(self), mixing=self.mixing, sharing=self.sharing)

    def _pull(self, state: ArmsState, round: int, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        probabilities = exp3s(state.weights, self.mixing)
        arm = draw(probabilities, rng)
        return arm, {"probability": float(probabilities[arm])}
