"""How long does `thrift` think? Decisions on studies of 200 and of 1000 trials with 50 steps each.

    OPENBLAS_NUM_THREADS=1 python benchmarks/thrift_speed.py

Every trial has a random number of steps, so all of them are read. Time is processor time of one decision, the ledger's views
carried along, as in a running study; the mean over 20 consecutive decisions counts. Last line: one JSON object.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from shoestring.core.entries import Cost, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.core.parameters import Float
from shoestring.core.policy import train_new
from shoestring.core.space import Space
from shoestring.policies.thrift.thrift import Thrift
from shoestring.testing.policies import opened

STEPS, DECISIONS, WARM_UP = 50, 20, 3
TARGETS_MS = {200: 20.0, 1000: 150.0}
SPACE = Space({f"p{i}": Float(0.0, 1.0) for i in range(8)})


def begun(trials: int, policy: Thrift) -> Ledger:
    """A study in which so many trials were trained, each to a step of its own."""
    rng = np.random.default_rng(trials)
    ledger = Ledger([opened(policy, space=SPACE, budget=str(Budget(f"{trials * 60} epochs")), max_steps=STEPS)])
    for number in range(trials):
        until = int(rng.integers(1, STEPS))
        config = SPACE.from_cube(rng.random(SPACE.dims))
        order = ledger.accept(train_new(ledger, config, until))
        assert order is not None
        ledger = ledger.append(order)
        end, rate = rng.random(), rng.uniform(0.2, 1.5)
        for step in range(1, until + 1):
            value = end + float(step) ** -rate
            ledger = ledger.append(Receipt(order=number, trial=number, step=step, value=value, cost=Cost(train=1.0)))
    return ledger


def measure(trials: int) -> list[float]:
    """Milliseconds of consecutive decisions."""
    policy = Thrift(opening=0.0)
    ledger, took = begun(trials, policy), []
    for _ in range(DECISIONS + WARM_UP):
        began = time.process_time()
        decision = policy.decide(ledger, ledger.decision_rng())
        took.append(1e3 * (time.process_time() - began))
        order = ledger.accept(decision)  # type: ignore[arg-type]
        assert order is not None
        ledger = ledger.append(order)
        had = ledger.trials[order.trial].steps
        for step in range(had + 1, order.until + 1):
            receipt = Receipt(order=order.number, trial=order.trial, step=step, value=0.5, cost=Cost(train=1.0))
            ledger = ledger.append(receipt)
    return took[WARM_UP:]


def main() -> int:
    measured = {}
    for trials in TARGETS_MS:
        took = measure(trials)
        measured[str(trials)] = round(float(np.mean(took)), 1)
        middle, late = np.median(took), np.quantile(took, 0.95)
        print(f"{trials} trials: mean {np.mean(took):.1f} ms, median {middle:.1f}, 95 % {late:.1f}")
    target = {str(trials): limit for trials, limit in TARGETS_MS.items()}
    ok = all(measured[trials] <= limit for trials, limit in target.items())
    print(json.dumps({"name": "thrift_speed", "measured": measured, "target": target, "peers": {}, "ok": ok}))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
