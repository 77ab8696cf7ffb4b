"""Sequential halving on recorded curves, microseconds an order, for `lockstep`; a test holds it to the policy's own orders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shoestring.policies.halving.sequential_halving import rounds_of

Order = tuple[int, int]  # arm, until
Floats = NDArray[np.float64]


class Halving:
    """One study: losses (K, T), the last step of each arm (K,), steps of a full curve, and what is left of the budget."""

    def __init__(self, y: Floats, limit: NDArray[np.int64], steps: int, budget: int) -> None:
        self.y, self.limit, self.steps, self.left = y, limit, steps, budget
        self.n = np.zeros(len(y), dtype=np.int64)
        self.orders: list[Order] = []

    def buy(self, arm: int, until: int) -> None:
        had = int(self.n[arm])
        until = min(until, int(self.limit[arm]), had + self.left)
        if until > had:
            self.left -= until - had
            self.n[arm] = until
            self.orders.append((arm, until))

    def ranked(self, arms: Sequence[int]) -> list[int]:
        return sorted(arms, key=lambda arm: (self.y[arm, self.n[arm] - 1], arm))

    def can_go_on(self, arm: int) -> bool:
        return bool(self.n[arm] < self.limit[arm])

    def race(self, arms: list[int], count: int) -> None:
        """One race: `count` newcomers were planned, `arms` are those that there are."""
        first_look = max(1, min(self.steps, int(self.left / rounds_of(count, 2) / count)))
        for arm in arms:
            self.buy(arm, first_look)
        arms = [arm for arm in arms if self.n[arm]]
        rounds = rounds_of(len(arms), 2)
        for number in range(1, rounds + 1):
            arms = self._keep(arms, self.left / max(1, rounds - number))
            going = [arm for arm in arms if self.can_go_on(arm)]
            if len(arms) <= 1 or not going:
                break
            until = _common_step(
                self.left / max(1, rounds - number), [(int(self.n[a]), int(self.limit[a])) for a in going]
            )
            for arm in arms:
                self.buy(arm, until)
        for arm in self.ranked(arms):
            self.buy(arm, self.steps)

    def _keep(self, arms: Sequence[int], share: float) -> list[int]:
        """The better half, as far as `share` buys one more step of each."""
        kept = self.ranked(arms)[: max(1, len(arms) // 2)]
        cost = np.cumsum([self.can_go_on(arm) for arm in kept])
        return kept[: max(1, int((cost <= share).sum()))]

    def finish(self) -> None:
        """What the winner cannot use goes to the next best."""
        while self.left > 0 and (going := [int(a) for a in np.flatnonzero((self.n > 0) & (self.n < self.limit))]):
            self.buy(self.ranked(going)[0], self.steps)


def halve(y: Floats, limit: NDArray[np.int64], steps: int, budget: int, arms_per_curve: float = 12.5) -> list[Order]:
    """The orders of sequential halving until the budget is spent; newcomers are opened in the order of rows."""
    study = Halving(y, limit, steps, budget)
    unopened = [int(arm) for arm in np.flatnonzero(limit > 0)]
    while study.left > 0 and unopened:
        count = max(2, min(round(arms_per_curve * study.left / steps), study.left // 2))
        arms, unopened = unopened[:count], unopened[count:]
        study.race(arms, count)
        study.finish()
    return study.orders


def _common_step(share: float, loads: Sequence[Order]) -> int:
    """The furthest step to which `share` brings all arms, given as (steps, limit)."""
    low, high = min(n for n, _ in loads) + 1, max(limit for _, limit in loads)
    while low < high:
        middle = (low + high + 1) // 2
        cost = sum(max(0, min(middle, limit) - n) for n, limit in loads)
        low, high = (middle, high) if cost <= share else (low, middle - 1)
    return low
