"""From a policy's decision to an order, and the time that it takes: the same for the loop, for `ask` and for online tuning.

Thinking is charged to budgets of time and money: the policy's time and that of keeping the books, that is, all time that no
runner spent. It stays pending until an order is recorded that carries it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from shoestring.core.decision import Decision, Finish, Train, Wait
from shoestring.core.entries import Order
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.errors import DecisionError
from shoestring.runners.blas import OneThread


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
    """What the policy wants, and the order that it becomes: checked, priced, shortened. None: nothing can be bought.

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
    order = ledger.accept(decision, at=now(), thinking_s=thinking.pending_s, check_start_s=check_start_s)
    return decision, replace(order, asked=True) if order is not None and asked else order
