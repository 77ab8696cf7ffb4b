"""The ladder that trials climb: settings that asha, successive halving and Hyperband share, and where its rungs are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from shoestring.core.settings import require_reduction_factor, require_whole


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    reduction_factor: int = 3
    min_steps: int = 1

    def __post_init__(self) -> None:
        require_reduction_factor(self)
        require_whole(self, "min_steps", 1, "a newcomer is trained for at least one step", "Try 1.")


class Rung(NamedTuple):
    arms: int
    until: int


def most_halvings(max_steps: int, min_steps: int, reduction_factor: int) -> int:
    """floor(log_eta(R)); a little is added because log(243) / log(3) is 4.999… in floating point."""
    units = max(1.0, max_steps / min_steps)
    return math.floor(math.log(units) / math.log(reduction_factor) + 1e-9)


def rungs(arms: int, halvings: int, max_steps: int, reduction_factor: int) -> list[Rung]:
    return [
        Rung(
            max(1, arms // reduction_factor**i),
            max(1, math.floor(max_steps * float(reduction_factor) ** (i - halvings) + 0.5)),
        )
        for i in range(halvings + 1)
    ]


@lru_cache(maxsize=64)
def rung_steps(max_steps: int, min_steps: int, reduction_factor: int) -> tuple[int, ...]:
    """min_steps * eta**k below full training, then full training."""
    steps = []
    step = min_steps
    while step < max_steps:
        steps.append(step)
        step *= reduction_factor
    return (*steps, max_steps)
