"""The loop: decide, check, record, buy, and wait for receipts.

Recorded first, bought second: a crash leaves an open order, never a lost bill. The wall is a moment on the runner's
clock: the running steps together may use what is neither spent nor needed, and when that moment comes they are cut off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from shoestring.core.decision import Decision, Finish, Train, Wait
from shoestring.core.entries import Entry, Lost
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.errors import DecisionError
from shoestring.runners.blas import OneThread
from shoestring.runners.runner import Runner

Reason = Literal["budget", "policy", "deadline", "stopped", "failing"]
_LOOK_UP_S = 0.2  # how often a stop is looked for while nothing happens
_FAILING = 3  # so many first trials with one and the same failure end a study


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

    ledger = record(ledger, *_lost(ledger, runner.start(ledger), cut_off or {}))
    for opened in ledger.open_orders.values():
        runner.submit(opened.order, ledger.trials[opened.order.trial].held)
    thinking_s, declined_at, one_thread = 0.0, 0, OneThread()
    while True:
        if should_stop():
            return Outcome(ledger, "stopped")
        if (late := runner.now() >= deadline_at) and not ledger.open_orders:
            return Outcome(ledger, "deadline")
        if not late and len(ledger.open_orders) < runner.workers and len(ledger) != declined_at:
            began = time.perf_counter()
            with one_thread:
                decision = policy.decide(ledger, ledger.decision_rng())
            thinking_s += 0.0 if runner.simulated else time.perf_counter() - began
            if isinstance(decision, Train):
                order = ledger.accept(
                    decision, at=runner.now(), thinking_s=thinking_s, can_check=runner.can_save is True
                )
                if order is not None:
                    ledger = record(ledger, order)
                    runner.submit(order, ledger.trials[order.trial].held)
                    thinking_s = 0.0
                    continue
            if not ledger.open_orders:
                return _ending(ledger, policy, decision)
            declined_at = len(ledger)  # ask again after the next receipt, as a resumed study would
        wall = min(_wall(ledger, runner), deadline_at)
        news = runner.wait(wall if runner.simulated else min(wall, runner.now() + _LOOK_UP_S))
        if not news and runner.now() >= wall:
            news = runner.interrupt("the deadline has come" if wall == deadline_at else "the budget is spent")
        if news:
            ledger = record(ledger, *news)
        else:
            observe(ledger, None)
        if text := _failing(ledger):
            return Outcome(ledger, "failing", text)


def _ending(ledger: Ledger, policy: Policy, decision: Decision) -> Outcome:
    """Nothing is open and nothing was bought: why the study ends here."""
    if isinstance(decision, Wait):
        raise DecisionError(f"{policy.name} waits, but no order is open: nothing would ever change")
    return Outcome(ledger, "policy", decision.why) if isinstance(decision, Finish) else Outcome(ledger, "budget")


def _wall(ledger: Ledger, runner: Runner) -> float:
    """The moment at which the running steps will together have used up what is left.

    n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t; that equals what is left at t = (left + Σsᵢ) / n.
    """
    rate = ledger.budget.per_second(ledger.workers)
    running = runner.running()
    if rate == 0.0 or not running:
        return math.inf
    left_s = max(0.0, ledger.budget.total - ledger.spent) / rate
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
        and ((held := min(survivors.get(t.number, 0), t.steps)) != t.held or seconds.get(t.number, 0.0) > 0)
    ]


def _failing(ledger: Ledger) -> str:
    """The failure that all of the first trials ended with, when nothing has ever worked."""
    trials = ledger.trials[:_FAILING]
    if ledger.books.ok_receipts or len(trials) < _FAILING or not all(t.failure for t in trials):
        return ""
    last_lines = {t.failure.strip().splitlines()[-1] for t in trials}
    return trials[0].failure if len(last_lines) == 1 else ""
