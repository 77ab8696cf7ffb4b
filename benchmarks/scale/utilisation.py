"""How busy each policy keeps how many workers, and what the loop costs beside its thinking."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from benchmarks.scale.load import EPOCHS_A_WORKER, SETTINGS, FallingCurves, begin
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.simulated.simulated_runner import Simulated
from shoestring.study.loop import run_in_memory

QUICK_POLICIES = [
    "asha",
    "hyperband",
    "sequential_halving",
    "successive_halving",
    "top_k_after_one",
    "random_search",
    "grid",
]
WITH_MODELS = ["thrift", "bhpt", "freeze_thaw_bo", "cost_aware_ei", "boil", "bo_bos", "boca", "gp_ucb", "lc_prediction"]
POLICIES = QUICK_POLICIES + WITH_MODELS
FEWEST_EPOCHS = 4000  # ten full trainings and more, however few the workers


class Run(NamedTuple):
    """One simulated study."""

    policy: str
    workers: int
    entries: int
    receipts: int
    busy: float  # share of all workers' time until the last step was done
    busy_outside_tail: float  # and until the last order was given; nan: it was stopped before any time had passed
    tail_begins: float  # when that was, as a share of the whole time
    loop_ms: float  # for an entry, thinking left out
    decide_ms: float  # for a decision
    is_whole: bool  # False: it was stopped for taking too long
    best: float | None


class Timed:
    """The policy itself, and the processor time that it takes."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.name, self.seconds, self.decisions = policy, policy.name, 0.0, 0

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        began = time.process_time()
        try:
            return self.policy.decide(ledger, rng)
        finally:
            self.seconds += time.process_time() - began
            self.decisions += 1


def measure(name: str, workers: int, limit_s: float) -> Run:
    policy = Timed(policies.make(name, SETTINGS.get(name)))
    began = time.process_time()
    ledger = begin(name, max(FEWEST_EPOCHS, EPOCHS_A_WORKER * workers), workers)
    ending = run_in_memory(
        ledger,
        policy,
        Simulated(FallingCurves(), workers),
        should_stop=lambda: time.process_time() - began > limit_s,
    )
    seconds, ledger = time.process_time() - began, ending.ledger
    end, last_order = ledger.books.clock, max(order.at for order in ledger.orders)
    run = Run(
        policy=name,
        workers=workers,
        entries=len(ledger),
        receipts=ledger.books.receipts,
        busy=_share_busy(ledger, end),
        busy_outside_tail=_share_busy(ledger, last_order if ending.reason != "stopped" else end),
        tail_begins=last_order / end if end else 1.0,
        loop_ms=1e3 * (seconds - policy.seconds) / len(ledger),
        decide_ms=1e3 * policy.seconds / policy.decisions,
        is_whole=ending.reason != "stopped",
        best=None if ledger.best is None else ledger.best.best_value,
    )
    print(
        f"{name:20s} {workers:5d} workers: busy {run.busy_outside_tail:.3f} outside the tail, which begins at "
        f"{run.tail_begins:.2f}, {run.busy:.3f} in all; {run.loop_ms:.3f} ms an entry, {run.decide_ms:.2f} ms a decision"
        + ("" if run.is_whole else "; stopped"),
        flush=True,
    )
    return run


def _share_busy(ledger: Ledger, until: float) -> float:
    """What steps took of all workers' time from the beginning to `until`; nan if no time has passed."""
    steps = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    busy = sum(max(0.0, min(step.at, until) - (step.at - step.cost.total)) for step in steps)
    busy += sum(max(0.0, until - open_order.since) for open_order in ledger.open_orders.values())
    return busy / (ledger.workers * until) if until > 0 else math.nan
