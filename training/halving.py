"""Sequential halving on recorded curves for `lockstep`, in microseconds per order; a test compares it with the policy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoestring.policies.halving.sequential_halving import count_rounds

Order = tuple[int, int]  # arm, until
Floats = NDArray[np.float64]


class Halving:
    """One study: its losses (K, T), the last step of each arm (K,), the steps of a full curve, and the remaining budget."""

    def __init__(self, y: Floats, limit: NDArray[np.int64], steps: int, budget: int) -> None:
        self.y, self.limit, self.steps, self.left = y, limit, steps, budget
        self.n = np.zeros(len(y), dtype=np.int64)
        self.orders: list[Order] = []

    def train(self, arm: int, until: int) -> None:
        had = int(self.n[arm])
        until = min(until, int(self.limit[arm]), had + self.left)
        if until > had:
            self.left -= until - had
            self.n[arm] = until
            self.orders.append((arm, until))

    def ranked(self, arms: Sequence[int]) -> list[int]:
        return sorted(arms, key=lambda arm: (self.y[arm, self.n[arm] - 1], arm))

    def can_continue(self, arm: int) -> bool:
        return bool(self.n[arm] < self.limit[arm])

    def race(self, arms: list[int], count: int) -> None:
        """Run one race of these arms; `count` is the planned number of arms, and there may be fewer."""
        first_look = max(1, min(self.steps, int(self.left / count_rounds(count, 2) / count)))
        for arm in arms:
            self.train(arm, first_look)
        arms = [arm for arm in arms if self.n[arm]]
        rounds = count_rounds(len(arms), 2)
        for number in range(1, rounds + 1):
            arms = self._keep(arms, self.left / max(1, rounds - number))
            going = [arm for arm in arms if self.can_continue(arm)]
            if len(arms) <= 1 or not going:
                break
            loads = [(int(self.n[arm]), int(self.limit[arm])) for arm in going]
            until = _common_step(self.left / max(1, rounds - number), loads)
            for arm in arms:
                self.train(arm, until)
        for arm in self.ranked(arms):
            self.train(arm, self.steps)

    def _keep(self, arms: Sequence[int], share: float) -> list[int]:
        """Return the better half of the arms, or as many of them as `share` pays for by one more step each."""
        survivors = self.ranked(arms)[: max(1, len(arms) // 2)]
        cost = np.cumsum([self.can_continue(arm) for arm in survivors])
        return survivors[: max(1, int((cost <= share).sum()))]

    def finish(self) -> None:
        """Spend what the best arm cannot use on the next best arms, one after the other."""
        while self.left > 0 and (going := [int(a) for a in np.flatnonzero((self.n > 0) & (self.n < self.limit))]):
            self.train(self.ranked(going)[0], self.steps)


def halve(y: Floats, limit: NDArray[np.int64], steps: int, budget: int, arms_per_curve: float = 12.5) -> list[Order]:
    """Return the orders of sequential halving until the budget is spent; new arms are started in the order of rows."""
    study = Halving(y, limit, steps, budget)
    unopened = [int(arm) for arm in np.flatnonzero(limit > 0)]
    while study.left > 0 and unopened:
        count = max(2, min(round(arms_per_curve * study.left / steps), study.left // 2))
        arms, unopened = unopened[:count], unopened[count:]
        study.race(arms, count)
        study.finish()
    return study.orders


def _common_step(share: float, loads: Sequence[tuple[int, int]]) -> int:
    """Return the last step to which `share` pays for all arms, given as (steps, limit)."""
    low, high = min(n for n, _ in loads) + 1, max(limit for _, limit in loads)
    while low < high:
        middle = (low + high + 1) // 2
        cost = sum(max(0, min(middle, limit) - n) for n, limit in loads)
        low, high = (middle, high) if cost <= share else (low, middle - 1)
    return low
