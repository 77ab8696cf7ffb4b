"""Ask the policy for a decision and turn it into an order, for the loop, for `ask` and for online tuning.

Budgets of time and money are charged for decision time: the time of the policy and of the ledger, which is all time in which no
runner worked. It is pending until the next order, and is recorded with that order.

A policy may want a step that costs more than is left. If no order is open, the rest of the budget is then spent on the best
paused trial of which a step can be paid, so that one expensive config at the end does not leave the rest unspent. (While an
order is open, it may still cost less than was reserved for it.)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from shoestring.core.deciding.decision import Decision, Finish, Train, Wait
from shoestring.core.deciding.policy import Policy, compare_newest
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.ledger.running_totals import upper_quantile
from shoestring.errors import DecisionError
from shoestring.study.blas import OneThread

REST = "what the policy wanted next costs more than is left"


class Thinking:
    """Measures decision time. `with thinking: …` measures one decision, and limits its linear algebra to one thread.

    With `is_free`, time is simulated, and decisions take no time.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, is_free: bool = False) -> None:
        self.pending_s = 0.0  # decision time that is not charged yet
        self.longest_s = 0.0  # the time of the slowest decision
        self._clock, self._is_free, self._one_thread = clock, is_free, OneThread()
        self._since = self._began = clock()

    def start_over(self) -> None:
        """Discard the pending time and count from now."""
        self.pending_s, self._since = 0.0, self._clock()

    def count(self) -> None:
        """Count the time since the last call of a method as decision time."""
        now = self._clock()
        if not self._is_free:
            self.pending_s += max(0.0, now - self._since)
        self._since = now

    def skip(self) -> None:
        """Do not count the time since the last call of a method, because the runner was working."""
        self._since = self._clock()

    def leave_out(self, seconds: float) -> None:
        """Leave out some of the time since the last call of a method, in which neither the policy nor the runner worked."""
        self._since += seconds

    def __enter__(self) -> None:
        self._began = self._clock()
        self._one_thread.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._one_thread.__exit__()
        self.count()
        if not self._is_free:
            self.longest_s = max(self.longest_s, self._since - self._began)


def decide(
    ledger: Ledger,
    policy: Policy,
    thinking: Thinking,
    now: Callable[[], float],
    *,
    check_start_s: float | None = None,
    is_external: bool = False,
) -> tuple[Decision, Order | None]:
    """Return the policy's decision and the order made from it; the order is None if there is none, or no step can be paid.

    The order is checked, priced, and shortened to what is left. `check_start_s` is explained at `place_order`. With
    `is_external`, the order is carried out by a user who called `ask`, not by a runner.
    """
    with thinking:
        decision = policy.decide(ledger, ledger.decision_rng())
    if isinstance(decision, Wait | Finish):
        return decision, None
    if not isinstance(decision, Train):
        raise DecisionError(
            f"{policy.name} decided {decision!r}: decide(ledger, rng) must return Train(…), Wait() or Finish(why)"
        )
    terms: dict[str, Any] = {"at": now(), "thinking_s": thinking.pending_s, "check_start_s": check_start_s}
    order = place_order(ledger, decision, **terms)
    if order is None and not ledger.open_orders:
        order = _spend_rest(ledger, terms)
    return decision, replace(order, is_external=True) if order is not None and is_external else order


def _spend_rest(ledger: Ledger, terms: dict[str, Any]) -> Order | None:
    """Return an order for the paused trial with the best newest value, among those of which a step can be paid."""
    fitting = list(islice(_continue_paused(ledger, terms), 2))
    if not fitting:
        return None
    ranked = [(loss, order.trial) for loss, order in fitting]
    why = compare_newest(ledger, ranked, len(ledger.state.idle))
    return replace(fitting[0][1], why={"stage": REST, **why})


def _continue_paused(ledger: Ledger, terms: dict[str, Any]) -> Iterator[tuple[float, Order]]:
    """Yield (newest loss, order) for the paused trials of which a step can be paid, best first.

    A trial whose config changed during training is left out, because only its policy can continue it. If a trial needs no
    setup, its price is estimated without its first step, which included the setup.
    """
    rate = ledger.budget.per_second(ledger.workers)
    for loss, number in ledger.state.idle:
        trial = ledger.trials[number]
        if math.isfinite(loss) and not trial.is_retuned:
            costs = trial.step_costs[1:] if trial.resumable_step and trial.steps > 1 else trial.step_costs
            reserve = upper_quantile(sorted(costs)) * rate * (trial.limit - trial.resumable_step)
            # Repeat the memo of the last order. The memo of the new decision describes an order that cannot be paid.
            decision = Train(trial=number, config=trial.config, until=trial.limit, reserve=reserve, memo=ledger.memo)
            if (order := place_order(ledger, decision, **terms)) is not None:
                yield loss, order
