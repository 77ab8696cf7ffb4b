"""Grid search: all combinations, in a fixed order, each trained to its end.

Numbers take `levels` values spread over their range (evenly on their own scale, both ends included; fewer if an integer
has fewer), choices all their options; a listed space is gone through row by row. The last parameter varies fastest. The
user's queued configs come first. What the wall cut short is finished first when the budget is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Why
from shoestring.core.deciding.policy import find_cut_short, nothing_to_buy, train_further, train_new
from shoestring.core.ledger.entries import Entry, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.checks import require_whole
from shoestring.core.values.strict_json import dumps


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    levels: int = 5  # values of every number
    name: ClassVar[str] = "grid"

    def __post_init__(self) -> None:
        require_whole(self, "levels", 1, "every number needs a value", "Try 5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if not ledger.queue and (trial := find_cut_short(ledger, (ledger.max_steps,))):
            return train_further(trial, trial.limit, why={"was": "cut short", "at": trial.steps})
        point = ledger.view(Combinations(self.levels))
        config = ledger.queue[0] if ledger.queue else point.next
        if config is None:
            return nothing_to_buy(ledger)
        why: Why = {"from": "queue"} if ledger.queue else {"from": "grid", "point": point.number}
        return train_new(ledger, config, ledger.max_steps, why=why)


@dataclass(slots=True)
class Point:
    """The next combination that was not tried, and its number."""

    coming: Iterator[Config]
    next: Config | None = None
    number: int = -1
    tried: set[str] = field(default_factory=set)

    def move_on(self) -> None:
        for config in self.coming:
            self.number += 1
            if dumps(config) not in self.tried:
                self.next = config
                return
        self.next = None


@dataclass(frozen=True, slots=True)
class Combinations:
    """Walks the grid as its points are ordered; a grid of millions is never written down."""

    levels: int

    def start(self, opened: Opened) -> Point:
        point = Point(opened.space.grid(self.levels))
        point.move_on()
        return point

    def absorb(self, state: Point, entry: Entry) -> Point:
        if isinstance(entry, Order) and (key := dumps(entry.config)) not in state.tried:
            state.tried.add(key)
            if state.next is not None and dumps(state.next) == key:
                state.move_on()
        return state
