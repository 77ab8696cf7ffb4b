"""What the loop asks of a runner.

A runner has a clock of its own (real or simulated) and works on at most `workers` orders at a time. Everything it has to
say comes out of `wait` as entries for the ledger: receipts, losses of state, notes. It never sees the policy.

A worker that dies is not a failed trial: the runner says `Lost` (with `death`, and the seconds of the step under way),
forgets the order, and is given it again by the loop as long as the books leave it open. What was not bought is not told:
a value of a step whose validation nobody ordered would be a better best than was paid for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, TypeGuard

from shoestring.core.ledger.budget import MOST_SECONDS, PricedSeconds
from shoestring.core.ledger.entries import Cost, Lost, Note, Order, Receipt, Status
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.running_totals import to_exact, to_float
from shoestring.core.space.space import Config
from shoestring.core.values.text import bounded

News = Receipt | Lost | Note
NO_METRICS: Mapping[str, float] = {}
LIVE_UNMEASURED = 8  # frozen trials kept alive when their size is not known, and they cannot simply be saved


class Clock:
    """Seconds during which the study was being run: it stands still between a stop and the next start."""

    def __init__(self) -> None:
        self._zero = time.monotonic()

    def start(self, ledger: Ledger) -> None:
        self._zero = time.monotonic() - ledger.books.clock

    def now(self) -> float:
        return time.monotonic() - self._zero


class RunningSteps(dict[int, float]):
    """{order: since when its present step has been running}, and the moment at which they will have used up what is left.

    For runners with a thousand workers, since the loop asks after every receipt, and for those whose workers have prices of
    their own. Change it by `begin` and `end` only.
    """

    __slots__ = ("_factors", "_pace", "_priced", "_sum")

    def __init__(self) -> None:
        super().__init__()
        self._factors: dict[int, float] = {}  # price factors by order
        self._sum = self._priced = self._pace = 0  # exact: of moments, of factors times moments, of factors

    def begin(self, number: int, since: float, price_factor: float = 1.0) -> None:
        if number in self:  # never missing for a moment: a heartbeat may look
            self._add(self[number], self._factors[number], -1)
        self[number], self._factors[number] = since, price_factor
        self._add(since, price_factor, 1)

    def end(self, number: int) -> None:
        self._add(self.pop(number), self._factors.pop(number), -1)

    def wall(self, left_s: float, *, priced: bool) -> float:
        """n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t, which is left_s at t = (left_s + Σsᵢ) / n.

        `priced`: seconds are paid for, a second of step i costs fᵢ, and t = (left_s + Σfᵢsᵢ) / Σfᵢ.
        """
        began, pace = (self._priced, to_float(self._pace)) if priced else (self._sum, float(len(self)))
        return (left_s + to_float(began)) / pace if pace else math.inf

    def price_factor(self, number: int) -> float:
        return self._factors.get(number, 1.0)

    def _add(self, since: float, price_factor: float, sign: int) -> None:
        self._sum += sign * to_exact(since)
        self._priced += sign * to_exact(price_factor * since)
        self._pace += sign * to_exact(price_factor)


def seconds_under_way(running: Mapping[int, float], now: float) -> dict[int, float]:
    """{order: seconds of its present step, with their price}; may be called from another thread."""
    factor = running.price_factor if isinstance(running, RunningSteps) else lambda number: 1.0
    return {number: PricedSeconds(max(0.0, now - since), factor(number)) for number, since in dict(running).items()}


class Runner(Protocol):
    @property
    def workers(self) -> int:
        """How many orders it can work on now; on a cluster that changes as machines come and go."""
        ...

    simulated: bool  # a simulated clock does not run while the policy thinks

    can_save: bool | None  # whether the training code can freeze to disk; None: not known before its first step
    check_start_s: float  # how long it takes until a copy of a trial can begin a step; 0 in this process

    @property
    def freezing_s(self) -> float:
        """How long `freeze` would take."""
        ...

    def now(self) -> float:
        """Seconds on the runner's clock; never runs backwards."""
        ...

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Get ready to go on with this study; returns {trial: step} for every trial that can go on from a step > 0."""
        ...

    def submit(self, order: Order, held: int, former: Sequence[Config] = ()) -> None:
        """Begin an order from step `held` of its trial. An order already under way is left alone.

        `former` are the configs of the trial's finished steps, if they differ: those that must be run again, because
        their state was lost, are run with what they had (see `config_at`).
        """
        ...

    def wait(self, until: float) -> list[News]:
        """Block until there is news or the clock reaches `until` (then the list is empty)."""
        ...

    def running(self) -> Mapping[int, float]:
        """{order: clock time since which its present step has been running}. May be called from another thread.

        A runner of very many workers, or of workers at several prices, gives `RunningSteps`.
        """
        ...

    def interrupt(self, why: str) -> list[News]:
        """Cut all running steps off, at the wall: their receipts, with status `interrupted`; a note `released` for an
        order of which no step was under way."""
        ...

    def freeze(self) -> float:
        """Save what would otherwise be saved by `close`, at the study's expense: the seconds that it took."""
        ...

    def close(self, freeze: bool = True) -> None:
        """Freeze what can be frozen (unless told otherwise) and stop. A later `start` tells what survived."""
        ...


