"""Hyperband: brackets of successive halving from many short trials to few long ones, repeated.

Li et al., "Hyperband: A Novel Bandit-Based Approach to Hyperparameter Optimization", JMLR 18, 2018, Algorithm 1.

    paper   here               meaning                                     unit
    R       max_steps          full training                               steps
    eta     reduction_factor   one in eta stays                            —
    —       min_steps          one unit of R: the fewest steps of a trial  steps
    s       halvings           bracket s begins with R * eta**-s steps     —
    n       arms               ceil((s_max + 1) / (s + 1) * eta**s)        —

With R = 81 and eta = 3 the brackets hold 81/27/9/3/1, 34/11/3/1, 15/5/1, 8/2 and 5 arms.

Differences from the paper: arms are resumed, so only their additional steps cost. Brackets are repeated until the budget is
spent; the last one stops at the budget limit. A worker that would wait begins the next bracket. Configurations are quasi-random.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from shoestring.policies.halving.brackets import Rung, decide_in_brackets, make_rungs
from shoestring.policies.halving.rungs import RungSettings, count_halvings
from shoestring.policy import Decision, Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Hyperband(RungSettings):
    name: ClassVar[str] = "hyperband"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        def plan(number: int) -> tuple[Rung, ...]:
            table = make_brackets(ledger.max_steps, self.min_steps, self.reduction_factor)
            return table[number % len(table)]

        return decide_in_brackets(ledger, plan, self.reduction_factor, self.newcomers)


@lru_cache(maxsize=64)
def make_brackets(max_steps: int, min_steps: int, reduction_factor: int) -> tuple[tuple[Rung, ...], ...]:
    """Return the rungs of each bracket, s = s_max … 0."""
    s_max = count_halvings(max_steps, min_steps, reduction_factor)
    arms = [-(-(s_max + 1) * reduction_factor**s // (s + 1)) for s in range(s_max + 1)]  # exact ceil of integers
    return tuple(tuple(make_rungs(arms[s], s, max_steps, reduction_factor)) for s in reversed(range(s_max + 1)))
