"""The simulated runner: recorded or made-up curves under the real loop, with a clock that jumps to the next receipt.

A study of hours replays in seconds, with any number of workers, which may differ in speed and price. Steps become due on a
heap in the order of their times (ties: the older order first), and every time is the one before plus a recorded cost, so a
study that was cut off and resumed sees the same moments as an uncut one.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from shoestring.core.ledger.entries import Cost, Note, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.runners.runner import News, RunningSteps, clip_cost, write_broken_receipt, write_receipt


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


@dataclass(frozen=True, slots=True)
class SimulatedWorker:
    """A worker unlike the others: a step takes its seconds / `speed`, a second costs `price_factor` times the budget's rate."""

    name: str
    speed: float = 1.0
    price_factor: float = 1.0


_ALIKE = SimulatedWorker("")  # what all workers are where only their number is given


class Simulated:
    """Curves from a source, on a clock that jumps.

    `workers`: how many, or what each of them is; then the first that is free takes the next order, and receipts name it.
    """

    simulated = True
    check_start_s = 0.0
    freezing_s = 0.0
    can_save: bool | None = False  # nothing is ever lost, so there is nothing to try out

    def __init__(self, source: Source, workers: int | Sequence[SimulatedWorker] = 1) -> None:
        self.source = source
        self._crew = () if isinstance(workers, int) else tuple(workers)
        self.workers = workers if isinstance(workers, int) else len(self._crew)
        self._free = list(range(len(self._crew)))  # a heap
        self._place: dict[int, int] = {}  # order -> its worker's number in the crew
        self._clock = 0.0
        self._orders: dict[int, Order] = {}
        self._taken_up: dict[int, float] = {}  # when the present step of an order that was open at the start began
        self._running = RunningSteps()
        self._due: list[tuple[float, int, int, StepOutcome | None]] = []  # (clock, order, step, outcome)

    def now(self) -> float:
        return self._clock

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        self._clock = ledger.books.clock
        # An open order goes on from its last receipt, which may lie behind the clock when others worked meanwhile.
        self._taken_up = {number: open_order.since for number, open_order in ledger.open_orders.items()}
        if self._crew:
            self._place = _places_taken(ledger, len(self._crew))
            self._free = [place for place in range(len(self._crew)) if place not in self._place.values()]
        return {trial.number: trial.held for trial in ledger.trials}

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        if order.number in self._orders:
            return
        self._orders[order.number] = order
        if self._crew and order.number not in self._place:
            self._place[order.number] = heapq.heappop(self._free)
        self._schedule(order, held + 1, self._taken_up.pop(order.number, self._clock))

    def wait(self, until: float) -> list[News]:
        if not self._due or self._due[0][0] > until:
            if math.isfinite(until):
                self._clock = max(self._clock, until)
            return []
        at, number, step, outcome = heapq.heappop(self._due)
        self._clock = max(self._clock, at)
        order, worker = self._orders[number], self._worker(number)
        if outcome is None:
            self._forget(number)
            return [Note(topic="ended", facts={"order": number, "trial": order.trial, "step": step - 1})]
        if outcome.failure:
            self._forget(number)
            broken = write_broken_receipt(order, step, "failed", outcome.failure, outcome.cost, at=at, saved=step - 1)
            return [_sign(broken, worker)]
        paid = _sign(write_receipt(order, step, outcome.value, outcome.cost, at=at, saved=step), worker)
        if paid.status == "diverged" or step == order.until:
            self._forget(number)
        else:
            self._schedule(order, step + 1, at)
        return [paid]

    def running(self) -> Mapping[int, float]:
        return self._running

    def interrupt(self, why: str) -> list[News]:
        cut: list[News] = []
        for _, number, step, _ in sorted(self._due, key=lambda due: due[1]):
            order, cost = self._orders[number], Cost(train=self._clock - self._running[number])
            broken = write_broken_receipt(order, step, "interrupted", why, cost, at=self._clock, saved=step - 1)
            cut.append(_sign(broken, self._worker(number)))
            self._forget(number)
        self._due.clear()
        return cut

    def freeze(self) -> float:
        return 0.0

    def close(self, freeze: bool = True) -> None:
        pass

    def _schedule(self, order: Order, step: int, since: float) -> None:
        worker, outcome = self._worker(order.number), self.source.step(order.config, step)
        if outcome is not None and worker.speed != 1.0:
            outcome = replace(outcome, cost=_stretch(outcome.cost, worker.speed))
        self._running.begin(order.number, since, worker.price_factor)
        seconds = clip_cost(outcome.cost).total if outcome else 0.0
        heapq.heappush(self._due, (since + seconds, order.number, step, outcome))

    def _forget(self, number: int) -> None:
        del self._orders[number]
        self._running.end(number)
        if self._crew:
            heapq.heappush(self._free, self._place.pop(number))

    def _worker(self, number: int) -> SimulatedWorker:
        return self._crew[self._place[number]] if self._crew else _ALIKE


def _sign(receipt: Receipt, worker: SimulatedWorker) -> Receipt:
    """In the name of a worker that has one, at its price."""
    if worker is _ALIKE:
        return receipt
    return replace(receipt, worker=worker.name, price_factor=worker.price_factor)


def _stretch(cost: Cost, speed: float) -> Cost:
    return Cost(setup=cost.setup / speed, train=cost.train / speed, validate=cost.validate / speed)


def _places_taken(ledger: Ledger, workers: int) -> dict[int, int]:
    """Which worker each open order has: as it was given, order by order, to the first that was free then."""
    last_word: dict[int, int] = {}  # order -> the last entry about it
    entries = ledger.entries()
    for at, entry in enumerate(entries):
        if isinstance(entry, Receipt):
            last_word[entry.order] = at
        elif isinstance(entry, Note) and "order" in entry.facts:
            last_word[entry.facts["order"]] = at
    closes = {at: number for number, at in last_word.items() if number not in ledger.open_orders}
    free, places = list(range(workers)), dict[int, int]()
    for at, entry in enumerate(entries):
        if isinstance(entry, Order) and not entry.asked and free:
            places[entry.number] = heapq.heappop(free)
        elif at in closes and closes[at] in places:
            heapq.heappush(free, places.pop(closes[at]))
    return places
