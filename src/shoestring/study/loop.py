"""The loop: decide, check, record, buy, and wait for receipts.

Recorded first, bought second: a crash leaves an open order, never a lost bill. The wall is a moment on the runner's
clock: the running steps together may use what is neither spent nor needed, and when that moment comes they are cut off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from shoestring.core.books import OpenOrder
from shoestring.core.decision import Decision, Finish, Train, Wait
from shoestring.core.entries import Entry, Lost, Note
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.errors import Conflict, DecisionError
from shoestring.runners.blas import OneThread
from shoestring.runners.runner import Runner

Reason = Literal["budget", "policy", "deadline", "stopped", "failing"]
_LOOK_UP_S = 0.2  # how often a stop is looked for while nothing happens
_FIRST_FAILURES, _FAILURES = 3, 10  # so many times one failure, before anything has worked and after, end a run
_WORTH_NOTING_S = 0.001


class Append(Protocol):
    def __call__(self, ledger: Ledger, *entries: Entry) -> Ledger: ...


@dataclass(frozen=True)
class Outcome:
    ledger: Ledger
    reason: Reason
    text: str = ""


def run(
    ledger: Ledger,
    policy: Policy,
    runner: Runner,
    append: Append,
    *,
    refresh: Callable[[Ledger], Ledger] = lambda ledger: ledger,
    deadline_at: float = math.inf,
    should_stop: Callable[[], bool] = lambda: False,
    observe: Callable[[Ledger, Entry | None], None] = lambda ledger, entry: None,
    cut_off: Mapping[int, float] | None = None,
) -> Outcome:
    """Spend the budget. `cut_off`: {order: seconds} of steps that a crash interrupted, to be charged now."""

    def record(ledger: Ledger, *entries: Entry) -> Ledger:
        ledger = append(ledger, *entries)
        for entry in entries:
            observe(ledger, entry)
        return ledger

    def end(reason: Reason, text: str = "") -> Outcome:
        if thinking.pending_s > _WORTH_NOTING_S and ledger.budget.unit != "epochs":
            note = Note(topic="thinking", facts={"seconds": thinking.pending_s})
            return Outcome(record(ledger, note), reason, text)
        return Outcome(ledger, reason, text)

    ledger = record(ledger, *_lost(ledger, runner.start(ledger), cut_off or {}))
    for opened in _mine(ledger):  # a check that was made before the last stop is not made again
        going_on = replace(opened.order, check=opened.order.check and not opened.checked)
        runner.submit(going_on, ledger.trials[going_on.trial].held)
    forgiven = ledger.books.failures_in_a_row  # of the last run: the code may have been repaired since
    thinking, declined_at, one_thread = _Thinking(runner.simulated), 0, OneThread()
    while True:
        if should_stop():
            return end("stopped")
        if (late := runner.now() >= deadline_at) and not _mine(ledger):
            return end("deadline")
        has_room = len(_mine(ledger)) < runner.workers
        wall = _wall(ledger, runner, thinking.pending_s)
        in_time = runner.simulated or runner.now() + thinking.longest_s < wall  # running steps must be cut off in time
        if has_room and in_time and not late and len(ledger) != declined_at:
            with one_thread, thinking.measured():
                decision = policy.decide(ledger, ledger.decision_rng())
            if isinstance(decision, Train):
                order_s = thinking.pending_s
                if order := ledger.accept(
                    decision, at=runner.now(), thinking_s=order_s, can_check=runner.can_save is True
                ):
                    try:
                        ledger = record(ledger, order)
                    except Conflict:  # somebody has asked, told, enqueued or amended: decide again on that
                        ledger = refresh(ledger)
                        continue
                    thinking.pending_s -= order_s
                    runner.submit(order, ledger.trials[order.trial].held)
                    continue
            if not _mine(ledger):
                reason, text = _ending(ledger, policy, decision)
                return end(reason, text)
            declined_at = len(ledger)  # ask again after the next receipt, as a resumed study would
        until = min(wall, deadline_at)
        with thinking.paused():
            news = runner.wait(until if runner.simulated else min(until, runner.now() + _LOOK_UP_S))
        if not news and runner.now() >= until:
            news = runner.interrupt("the deadline has come" if until == deadline_at else "the budget is spent")
        if news:
            ledger = record(ledger, *news)
        else:
            observe(ledger, None)
        if ledger.books.failures_in_a_row > forgiven and (text := _failing(ledger)):
            return end("failing", text)


class _Thinking:
    """Time that is neither a runner's nor charged yet: the policy's, and that of keeping the books."""

    def __init__(self, simulated: bool) -> None:
        self.pending_s = self.longest_s = 0.0
        self._simulated = simulated
        self._since = time.perf_counter()

    @contextmanager
    def measured(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._count()
        if not self._simulated:
            self.longest_s = max(self.longest_s, time.perf_counter() - began)

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._count()
        yield
        self._since = time.perf_counter()

    def _count(self) -> None:
        now = time.perf_counter()
        self.pending_s += 0.0 if self._simulated else now - self._since
        self._since = now


def _mine(ledger: Ledger) -> list[OpenOrder]:
    """Open orders that a runner is to carry out; those that somebody asked for are theirs."""
    return [opened for opened in ledger.open_orders.values() if not opened.order.asked]


def _ending(ledger: Ledger, policy: Policy, decision: Decision) -> tuple[Reason, str]:
    """Nothing is under way and nothing was bought: why the run ends here."""
    if isinstance(decision, Wait):
        if ledger.open_orders:
            return "policy", "it waits for orders that were asked for elsewhere"
        raise DecisionError(f"{policy.name} waits, but no order is open: nothing would ever change")
    return ("policy", decision.why) if isinstance(decision, Finish) else ("budget", "")


def _wall(ledger: Ledger, runner: Runner, pending_s: float) -> float:
    """The moment at which the running steps will together have used up what is left.

    n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t; that equals what is left at t = (left + Σsᵢ) / n.
    """
    rate = ledger.budget.per_second(ledger.workers)
    running = runner.running()
    if rate == 0.0 or not running:
        return math.inf
    left_s = max(0.0, (ledger.budget.total - ledger.spent) / rate - pending_s)
    return (left_s + math.fsum(running.values())) / len(running)


def _lost(ledger: Ledger, survivors: Mapping[int, int], cut_off: Mapping[int, float]) -> list[Lost]:
    """What went with the process that was here before: live trials, and the time of the steps it was at.

    A trial that is complete is not missed: nothing more of it can be bought.
    """
    seconds = {o.order.trial: cut_off.get(number, 0.0) for number, o in ledger.open_orders.items()}
    return [
        Lost(trial=t.number, held=held, seconds=seconds.get(t.number, 0.0), why="the process that ran the study ended")
        for t in ledger.trials
        if t.steps < t.limit
        and (t.open_order is None or not ledger.orders[t.open_order].asked)  # that one is somebody else's
        and ((held := min(survivors.get(t.number, 0), t.steps)) != t.held or seconds.get(t.number, 0.0) > 0)
    ]


def _failing(ledger: Ledger) -> str:
    """The one failure that nearly everything ends with: a hundred more of it would only cost money."""
    books = ledger.books
    limit = _FAILURES if books.ok_receipts else _FIRST_FAILURES
    return books.last_failure if books.failures_in_a_row >= limit else ""
