"""A runner under test with a ledger, and helpers for the tests of the process and the command runner."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.runners.command.command_state import started_at
from shoestring.runners.runner import Runner

DEADLINE_S = 60.0


def fresh_ledger(space: Space, max_steps: int = 10) -> Ledger:
    definition = StudyDefinition(
        space=space, budget=Budget("1000 epochs"), policy="random_search", settings={}, seed=1, max_steps=max_steps
    )
    return Ledger([definition])


class Bench:
    """A runner with a ledger, which refuses events that break its rules. Orders of lost trials are submitted again."""

    def __init__(self, runner: Any, ledger: Ledger, config: Any) -> None:
        self.runner, self.ledger, self.config = runner, ledger, config
        self.survivors = runner.start(self.ledger)
        for trial in self.ledger.trials:
            if trial.resumable_step != self.survivors.get(trial.number, 0):
                self.ledger = self.ledger.append(
                    StateLoss(trial=trial.number, resumable_step=self.survivors.get(trial.number, 0))
                )

    def submit(self, until: int, trial: int = 0, config: Any = None, **more: Any) -> Order:
        order = Order(number=len(self.ledger.orders), trial=trial, config=config or self.config, until=until, **more)
        self.ledger = self.ledger.append(order)
        self._submit(order)
        return order

    def wait(self, enough: Callable[[], bool] | None = None) -> list[Entry]:
        """Wait until no order is open, or until `enough`; return the entries since then."""
        first, deadline = len(self.ledger), time.monotonic() + DEADLINE_S
        while not (enough() if enough else not self.ledger.open_orders):
            self.take(self.runner.wait(self.runner.now() + 1.0))
            assert time.monotonic() < deadline, "the runner hangs"
        return self.ledger.entries(first)

    def take(self, events: Any) -> list[Any]:
        for entry in events:
            self.ledger = self.ledger.append(entry)
        for loss in (entry for entry in events if isinstance(entry, StateLoss)):
            number = self.ledger.trials[loss.trial].open_order
            if number is not None:
                self._submit(self.ledger.orders[number])
        return list(events)

    def train(self, until: int, **more: Any) -> list[Entry]:
        self.submit(until, **more)
        return self.wait()

    def _submit(self, order: Order) -> None:
        runner: Runner = self.runner
        runner.submit(order, self.ledger.trials[order.trial].resumable_step, self.ledger.former_configs(order.trial))


def summarise(entries: list[Entry]) -> list[Any]:
    """Return receipts as (step, value, status), losses as ("lost", resumable_step), notes as (topic, step)."""
    summaries: list[Any] = []
    for entry in entries:
        if isinstance(entry, Receipt):
            summaries.append((entry.step, entry.value, entry.status))
        elif isinstance(entry, StateLoss):
            summaries.append(("lost", entry.resumable_step))
        elif isinstance(entry, Note):
            summaries.append((entry.topic, entry.facts.get("step")))
    return summaries


def receipts(entries: list[Entry]) -> list[Receipt]:
    return [entry for entry in entries if isinstance(entry, Receipt)]


def losses(entries: list[Entry]) -> list[StateLoss]:
    return [entry for entry in entries if isinstance(entry, StateLoss)]


def checks(entries: list[Entry]) -> list[Note]:
    return [entry for entry in entries if isinstance(entry, Note) and entry.topic == "check"]


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while started_at(pid):
        assert time.monotonic() < deadline, f"process {pid} is still running"
        time.sleep(0.01)


def pid_in(file: Path) -> int:
    """Return the process number in this file, as soon as it is there."""
    deadline = time.monotonic() + DEADLINE_S
    while not file.exists() or not file.read_text().strip():
        assert time.monotonic() < deadline, f"{file} was not written"
        time.sleep(0.01)
    return int(file.read_text())


def list_workers() -> list[str]:
    """Return the worker processes of this process that are still there; other tests may leave joblib's own."""
    return [str(process) for process in multiprocessing.active_children() if process.name == "shoestring-worker"]
