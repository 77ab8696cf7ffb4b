"""From a policy's decision to an order, and the time that it takes: the same for the loop, for `ask` and for online tuning.

Thinking is charged to budgets of time and money: the policy's time and that of keeping the books, that is, all time that no
runner spent. It stays pending until an order is recorded that carries it.

When what the policy wants costs more than is left and nothing is under way that may cost less than reserved, the rest goes to
the best frozen trial that it pays for: money is not given back because a dear config came last.
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
from shoestring.core.ledger.running_totals import upper_quantile
from shoestring.errors import DecisionError
from shoestring.study.blas import OneThread

REST = "what the policy wanted next costs more than is left"


class Thinking:
    """A stopwatch: `with thinking: …` times one decision, with one thread for its linear algebra.

    `is_free` where time is simulated and thinking takes none.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, is_free: bool = False) -> None:
        self.pending_s = 0.0  # not charged yet
        self.longest_s = 0.0  # that one decision took
        self._clock, self._is_free, self._one_thread = clock, is_free, OneThread()
        self._since = self._began = clock()

    def start_over(self) -> None:
        """Discard what is pending and count from now."""
        self.pending_s, self._since = 0.0, self._clock()

    def count(self) -> None:
        """The time since the last count was spent thinking."""
        now = self._clock()
        if not self._is_free:
            self.pending_s += max(0.0, now - self._since)
        self._since = now

    def skip(self) -> None:
        """The time since the last count was spent otherwise: a runner was waited for."""
        self._since = self._clock()

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
    asked: bool = False,
) -> tuple[Decision, Order | None]:
    """What the policy wants, and the order that it becomes: checked, priced, shortened; else one for the rest of the money.

    None: nothing can be bought.

    `check_start_s`: see `Ledger.accept`. `asked`: somebody who owns their loop carries the order out, not a runner.
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
    order = ledger.accept(decision, **terms)
    if order is None and not ledger.open_orders:
        order = _spend_rest(ledger, terms)
    return decision, replace(order, asked=True) if order is not None and asked else order


def _spend_rest(ledger: Ledger, terms: dict[str, Any]) -> Order | None:
    """An order for the frozen trial with the best newest value, of those that have a step which can be paid."""
    fitting = list(islice(_continue_frozen(ledger, terms), 2))
    if not fitting:
        return None
    ranked = [(loss, order.trial) for loss, order in fitting]
    why = compare_newest(ledger, ranked, len(ledger.books.idle))
    return replace(fitting[0][1], why={"stage": REST, **why})


def _continue_frozen(ledger: Ledger, terms: dict[str, Any]) -> Iterator[tuple[float, Order]]:
    """(newest loss, order) of each that can be paid, best first. A run tuned while it trains is its policy's alone.

    One that needs not be set up again is priced without its first step, in which it was.
    """
    rate = ledger.budget.per_second(ledger.workers)
    for loss, number in ledger.books.idle:
        trial = ledger.trials[number]
        if math.isfinite(loss) and not trial.is_retuned:
            costs = trial.step_costs[1:] if trial.held and trial.steps > 1 else trial.step_costs
            reserve = upper_quantile(sorted(costs)) * rate * (trial.limit - trial.held)
            # The policy's memo is that of its last order: what it noted for this wish speaks of a trial that does not come.
            decision = Train(trial=number, config=trial.config, until=trial.limit, reserve=reserve, memo=ledger.memo)
            if (order := ledger.accept(decision, **terms)) is not None:
                yield loss, order
