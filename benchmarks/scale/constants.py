"""Measure single operations: the numbers from which the page on ten thousand accelerators is computed."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.scale.load import begin
from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Cost, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.stores.ledger_store import Heartbeat
from shoestring.stores.sql import SqlStore
from shoestring.study.loop import run_in_memory

BATCH = 1000
MANY_RUNNING = 10_000
OTHER_TRIALS = 1000  # trials
REPEATS = 20


def measure_constants() -> dict[str, float]:
    found = {**_store(), "first_decision_s": _first_decision_s()}
    for name, value in found.items():
        print(f"{name:32s} {value:.4g}", flush=True)
    return found


def _store() -> dict[str, float]:
    """Return the milliseconds of a durable commit on SQLite, by the clock, and the bytes of an entry."""
    one_ms, many_ms, beat_ms = list[float](), list[float](), list[float]()
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{folder}/scale.db")
        ledger = store.append("scale", None, *begin("asha", 10**9, 1).entries())
        with store.lease("scale") as lease:
            for repeat in range(REPEATS):
                for count, times in ((1, one_ms), (BATCH, many_ms))[: 2 if repeat % 5 == 0 else 1]:
                    orders = [_order(len(ledger.orders) + i) for i in range(count)]
                    began = time.perf_counter()
                    ledger = store.append("scale", ledger, *orders, heartbeat=Heartbeat(lease, {}))
                    times.append(1e3 * (time.perf_counter() - began))
                    ledger = store.append("scale", ledger, *map(_receipt, orders), heartbeat=Heartbeat(lease, {}))
            for _ in range(REPEATS):
                began = time.perf_counter()
                lease.beat(len(ledger), dict.fromkeys(range(MANY_RUNNING), 1.5))
                beat_ms.append(1e3 * (time.perf_counter() - began))
        store.close()
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
    return {
        "commit_of_one_ms": median(one_ms),
        f"commit_of_{BATCH}_ms": median(many_ms),
        f"heartbeat_of_{MANY_RUNNING}_ms": median(beat_ms),
        "bytes_an_entry": size / len(ledger),
    }


def _order(number: int) -> Order:
    config = {"end": (number * 0.618) % 1.0, "rate": 0.1234567, "pace": 0.7654321}
    return Order(number=number, trial=number, config=config, until=1, expected_cost=1.0, reserve=1.0, why={"rung": 0})


def _receipt(order: Order) -> Receipt:
    return Receipt(
        order=order.number, trial=order.trial, step=1, value=0.123456789, cost=Cost(train=1.234567), saved_step=1
    )


class Bowl:
    """A loss of one step, whose cost depends on the first parameter."""

    def step(self, config: Config, step: int) -> StepOutcome:
        return StepOutcome(sum((float(x) - 0.3) ** 2 for x in config.values()), Cost(train=0.5 + float(config["x0"])))


def _first_decision_s() -> float:
    """Return the processor time of the first decision of `cost_aware_ei` on a study of another policy, in 6 dimensions."""
    space = Space({f"x{i}": Float(0, 1) for i in range(6)})
    definition = replace(begin("random_search", OTHER_TRIALS, 1).definition, space=space, max_steps=1)
    ledger = run_in_memory(Ledger([definition]), policies.make("random_search"), SimulatedRunner(Bowl())).ledger
    change = Amendment(budget=Budget(f"{OTHER_TRIALS + 100} epochs"), policy="cost_aware_ei", settings={})
    ledger, policy = ledger.append(change), policies.make("cost_aware_ei")
    began = time.process_time()
    policy.decide(ledger, ledger.decision_rng())
    return time.process_time() - began
