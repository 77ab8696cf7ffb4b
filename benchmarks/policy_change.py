"""Time decisions on a study whose many trials are from another policy or a person, so that the memo is empty.

    python -m benchmarks policy_change                       every case
    python -m benchmarks policy_change --only bo_bos         one of: bo_bos, boil, boil_running

    case            what is timed                                                            target
    bo_bos          the first decision after 200 trials of up to 50 steps, 6 dimensions      2 s
    boil            the first decision after 1000 such trials                                5 s
    boil_running    20 decisions after the first that follows 400 of them, fits included     0.5 s, their mean

The targets are for processor time with one BLAS thread, because the clock says little on a busy machine. The last line of
each case is one JSON object; exit 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np

from benchmarks.speed.cases.boil import LogisticRewards
from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.runners.runner import write_receipt
from shoestring.study.blas import OneThread

STEPS, DIMS = 50, 6
CASES = {  # policy, trials, untimed decisions, timed decisions, target in seconds
    "bo_bos": ("bo_bos", 200, 0, 1, 2.0),
    "boil": ("boil", 1000, 0, 1, 5.0),
    "boil_running": ("boil", 400, 1, 20, 0.5),
}


def train(ledger: Ledger, order: Order) -> Ledger:
    """Return the ledger after the order and all of its steps."""
    source, ledger = LogisticRewards(STEPS), ledger.append(order)
    for step in range(ledger.trials[order.trial].steps + 1, order.until + 1):
        outcome = source.step(order.config, step)
        ledger = ledger.append(write_receipt(order, step, outcome.value, outcome.cost, at=0.0, saved_step=step))
    return ledger


def begin_study(policy: Policy, trials: int) -> Ledger:
    """Return a study of random configurations, half to fully trained, that the policy has to continue."""
    space = Space({f"x{j}": Float(0.0, 1.0) for j in range(DIMS)})
    definition = StudyDefinition(
        space=space,
        budget=Budget("1e9s"),
        policy=policy.name,
        settings=policies.settings_of(policy),
        seed=0,
        direction="max",
        max_steps=STEPS,
    )
    ledger, rng = Ledger([definition]), np.random.default_rng(0)
    for number in range(trials):
        until = int(rng.integers(STEPS // 2, STEPS + 1))
        ledger = train(
            ledger, Order(number=number, trial=number, config=space.from_cube(rng.random(DIMS)), until=until)
        )
    return ledger


def time_decisions(policy: Policy, ledger: Ledger, decisions: int) -> tuple[list[float], list[float]]:
    """Return processor and clock seconds of each of some consecutive decisions."""
    busy, wall = [], []
    for _ in range(decisions):
        began, at_work = time.perf_counter(), time.process_time()
        with OneThread():  # as in the loop
            decision = policy.decide(ledger, ledger.decision_rng())
        busy.append(time.process_time() - at_work)
        wall.append(time.perf_counter() - began)
        assert isinstance(decision, Train), decision
        order = place_order(ledger, decision)
        assert order is not None
        ledger = train(ledger, order)
    return busy, wall


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=sorted(CASES), action="append", help="default: all")
    parser.add_argument("--quick", action="store_true", help="a tenth of the trials, 2 decisions: nothing is judged")
    chosen = parser.parse_args()
    good = True
    for name in chosen.only or CASES:
        kind, trials, before, timed, target_s = CASES[name]
        if chosen.quick:
            trials, timed = trials // 10, min(timed, 2)
        policy = policies.make(kind)
        busy, wall = time_decisions(policy, begin_study(policy, trials), before + timed)
        mean = float(np.mean(busy[before:]))
        measured = {
            "processor_s": round(mean, 3),
            "processor_s_longest": round(max(busy[before:]), 3),
            "wall_s": round(float(np.mean(wall[before:])), 3),
            "trials": trials,
            "decisions": timed,
        }
        ok = chosen.quick or mean <= target_s
        good &= ok
        target = {"processor_s": target_s}
        result = {"name": f"policy_change_{name}", "measured": measured, "target": target, "peers": {}, "ok": ok}
        print(json.dumps(result))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
