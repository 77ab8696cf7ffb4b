"""Measure how many workers each policy keeps busy, and the time of the loop without decisions."""

from __future__ import annotations

import math
import time
from typing import NamedTuple

import numpy as np

from benchmarks.scale.load import EPOCHS_A_WORKER, FallingCurves, begin
from shoestring import policies
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
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
WITH_MODELS = [
    "guided_halving",
    "bhpt",
    "freeze_thaw_bo",
    "cost_aware_ei",
    "boil",
    "bo_bos",
    "boca",
    "gp_ucb",
    "lc_prediction",
]
POLICIES = QUICK_POLICIES + WITH_MODELS
MIN_EPOCHS = 4000  # at least ten full trainings for any number of workers


class Run(NamedTuple):
    """One simulated study."""

    policy: str
    workers: int
    entries: int
    receipts: int
    busy: float  # share of all workers' time until the end of the last step
    busy_outside_tail: float  # the same until the last order; nan: the study was stopped before any time had passed
    tail_begins: float  # time of the last order, as a share of the whole time
    loop_ms: float  # per entry, without decisions
    decide_ms: float  # per decision
    is_whole: bool  # False: the study was stopped because it took too long
    best: float | None


class TimedPolicy:
    """A policy with the processor time that it uses."""

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
    policy = TimedPolicy(policies.make(name))
    began = time.process_time()
    ledger = begin(name, max(MIN_EPOCHS, EPOCHS_A_WORKER * workers), workers)
    ending = run_in_memory(
        ledger,
        policy,
        SimulatedRunner(FallingCurves(), workers),
        should_stop=lambda: time.process_time() - began > limit_s,
    )
    seconds, ledger = time.process_time() - began, ending.ledger
    end, last_order = ledger.state.clock, max(order.at for order in ledger.orders)
    run = Run(
        policy=name,
        workers=workers,
        entries=len(ledger),
        receipts=ledger.state.receipts,
        busy=_share_busy(ledger, end),
        busy_outside_tail=_share_busy(ledger, last_order if ending.reason != "stopped" else end),
        tail_begins=last_order / end if end else 1.0,
        loop_ms=1e3 * (seconds - policy.seconds) / len(ledger),
        decide_ms=1e3 * policy.seconds / policy.decisions,
        is_whole=ending.reason != "stopped",
        best=None if ledger.best is None else ledger.best.best_value,
    )
    print(
        f"{name:20s} {workers:5d} workers: busy {run.busy_outside_tail:.3f} before the tail, which begins at "
        f"{run.tail_begins:.2f}, {run.busy:.3f} in total; {run.loop_ms:.3f} ms per entry, {run.decide_ms:.2f} ms per decision"
        + ("" if run.is_whole else "; stopped"),
        flush=True,
    )
    return run


def _share_busy(ledger: Ledger, until: float) -> float:
    """Return the share of all workers' time until `until` that was used by steps; nan if no time has passed."""
    steps = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    busy = sum(max(0.0, min(step.at, until) - (step.at - step.cost.total)) for step in steps)
    busy += sum(max(0.0, until - open_order.since) for open_order in ledger.open_orders.values())
    return busy / (ledger.workers * until) if until > 0 else math.nan
