"""Workers that differ: those that are paid at another price, and those that take longer than the others for the same work.

A slow one may be throttled, shared or broken. Configs differ in what a step costs, so a worker is judged by the median of many
steps of several trials, against the median of all other workers' steps. One that was given three dear trials by chance may still
be told here: it is a hint to look.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from shoestring.core.entries import Lost, Receipt
from shoestring.core.ledger import Ledger

_SLOW = 1.5  # times the others' median
_FEWEST_STEPS, _FEWEST_TRIALS = 10, 3  # of a worker that is judged


def slow_workers(ledger: Ledger) -> list[dict[str, Any]]:
    """`worker`, `steps` it has finished and how many `times_slower` it was, the slowest first; needs runners that name them."""
    seconds: dict[str, list[float]] = {}
    trials: dict[str, set[int]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt) and entry.worker and entry.is_finished:
            seconds.setdefault(entry.worker, []).append(entry.cost.total)
            trials.setdefault(entry.worker, set()).add(entry.trial)
    if len(seconds) < 2:
        return []
    typical = median(cost for costs in seconds.values() for cost in costs)
    found = []
    for worker, costs in seconds.items():
        if len(costs) < _FEWEST_STEPS or len(trials[worker]) < _FEWEST_TRIALS or median(costs) < _SLOW * typical:
            continue
        usual = median(cost for other, theirs in seconds.items() if other != worker for cost in theirs)
        if usual > 0 and median(costs) >= _SLOW * usual:
            found.append({"worker": worker, "steps": len(costs), "times_slower": median(costs) / usual})
    return sorted(found, key=lambda facts: -float(facts["times_slower"]))


def paid_by_price(ledger: Ledger) -> list[dict[str, Any]]:
    """`price_factor`, `workers` and their `seconds`, steps that were lost included, the dearest first; none where all cost 1."""
    seconds: dict[float, float] = {}
    workers: dict[float, set[str]] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt | Lost) and entry.worker:
            took_s = entry.cost.total if isinstance(entry, Receipt) else entry.seconds
            seconds[entry.price_factor] = seconds.get(entry.price_factor, 0.0) + took_s
            workers.setdefault(entry.price_factor, set()).add(entry.worker)
    if not seconds.keys() - {1.0}:
        return []
    return [
        {"price_factor": factor, "workers": len(workers[factor]), "seconds": seconds[factor]}
        for factor in sorted(seconds, reverse=True)
    ]
