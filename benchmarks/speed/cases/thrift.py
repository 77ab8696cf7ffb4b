"""Cases of `thrift`: 200 and 1000 trials, each trained to a different step, so that the network reads all of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.speed.measure import Case, begin_study, write_curve
from shoestring.core.deciding.policy import start_trial
from shoestring.core.ledger.entries import Cost
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.policies.thrift.thrift import Thrift
from shoestring.runners.simulated.simulated_runner import StepOutcome

STEPS = 50
SPACE = Space({f"p{i}": Float(0.0, 1.0) for i in range(8)})


@dataclass(frozen=True)
class FlatCurves:
    """Curves where every further step has the same value."""

    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(0.5, Cost(train=1.0))


def cases() -> list[Case]:
    policy = Thrift(opening=0.0)

    def begin(trials: int) -> Callable[[], Ledger]:
        def open_ledger() -> Ledger:
            rng = np.random.default_rng(trials)
            ledger = begin_study(policy, SPACE, f"{trials * 60} epochs", max_steps=STEPS)
            for _ in range(trials):
                until = int(rng.integers(1, STEPS))
                order = place_order(ledger, start_trial(ledger, SPACE.from_cube(rng.random(SPACE.dims)), until))
                assert order is not None
                end, rate = rng.random(), rng.uniform(0.2, 1.5)
                ledger = write_curve(ledger, order, [end + float(step) ** -rate for step in range(1, until + 1)])
            return ledger

        return open_ledger

    return [
        Case("thrift_200", policy, begin(200), FlatCurves(), 20.0),
        Case("thrift_1000", policy, begin(1000), FlatCurves(), 150.0),
    ]
