"""The simulated runner: recorded or made-up curves under the real loop, with a clock that jumps to the next receipt.

A study of hours replays in seconds, with any number of workers. Steps become due on a heap in the order of their times
(ties: the older order first), and every time is the one before plus a recorded cost, so a study that was cut off and
resumed sees the same moments as an uncut one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shoestring.core.entries import Cost, Note, Order
from shoestring.core.ledger import Ledger
from shoestring.core.space import Config
from shoestring.runners.runner import News, write_broken_receipt, write_receipt


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """What one step gives: a value (None or nan: diverged), its cost, or the text of a failure."""

    value: float | None
    cost: Cost
    failure: str = ""


class Source(Protocol):
    """Where simulated curves come from."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """The outcome of training `config` from `step - 1` to `step`; None: its curve ends before."""
        ...


class Simulated:
    """Curves from a source, on a clock that jumps."""

    simulated = True
    check_start_s = 0.0
    freezing_s = 0.0
    can_save: bool | None = False  # nothing is ever lost, so there is nothing to try out

    def __init__(self, source: Source, workers: int = 1) -> None:
        self.source, self.workers = source, workers
        self._clock = 0.0
        self._orders: dict[int, Order] = {}
        self._since: dict[int, float] = {}
        self._due: list[tuple[float, int, int, StepOutcome | None]] = []  # (clock, order, step, outcome)

    def now(self) -> float:
        return self._clock

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        self._clock = ledger.books.clock
        # An open order goes on from its last receipt, which may lie behind the clock when others worked meanwhile.
        self._since = {number: open_order.since for number, open_order in ledger.open_orders.items()}
        return {trial.number: trial.held for trial in ledger.trials}

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number in self._orders:
            return
        self._orders[order.number] = order
        self._schedule(order, held + 1, self._since.get(order.number, self._clock))

    def wait(self, until: float) -> list[News]:
        if not self._due or self._due[0][0] > until:
            if math.isfinite(until):
                self._clock = max(self._clock, until)
            return []
        at, number, step, outcome = heapq.heappop(self._due)
        self._clock = max(self._clock, at)
        order = self._orders[number]
        if outcome is None:
            self._forget(number)
            return [Note(topic="ended", facts={"order": number, "trial": order.trial, "step": step - 1})]
        if outcome.failure:
            self._forget(number)
            return [write_broken_receipt(order, step, "failed", outcome.failure, outcome.cost, at=at, saved=step - 1)]
        paid = write_receipt(order, step, outcome.value, outcome.cost, at=at, saved=step)
        if paid.status == "diverged" or step == order.until:
            self._forget(number)
        else:
            self._schedule(order, step + 1, at)
        return [paid]

    def running(self) -> Mapping[int, float]:
        return {number: self._since[number] for number in self._orders}

    def interrupt(self, why: str) -> list[News]:
        cut: list[News] = []
        for _, number, step, _ in sorted(self._due, key=lambda due: due[1]):
            cost = Cost(train=self._clock - self._since[number])
            cut.append(
                write_broken_receipt(
                    self._orders[number], step, "interrupted", why, cost, at=self._clock, saved=step - 1
                )
            )
        self._due.clear()
        self._orders.clear()
        return cut

    def freeze(self) -> float:
        return 0.0

    def close(self, freeze: bool = True) -> None:
        pass

    def _schedule(self, order: Order, step: int, since: float) -> None:
        outcome = self.source.step(order.config, step)
        self._since[order.number] = since
        heapq.heappush(self._due, (since + (outcome.cost.total if outcome else 0.0), order.number, step, outcome))

    def _forget(self, number: int) -> None:
        del self._orders[number], self._since[number]
