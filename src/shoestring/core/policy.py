"""The one question that a policy answers, and what every policy may be asked for.

A policy holds settings, never memory: all it knows is in the ledger, so a study that was cut off goes on as if nothing
had happened. `decide` must not change the ledger, and the same ledger must give the same decision.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from shoestring.core.decision import Decision
from shoestring.core.ledger import Ledger
from shoestring.core.quasi_random import point
from shoestring.core.space import Config
from shoestring.core.streams import stream

_PROBES = 100  # tries to find an unused config before all are listed


@runtime_checkable
class Policy(Protocol):
    name: ClassVar[str]

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision: ...

    @classmethod
    def small(cls) -> Policy:
        """The same policy with settings that suit tiny budgets: tests run it hundreds of times."""
        ...


def fresh_config(ledger: Ledger) -> Config | None:
    """A config not tried yet: the user's own first, then quasi-random points (rows of a listed space in a random order).

    None when a finite space has been used up.
    """
    if ledger.queue:
        return ledger.queue[0]
    space, seed, tried = ledger.space, ledger.opened.seed, len(ledger.trials)
    used = ledger.books.used
    if space.rows is not None:
        order = _row_order(seed, len(space.rows))
        rows = (space.rows[order[(tried + i) % len(order)]] for i in range(len(order)))
        return next((row for row in rows if space.key(row) not in used), None)
    if space.size == float("inf"):
        return space.from_cube(point(seed, "configs", space.dims, tried))
    if len(used) >= space.size:
        return None
    candidates = _finite_candidates(ledger, tried)
    return next((config for config in candidates if space.key(config) not in used), None)


def _finite_candidates(ledger: Ledger, start: int) -> Iterator[dict[str, Any]]:
    space = ledger.space
    for i in range(start, start + _PROBES):
        yield (
            space.from_cube(point(ledger.opened.seed, "configs", space.dims, i)) if space.dims else next(space.grid(1))
        )
    yield from space.grid(10_000)  # nearly all are used: take the first that is not


@lru_cache(maxsize=16)
def _row_order(seed: int, rows: int) -> list[int]:
    return [int(i) for i in stream(seed, "rows", rows).permutation(rows)]
