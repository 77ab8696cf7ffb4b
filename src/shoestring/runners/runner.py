"""The interface between the loop and a runner, and the parts that runners share.

A runner has a clock of its own (real or simulated) and works on at most `workers` orders at a time. It reports through `wait`
and `interrupt`, as entries for the ledger: receipts, losses, notes. It never sees the policy.

A worker that dies is not a failed trial. The runner reports `StateLoss` (with `death`, and the seconds of the present step) and
forgets the order; the loop submits it again as long as it is open in the ledger.

A value that was not ordered is not reported: the value of a step that was not to be validated could be a new best
value for which the study did not pay.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

from shoestring.core.ledger.budget import MAX_SECONDS, PricedSeconds
from shoestring.core.ledger.entries import Cost, Note, Order, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import OrderRelease, TrainingEnd
from shoestring.core.ledger.running_totals import to_exact, to_float
from shoestring.core.space.space import Config
from shoestring.core.values.text import shorten

RunnerEvent = Receipt | StateLoss | Note
NO_METRICS: Mapping[str, float] = {}
CUTOFF_DELAY_S = (
    0.1  # how long a runner that keeps the cutoff waits after it, so that the loop can end the steps in order
)
DEFAULT_LIVE_TRIALS = 8  # paused trials kept alive where memory cannot be measured, or where trials cannot be saved


class Runner(Protocol):
    """Carries out orders. Pass one to `tune(…, runner=…)` to train elsewhere than the runners of this package do.

    Attributes
    ----------
    simulated : bool
        Whether the clock is simulated; such a clock does not run while the policy decides.
    can_save : bool or None
        Whether the training code can be saved to disk; None if that is not known before its first step.
    check_start_s : float
        How long it takes until a copy of a trial can begin a step; 0 in this process.
    """

    @property
    def workers(self) -> int:
        """The number of orders that it can carry out now; on a cluster this changes as machines come and go."""
        ...

    simulated: bool
    can_save: bool | None
    check_start_s: float

    @property
    def saving_reserve_s(self) -> float:
        """The seconds to reserve for `pause`."""
        ...

    def now(self) -> float:
        """Return the time on the runner's clock, which never runs backwards.

        Returns
        -------
        float
            Seconds. `start` sets the clock to the time of the study's newest entry, so the time between two runs does not
            count.
        """
        ...

    def start(self, ledger: Ledger) -> Mapping[int, int]:
        """Prepare to begin or continue this study.

        Parameters
        ----------
        ledger : Ledger
            The study as it was stored.

        Returns
        -------
        mapping of int to int
            {trial: step} for every trial that can be resumed from a step above 0.
        """
        ...

    def submit(self, order: Order, resumable_step: int, former_configs: Sequence[Config] = ()) -> None:
        """Begin an order. An order that is already being carried out is left alone.

        Parameters
        ----------
        order : Order
            What to train.
        resumable_step : int
            The step of its trial to continue from.
        former_configs : sequence of configs
            The configs of the trial's finished steps, if they differ. Steps that must be trained again because their state was
            lost are trained with the config that they had (see `config_at`).
        """
        ...

    def wait(self, until: float) -> list[RunnerEvent]:
        """Block until there are events or the clock reaches `until`.

        Parameters
        ----------
        until : float
            A moment on the runner's clock.

        Returns
        -------
        list of Receipt, StateLoss or Note
            What happened; empty when the clock reached `until`.
        """
        ...

    def running(self) -> Mapping[int, float]:
        """Return which orders are being carried out. Another thread may call this at any time.

        Returns
        -------
        mapping of int to float
            {number of the order: the moment on the runner's clock at which its current step began}.
        """
        ...

    def interrupt(self, why: str) -> list[RunnerEvent]:
        """End all running steps, at the budget limit.

        Parameters
        ----------
        why : str
            The reason, for the ledger.

        Returns
        -------
        list of Receipt, StateLoss or Note
            A receipt with status `interrupted` for each running step; a note `released` for each order that has no running step.
        """
        ...

    def pause(self) -> float:
        """Save the trials that `close` would save, while the time for it is still charged to the study.

        Returns
        -------
        float
            The seconds that it took.
        """
        ...

    def close(self, pause: bool = True) -> None:
        """Stop. A later `start` returns what can be resumed.

        Parameters
        ----------
        pause : bool
            Whether to save the trials that can be saved; not when another process has taken the study over.
        """
        ...


@runtime_checkable
class KeepsCutoff(Protocol):
    """A runner that ends steps at the cutoff by itself, also while the loop is stopped, or waits for a store."""

    def set_cutoff(self, moment: float, why: str) -> None:
        """End the steps `CUTOFF_DELAY_S` after this moment, unless `interrupt` ends them, or another moment is set, before.

        Parameters
        ----------
        moment : float
            A moment on the runner's clock.
        why : str
            The reason, for the ledger.
        """
        ...


def take_notes(runner: Runner) -> list[Note]:
    """Return what a runner of this package has to record about its checkpoints; nothing for a runner without `checkpoints`."""
    checkpoints: Any = getattr(runner, "checkpoints", None)
    return list(checkpoints.take_notes()) if hasattr(checkpoints, "take_notes") else []


def is_runner(given: object) -> TypeGuard[Runner]:
    """Return whether an object is a runner; a class of training code is not one, whatever its methods are."""
    return not isinstance(given, type) and all(hasattr(given, part) for part in ("start", "submit", "wait"))


# parts of runners ----------------------------------------------------------------------------------------------------


class Clock:
    """A clock of the seconds during which the study was run: it stands still between a stop and the next start."""

    def __init__(self) -> None:
        self._zero = time.monotonic()

    def start(self, ledger: Ledger) -> None:
        self._zero = time.monotonic() - ledger.state.clock

    def now(self) -> float:
        return time.monotonic() - self._zero

    def to_monotonic(self, moment: float) -> float:
        """Return the moment of the machine's monotonic clock, which all its processes share."""
        return moment + self._zero

    def from_monotonic(self, moment: float) -> float:
        return moment - self._zero


class RunningSteps(dict[int, float]):
    """A mapping from each order to the moment at which its present step began, with running sums for `cutoff`.

    The loop needs the cutoff after every receipt, and with a thousand workers it would take long to compute it from all moments.
    The mapping also holds the price factors of workers that differ in price. Change it only with `begin` and `end`.
    """

    __slots__ = ("_factor_sum", "_factors", "_priced_sum", "_sum")

    def __init__(self) -> None:
        super().__init__()
        self._factors: dict[int, float] = {}  # price factors by order
        self._sum = 0  # exact sum of the moments
        self._priced_sum = 0  # exact sum of factor times moment
        self._factor_sum = 0  # exact sum of the factors

    def begin(self, number: int, since: float, price_factor: float = 1.0) -> None:
        if number in self:  # replaced, not removed first: another thread may read it
            self._add(self[number], self._factors[number], -1)
        self[number], self._factors[number] = since, price_factor
        self._add(since, price_factor, 1)

    def end(self, number: int) -> None:
        self._add(self.pop(number), self._factors.pop(number), -1)

    def cutoff(self, left_s: float, *, priced: bool, new: int = 0, now: float = 0.0) -> float:
        """Return the moment at which the running steps, and `new` ones that begin `now`, will have used up `left_s` seconds.

        n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t, which is left_s at t = (left_s + Σsᵢ) / n.

        `priced`: a second of step i costs fᵢ, and t = (left_s + Σfᵢsᵢ) / Σfᵢ.
        """
        began, rate = (self._priced_sum, to_float(self._factor_sum)) if priced else (self._sum, float(len(self)))
        return (left_s + to_float(began) + new * now) / (rate + new) if rate + new else math.inf

    def price_factor(self, number: int) -> float:
        return self._factors.get(number, 1.0)

    def _add(self, since: float, price_factor: float, sign: int) -> None:
        self._sum += sign * to_exact(since)
        self._priced_sum += sign * to_exact(price_factor * since)
        self._factor_sum += sign * to_exact(price_factor)


def seconds_under_way(running: Mapping[int, float], now: float) -> dict[int, float]:
    """Return {order: seconds of its present step, with their price}. May be called from another thread."""
    factor = running.price_factor if isinstance(running, RunningSteps) else lambda number: 1.0
    return {number: PricedSeconds(max(0.0, now - since), factor(number)) for number, since in dict(running).items()}


class WaitingOrders:
    """Orders that wait for a free worker: a study that had more workers before leaves more orders open."""

    def __init__(self) -> None:
        self._by_number: dict[int, tuple[Order, int, Sequence[Config]]] = {}

    def __iter__(self) -> Iterator[tuple[Order, int, Sequence[Config]]]:
        """Iterate over what was submitted: (order, resumable step, former configs)."""
        return iter(list(self._by_number.values()))

    def put(self, order: Order, resumable_step: int, former_configs: Sequence[Config]) -> None:
        """Add an order, or replace it when its trial was lost in the meantime."""
        self._by_number[order.number] = (order, resumable_step, former_configs)

    def remove(self, order: Order) -> None:
        del self._by_number[order.number]

    def release(self, why: str) -> list[RunnerEvent]:
        """Remove all of them; return the notes that release them."""
        released: list[RunnerEvent] = [note_release(order, why) for order, _, _ in self]
        self.clear()
        return released

    def clear(self) -> None:
        self._by_number.clear()


# events --------------------------------------------------------------------------------------------------------------


def config_at(step: int, order: Order, former_configs: Sequence[Config]) -> Config:
    """Return the config that this step is trained with: the one it had if it was trained before, else the order's."""
    return former_configs[step - 1] if step <= len(former_configs) else order.config


def note_end(order: Order, step: int, seconds: float, price_factor: float = 1.0) -> Note:
    """Return the note that the training code came to its own end after `step`, `seconds` after its last receipt."""
    ended = TrainingEnd(
        order=order.number, trial=order.trial, step=step, seconds=max(0.0, seconds), price_factor=price_factor
    )
    return ended.to_note()


def note_release(order: Order, why: str) -> Note:
    """Return the note that closes an order of which no step is running; nothing is charged."""
    return OrderRelease(order=order.number, why=why).to_note()


def ordered_value(order: Order, step: int, value: float | None) -> float | None:
    """Return the value that the ledger keeps for this step.

    A value that was not ordered is ignored. A value that is nan or infinite is kept in any case: it says that the step diverged.
    """
    return None if value is None or (math.isfinite(value) and not order.validates(step)) else value


def write_incomplete_receipt(
    order: Order,
    step: int,
    status: Literal["failed", "interrupted"],
    text: str,
    cost: Cost,
    *,
    at: float,
    saved_step: int,
    worker: str = "",
    price_factor: float = 1.0,
) -> Receipt:
    """Return the receipt of a step that was not completed; it closes the order."""
    return Receipt(
        order=order.number,
        trial=order.trial,
        step=step,
        status=status,
        text=shorten(text),
        cost=clip_cost(cost),
        at=at,
        saved_step=saved_step,
        worker=worker,
        price_factor=price_factor,
    )


def write_receipt(
    order: Order,
    step: int,
    value: float | None,
    cost: Cost,
    *,
    at: float,
    saved_step: int = 0,
    worker: str = "",
    price_factor: float = 1.0,
    metrics: Mapping[str, float] = NO_METRICS,
) -> Receipt:
    """Return the receipt of a completed step: `ok`, or `diverged` when an ordered value is missing or no number."""
    text, value = "", ordered_value(order, step, value)
    if value is None and order.validates(step):
        text = "no value was reported"
    elif value is not None and not math.isfinite(value):
        text = f"the value is {value}"
    return Receipt(
        order=order.number,
        trial=order.trial,
        step=step,
        value=value,
        status="diverged" if text else "ok",
        text=text,
        metrics=metrics,
        cost=clip_cost(cost),
        at=at,
        saved_step=saved_step,
        worker=worker,
        price_factor=price_factor,
    )


def clip_cost(cost: Cost) -> Cost:
    """Return the cost with every part between 0 and MAX_SECONDS: a clock that jumped must never lower what was spent."""
    setup, train, validate = (min(s, MAX_SECONDS) if s > 0 else 0.0 for s in (cost.setup, cost.train, cost.validate))
    return Cost(setup=setup, train=train, validate=validate)