def is_runner(given: object) -> TypeGuard[Runner]:
    """Whether this object, given where training code might be, is a runner."""
    return not isinstance(given, type) and all(hasattr(given, part) for part in ("start", "submit", "wait"))


def config_at(step: int, order: Order, former: Sequence[Config]) -> Config:
    """The config that this step of an order is trained with: its own if it was trained before, else the order's."""
    return former[step - 1] if step <= len(former) else order.config


def note_end(order: Order, step: int, seconds: float, price_factor: float = 1.0) -> Note:
    """The training code came to its own end after `step`, `seconds` after its last receipt."""
    facts = {"order": order.number, "trial": order.trial, "step": step, "seconds": max(0.0, seconds)}
    return Note(topic="ended", facts=facts | say_price(price_factor))


def say_price(price_factor: float) -> dict[str, float]:
    """As a fact of a note, where it says something."""
    return {} if price_factor == 1.0 else {"price_factor": price_factor}


def note_release(order: Order, why: str) -> Note:
    """No step of the order was under way: it is closed, and nothing is charged."""
    return Note(topic="released", facts={"order": order.number, "why": why})


def bought_value(order: Order, step: int, value: float | None) -> float | None:
    """A value that nobody bought is not looked at; one that is no number says that the step diverged, bought or not."""
    return None if value is None or (math.isfinite(value) and not order.validates(step)) else value


def write_broken_receipt(
    order: Order,
    step: int,
    status: Literal["failed", "interrupted"],
    text: str,
    cost: Cost,
    *,
    at: float,
    saved: int,
    worker: str = "",
    price_factor: float = 1.0,
) -> Receipt:
    """The receipt of a step that did not come to its end; it closes the order."""
    paid = _begin_receipt(order, step, cost, at, saved, worker, price_factor)
    return replace(paid, status=status, text=bounded(text))


def write_receipt(
    order: Order,
    step: int,
    value: float | None,
    cost: Cost,
    *,
    at: float,
    saved: int = 0,
    worker: str = "",
    price_factor: float = 1.0,
    metrics: Mapping[str, float] = NO_METRICS,
) -> Receipt:
    """The receipt of a step that was carried out: `ok`, or `diverged` when an ordered value is missing or no number."""
    text, value = "", bought_value(order, step, value)
    if value is None and order.validates(step):
        text = "no value was reported"
    elif value is not None and not math.isfinite(value):
        text = f"the value is {value}"
    status: Status = "diverged" if text else "ok"
    paid = _begin_receipt(order, step, cost, at, saved, worker, price_factor)
    return replace(paid, value=value, status=status, text=text, metrics=metrics)


def _begin_receipt(
    order: Order, step: int, cost: Cost, at: float, saved: int, worker: str, price_factor: float
) -> Receipt:
    about: dict[str, Any] = {"order": order.number, "trial": order.trial, "step": step, "saved": saved}
    return Receipt(cost=clip_cost(cost), at=at, worker=worker, price_factor=price_factor, **about)


def clip_cost(cost: Cost) -> Cost:
    """A clock that jumped must never give money back, and no sum of costs may be without end."""
    setup, train, validate = (min(s, MOST_SECONDS) if s > 0 else 0.0 for s in (cost.setup, cost.train, cost.validate))
    return Cost(setup=setup, train=train, validate=validate)
