"""Measure decisions: 20 in a row on a study with many results, refits included."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.space import Space
from shoestring.runners.runner import write_receipt
from shoestring.runners.simulated.simulated_runner import Source
from shoestring.study.blas import OneThread

DECISIONS, QUICK_DECISIONS = 20, 5


@dataclass(frozen=True)
class Peer:
    """A comparable computation of another library on the same data, as much as `decisions` of ours. `prepare` is not timed."""

    prepare: Callable[[], Callable[[], Any]]
    decisions: int = 1


@dataclass(frozen=True)
class Case:
    name: str
    policy: Policy
    begin: Callable[[], Ledger]
    source: Source
    target_ms: float  # of the mean
    peers: dict[str, Peer] = field(default_factory=dict)
    times_quicker: float = 0.0  # required ratio of processor time to the quickest of `compared_peers`; 0: not compared
    compared_peers: tuple[str, ...] = ()


def begin_study(policy: Policy, space: Space, budget: str, **more: Any) -> Ledger:
    settings = policies.settings_of(policy)
    return Ledger(
        [StudyDefinition(space=space, budget=Budget(budget), policy=policy.name, settings=settings, seed=0, **more)]
    )


def carry_out(ledger: Ledger, order: Order, source: Source) -> Ledger:
    """Return the ledger with this order and the receipts of all its steps."""
    ledger = ledger.append(order)
    for step in range(ledger.trials[order.trial].resumable_step + 1, order.until + 1):
        outcome = source.step(order.config, step)
        assert outcome is not None
        ledger = ledger.append(write_receipt(order, step, outcome.value, outcome.cost, at=0.0, saved_step=step))
    return ledger


def decide_and_carry_out(ledger: Ledger, policy: Policy, source: Source) -> Ledger:
    """Make one more decision and carry it out."""
    decision = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(decision, Train)
    order = place_order(ledger, decision)
    assert order is not None
    return carry_out(ledger, order, source)


def write_curve(ledger: Ledger, order: Order, values: list[float]) -> Ledger:
    """Return the ledger with an order of a new trial whose steps have these values and take a second each."""
    ledger = ledger.append(order)
    for step, value in enumerate(values, 1):
        receipt = Receipt(order=order.number, trial=order.trial, step=step, value=value, cost=Cost(train=1.0))
        ledger = ledger.append(receipt)
    return ledger


def time_decisions(case: Case, decisions: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return clock and processor milliseconds of each decision. The first one, which creates the memo, is not counted.

    The target is for the clock. On a busy machine only the processor time is meaningful.
    """
    one_thread, times, busy = OneThread(), list[float](), list[float]()
    with one_thread:  # on a busy machine several threads would wait for each other for minutes
        ledger = case.begin()
    for _ in range(decisions + 1):
        began, at_work = time.perf_counter(), time.process_time()
        with one_thread:  # as in the loop
            decision = case.policy.decide(ledger, ledger.decision_rng())
        times.append(1000.0 * (time.perf_counter() - began))
        busy.append(1000.0 * (time.process_time() - at_work))
        assert isinstance(decision, Train), f"{case.name}: {decision}"
        order = place_order(ledger, decision)
        assert order is not None
        ledger = carry_out(ledger, order, case.source)
    return np.array(times[1:]), np.array(busy[1:])


def time_peer(peer: Peer) -> dict[str, float]:
    work = peer.prepare()
    began, at_work = time.perf_counter(), time.process_time()
    with OneThread():  # peers too: all are measured on one core
        work()
    return {
        "ms": round(1000.0 * (time.perf_counter() - began) / peer.decisions, 3),
        "processor_ms": round(1000.0 * (time.process_time() - at_work) / peer.decisions, 3),
    }


def measure(case: Case, decisions: int, *, with_peers: bool) -> dict[str, Any]:
    """Measure one case and return the object that the benchmark prints."""
    times, busy = time_decisions(case, decisions)
    peers = {name: time_peer(peer) for name, peer in case.peers.items()} if with_peers else {}
    measured = {
        "mean_ms": round(float(times.mean()), 3),
        "median_ms": round(float(np.median(times)), 3),
        "p95_ms": round(float(np.quantile(times, 0.95)), 3),
        "processor_mean_ms": round(float(busy.mean()), 3),
        "decisions": decisions,
    }
    target = {"mean_ms": case.target_ms}
    peer_times = [peers[name]["processor_ms"] for name in case.compared_peers if name in peers]
    if peer_times:
        measured["times_quicker"] = round(min(peer_times) / measured["processor_mean_ms"], 2)
        target["times_quicker"] = case.times_quicker
    ok = measured["mean_ms"] <= case.target_ms and measured.get("times_quicker", np.inf) >= case.times_quicker
    return {"name": f"decide_{case.name}", "measured": measured, "target": target, "peers": peers, "ok": bool(ok)}
