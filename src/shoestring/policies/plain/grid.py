"""Grid search: all combinations, in a fixed order, each trained to its end.

A number gets `levels` values spread over its range (evenly on its own scale, with both ends; fewer if an integer has fewer), and
a choice gets all its options. The grid of a listed space is its rows. The last parameter varies fastest. Configurations that the
user enqueued come first. A trial interrupted by the budget limit is completed first when the budget is raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from shoestring.core.values.strict_json import dumps
from shoestring.policy import (
    Config,
    Decision,
    Entry,
    Labels,
    Ledger,
    Order,
    StudyDefinition,
    Why,
    WhyText,
    continue_trial,
    find_interrupted,
    nothing_to_train,
    require_whole,
    start_trial,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    levels: int = 5  # number of values of every number
    name: ClassVar[str] = "grid"
    why_labels: ClassVar[Labels] = {
        "at": "steps trained before (steps)",
        "from": "source of the configuration",
        "point": "point of the grid (number, from 0)",
        "was": "state of the trial",
    }

    def __post_init__(self) -> None:
        require_whole(self, "levels", 1, "every number needs a value", "Try 5.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if not ledger.queue and (trial := find_interrupted(ledger, (ledger.max_steps,))):
            return continue_trial(trial, trial.limit, why={"was": "interrupted", "at": trial.steps})
        point = ledger.view(Combinations(self.levels))
        config = ledger.queue[0] if ledger.queue else point.next
        if config is None:
            return nothing_to_train(ledger)
        why: Why = {"from": "queue"} if ledger.queue else {"from": "grid", "point": point.number}
        return start_trial(ledger, config, ledger.max_steps, why=why)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        return WhyText(origin=f"point {order.why['point']} of the grid" if "point" in order.why else "")


@dataclass(slots=True)
class Point:
    """The next combination that was not tried, and its number."""

    remaining: Iterator[Config]
    next: Config | None = None
    number: int = -1
    tried: set[str] = field(default_factory=set)

    def advance(self) -> None:
        for config in self.remaining:
            self.number += 1
            if dumps(config) not in self.tried:
                self.next = config
                return
        self.next = None


@dataclass(frozen=True, slots=True)
class Combinations:
    """View of the next point of the grid. A large grid is never stored as a whole."""

    levels: int

    def start(self, definition: StudyDefinition) -> Point:
        point = Point(definition.space.grid(self.levels))
        point.advance()
        return point

    def absorb(self, state: Point, entry: Entry) -> Point:
        if isinstance(entry, Order) and (key := dumps(entry.config)) not in state.tried:
            state.tried.add(key)
            if state.next is not None and dumps(state.next) == key:
                state.advance()
        return state
