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
from shoestring.core.space import Config, Space
from shoestring.core.streams import stream

_PROBES = 100  # tries to find an unused config before all are listed
_STRIDE = 1_000_003  # from one try to the next in the sequence: prime, so that no coordinate stays where it was


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

    None when a finite space has been used up. Points that differ only in what is inactive are one config, so a point may
    be used although it is new; then the same place of a later stretch of the sequence is tried.
    """
    if ledger.queue:
        return ledger.queue[0]
    space, seed, tried = ledger.space, ledger.opened.seed, len(ledger.trials)
    used = ledger.books.used
    if space.rows is not None:
        order = _row_order(seed, len(space.rows))
        rows = (space.rows[order[(tried + i) % len(order)]] for i in range(len(order)))
        return next((row for row in rows if space.key(row) not in used), None)
    if len(used) >= space.size:
        return None
    return next((config for config in _candidates(space, seed, tried) if space.key(config) not in used), None)


def _candidates(space: Space, seed: int, tried: int) -> Iterator[dict[str, Any]]:
    for probe in range(_PROBES if space.dims else 0):
        yield space.from_cube(point(seed, "configs", space.dims, tried + probe * _STRIDE))
    yield from space.grid(10_000)  # nearly all are used: take the first that is not


@lru_cache(maxsize=16)
def _row_order(seed: int, rows: int) -> list[int]:
    return [int(i) for i in stream(seed, "rows", rows).permutation(rows)]
