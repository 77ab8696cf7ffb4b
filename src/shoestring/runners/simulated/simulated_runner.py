"""The simulated runner: recorded or made-up curves in the real loop, with a clock that jumps to the next receipt.

A study of hours is simulated in seconds, with any number of workers, which may differ in speed and price. Steps wait on a heap,
sorted by the time of their end (at equal times the older order comes first), and every time is the one before plus a recorded
cost. So a study that was interrupted and resumed has the same times as one that was not.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from shoestring.core.ledger.entries import Cost, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import TrainingEnd
from shoestring.core.ledger.order_closing import OpenOrders, receipt_closes
from shoestring.core.space.space import Config
from shoestring.runners.runner import RunnerEvent, RunningSteps, clip_cost, write_incomplete_receipt, write_receipt


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """The outcome of one step.

    Attributes
    ----------
    value : float or None
        The value; None or nan: the step diverged.
    cost : Cost
        What the step cost, in seconds.
    failure : str
        The text of a failure, if the step failed.
    """

    value: float | None
    cost: Cost
    failure: str = ""


class Source(Protocol):
    """Where simulated curves come from: a recorded table, or a class that computes them.

    A class of your own needs this one method.
    """

    def step(self, config: Config, step: int) -> StepOutcome | None:
        """Return the outcome of training a configuration by one step.

        Parameters
        ----------
        config : Config
            The configuration.
        step : int
            The step to train, from 1; the steps before it are done.

        Returns
        -------
        StepOutcome or None
            The outcome; None if the curve of this configuration ends before the step.
        """
        ...


@dataclass(frozen=True, slots=True)
class SimulatedWorker:
    """A worker with a speed and a price: a step takes its seconds / `speed`, and a second costs `price_factor` times the rate."""

    name: str
    speed: float = 1.0
    price_factor: float = 1.0


_PLAIN_WORKER = SimulatedWorker("")  # every worker, if only their number is given


class SimulatedRunner:
    """Reads curves from a source, on a clock that jumps.

    Parameters
    ----------
    source : Source
        Where the curves come from, such as a `Table`.
    workers : int or sequence of SimulatedWorker
        The number of workers, or a list of them. With a list, the first free worker gets the next order, and receipts name it.
    """

    simulated = True
    check_start_s = 0.0
    saving_reserve_s = 0.0
    can_save: bool | None = False  # nothing is ever lost, so there is nothing to check

    def __init__(self, source: Source, workers: int | Sequence[SimulatedWorker] = 1) -> None:
        self.source = source
        self._named_workers = () if isinstance(workers, int) else tuple(workers)
        self.workers = workers if isinstance(workers, int) else len(self._named_workers)
        self._free = list(range(len(self._named_workers)))  # a heap
        self._worker_of: dict[int, int] = {}  # order -> the number of its worker
        self._clock = 0.0
        self._orders: dict[int, Order] = {}
        self._resumed_since: dict[int, float] = {}  # order that was open at the start -> when its present step began
        self._running = RunningSteps()
        self._due: list[tuple[float, int, int, StepOutcome | None]] = []  # (clock, order, step, outcome)

    def now(self) -> float:
        return self._clock

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        self._clock = ledger.state.clock
        # An open order continues from its last receipt, which may lie before the clock when other workers continued meanwhile.
        self._resumed_since = {number: open_order.since for number, open_order in ledger.open_orders.items()}
        if self._named_workers:
            self._worker_of = assign_workers(ledger, len(self._named_workers))
            self._free = [n for n in range(len(self._named_workers)) if n not in self._worker_of.values()]
        return {trial.number: trial.resumable_step for trial in ledger.trials}

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        if order.number in self._orders:
            return
        self._orders[order.number] = order
        if self._named_workers and order.number not in self._worker_of:
            self._worker_of[order.number] = heapq.heappop(self._free)
        self._schedule(order, resumable_step + 1, self._resumed_since.pop(order.number, self._clock))

    def wait(self, until: float) -> list[RunnerEvent]:
        if not self._due or self._due[0][0] > until:
            if math.isfinite(until):
                self._clock = max(self._clock, until)
            return []
        at, number, step, outcome = heapq.heappop(self._due)
        self._clock = max(self._clock, at)
        order, worker = self._orders[number], self._worker(number)
        if outcome is None:
            self._forget(number)
            return [TrainingEnd(order=number, trial=order.trial, step=step - 1).to_note()]
        if outcome.failure:
            self._forget(number)
            broken = write_incomplete_receipt(
                order, step, "failed", outcome.failure, outcome.cost, at=at, saved_step=step - 1
            )
            return [_add_worker(broken, worker)]
        receipt = _add_worker(write_receipt(order, step, outcome.value, outcome.cost, at=at, saved_step=step), worker)
        if receipt_closes(receipt, order):
            self._forget(number)
        else:
            self._schedule(order, step + 1, at)
        return [receipt]

    def running(self) -> Mapping[int, float]:
        return self._running

    def interrupt(self, why: str) -> list[RunnerEvent]:
        cut: list[RunnerEvent] = []
        for _, number, step, _ in sorted(self._due, key=lambda due: due[1]):
            order, cost = self._orders[number], Cost(train=self._clock - self._running[number])
            broken = write_incomplete_receipt(
                order, step, "interrupted", why, cost, at=self._clock, saved_step=step - 1
            )
            cut.append(_add_worker(broken, self._worker(number)))
            self._forget(number)
        self._due.clear()
        return cut

    def pause(self) -> float:
        return 0.0

    def close(self, pause: bool = True) -> None:
        pass

    def _schedule(self, order: Order, step: int, since: float) -> None:
        worker, outcome = self._worker(order.number), self.source.step(order.config, step)
        if outcome is not None and worker.speed != 1.0:
            outcome = replace(outcome, cost=_slow_down(outcome.cost, worker.speed))
        self._running.begin(order.number, since, worker.price_factor)
        seconds = clip_cost(outcome.cost).total if outcome else 0.0
        heapq.heappush(self._due, (since + seconds, order.number, step, outcome))

    def _forget(self, number: int) -> None:
        del self._orders[number]
        self._running.end(number)
        if self._named_workers:
            heapq.heappush(self._free, self._worker_of.pop(number))

    def _worker(self, number: int) -> SimulatedWorker:
        return self._named_workers[self._worker_of[number]] if self._named_workers else _PLAIN_WORKER


def _add_worker(receipt: Receipt, worker: SimulatedWorker) -> Receipt:
    """Return the receipt with the name and the price of its worker, if it has a name."""
    if worker is _PLAIN_WORKER:
        return receipt
    return replace(receipt, worker=worker.name, price_factor=worker.price_factor)


def _slow_down(cost: Cost, speed: float) -> Cost:
    return Cost(setup=cost.setup / speed, train=cost.train / speed, validate=cost.validate / speed)


def assign_workers(ledger: Ledger, workers: int) -> dict[int, int]:
    """Return {open order: number of its worker}. Each order went to the first worker that was free when it was placed."""
    open_orders, free, worker_of = OpenOrders(), list(range(workers)), dict[int, int]()
    for entry in ledger.entries():
        closed = open_orders.absorb(entry)
        if closed is not None and closed.number in worker_of:
            heapq.heappush(free, worker_of.pop(closed.number))
        elif isinstance(entry, Order) and not entry.is_external and free:
            worker_of[entry.number] = heapq.heappop(free)
    return worker_of
