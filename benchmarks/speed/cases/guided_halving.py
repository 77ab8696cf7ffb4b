"""Cases of `guided_halving`: newcomers in six dimensions, after 50, 200 and 1000 first looks, in epochs and in seconds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.cost_aware.functions import HARTMANN6
from benchmarks.speed.cases.cost_aware_ei import HartmannWithCosts
from benchmarks.speed.measure import DECISIONS, Case, begin_study, carry_out
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.policies.halving.guided_halving import GuidedHalving


def cases() -> list[Case]:
    """Return the cases. All decisions start a new trial, because the number of trials is a setting."""
    space, source, policy = HARTMANN6.space, HartmannWithCosts(), GuidedHalving(arms=2000)

    def begin(trials: int, budget: str) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            ledger, rng = begin_study(policy, space, budget, max_steps=50), np.random.default_rng(0)
            for number in range(trials - DECISIONS // 2 - 1):
                order = Order(number=number, trial=number, config=space.from_cube(rng.random(6)), until=1)
                ledger = carry_out(ledger, order, source)
            return ledger

        return open_ledger

    return [
        Case("guided_halving_50", policy, begin(50, "100000 epochs"), source, 10.0),
        Case("guided_halving_200", policy, begin(200, "100000 epochs"), source, 10.0),
        Case("guided_halving_1000", policy, begin(1000, "100000 epochs"), source, 10.0),
        Case("guided_halving_200_seconds", policy, begin(200, "1e9s"), source, 20.0),
    ]
