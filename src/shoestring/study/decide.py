"""From a policy's decision to an order, and the time that it takes: the same for the loop, for `ask` and for online tuning.

Thinking is charged to budgets of time and money: the policy's own time and that of keeping the books, all that is neither
a runner's nor charged yet. It stays pending until an order is recorded that carries it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from shoestring.core.decision import Decision, Train
from shoestring.core.entries import Order
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.runners.blas import OneThread


class Thinking:
    """A stopwatch for decisions; `is_free` where time is simulated and thinking takes none."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter, *, is_free: bool = False) -> None:
        self.pending_s = 0.0  # not charged yet
        self.longest_s = 0.0  # that one decision took
        self._clock, self._is_free, self._one_thread = clock, is_free, OneThread()
        self._since = clock()

    def start_over(self) -> None:
        """What was pending is nobody's: count from now on."""
        self.pending_s, self._since = 0.0, self._clock()

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Time one decision, with one thread for its linear algebra."""
        began = self._clock()
        with self._one_thread:
            yield
        self._count()
        if not self._is_free:
            self.longest_s = max(self.longest_s, self._clock() - began)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """While a runner is waited for, nobody thinks."""
        self._count()
        yield
        self._since = self._clock()

    def _count(self) -> None:
        now = self._clock()
        self.pending_s += 0.0 if self._is_free else max(0.0, now - self._since)
        self._since = now


def decide(
    ledger: Ledger,
    policy: Policy,
    thinking: Thinking,
    now: Callable[[], float],
    *,
    can_check: bool = False,
    asked: bool = False,
) -> tuple[Decision, Order | None]:
    """What the policy wants, and the order that it becomes: checked, priced, shortened. None: nothing can be bought.

    `can_check`: the training code can save, so the order may try resuming out. `asked`: somebody who owns their loop
    carries the order out, not a runner.
    """
    with thinking.measure():
        decision = policy.decide(ledger, ledger.decision_rng())
    if not isinstance(decision, Train):
        return decision, None
    order = ledger.accept(decision, at=now(), thinking_s=thinking.pending_s, can_check=can_check)
    return decision, replace(order, asked=True) if order is not None and asked else order
