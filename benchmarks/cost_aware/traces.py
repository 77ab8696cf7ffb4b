"""One run of one method on one problem, as a record of what was bought; runs are kept and not made twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from problems import Problem

from shoestring import policies
from shoestring.core.entries import Entry, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.runners.loop import run
from shoestring.runners.simulated import Simulated

ALPHAS = (0.0, 0.01, 0.1, 0.2, 0.5, 1.0)
SLACKS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
NO_LIMIT_S = 1e9


def method(name: str) -> dict[str, Any]:
    """Settings of a method by its name: ei, eipu, ei_cool, carbo, random, alpha=0.2, cei=0.2, and cei=0.2/gp."""
    name, _, cost_model = name.partition("/")
    kind, _, number = name.partition("=")
    settings: dict[str, Any] = {
        "ei": {"acquisition": "ei"},
        "eipu": {"acquisition": "eipu"},
        "ei_cool": {"acquisition": "ei_cool"},
        "carbo": {"acquisition": "ei_cool", "initial_design": "cheap"},
        "alpha": {"acquisition": "ei_alpha", "cost_exponent": float(number or 0)},
        "cei": {"acquisition": "cei", "slack": float(number or 0)},
        "random": {},
    }[kind]
    return settings | ({"cost_model": cost_model} if cost_model else {})


def ledger_of(problem: Problem, name: str, seed: int, evaluations: int, budget_s: float = NO_LIMIT_S) -> Ledger:
    """Run until `evaluations` trials or `budget_s` seconds are used up."""
    kind = "random_search" if name == "random" else "cost_aware_ei"
    settings = method(name)
    policy = policies.make(kind, settings)
    opened = Opened(space=problem.space, budget=Budget(f"{budget_s}s"), policy=kind, settings=settings, seed=seed)
    newest = [Ledger([opened])]

    def append(ledger: Ledger, *entries: Entry) -> Ledger:
        for entry in entries:
            ledger = ledger.append(entry)
        newest[0] = ledger
        return ledger

    def enough() -> bool:
        return len(newest[0].trials) >= evaluations and not newest[0].open_orders

    return run(newest[0], policy, Simulated(problem), append, should_stop=enough).ledger


@dataclass(frozen=True)
class Trace:
    seconds: np.ndarray[Any, Any]  # of each finished trial
    losses: np.ndarray[Any, Any]
    why: list[Mapping[str, Any]]

    def best_after(self, seconds: float) -> float:
        """The best loss among trials finished within that time; inf when there is none."""
        done = np.cumsum(self.seconds) <= seconds * (1 + 1e-12)
        return float(np.min(self.losses[done], initial=np.inf))


class Traces:
    """Runs kept as JSON lines in one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        self._known: dict[str, dict[str, Any]] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                record = json.loads(line)
                self._known[record["key"]] = record

    def of(self, problem: Problem, name: str, seed: int, evaluations: int, budget_s: float = NO_LIMIT_S) -> Trace:
        key = (
            f"{problem.folder}/{problem.name}/{len(problem.losses)} {name} seed={seed} n={evaluations} s={budget_s:.6g}"
        )
        if key not in self._known:
            ledger = ledger_of(problem, name, seed, evaluations, budget_s)
            done = [t for t in ledger.trials if t.steps == 1]
            record = {
                "key": key,
                "seconds": [t.step_costs[0] for t in done],
                "losses": [t.losses[0] for t in done],
                "why": [dict(ledger.orders[t.number].why) for t in done],
            }
            with self.path.open("a") as file:
                file.write(json.dumps(record) + "\n")
            self._known[key] = record
        record = self._known[key]
        return Trace(np.array(record["seconds"]), np.array(record["losses"]), record["why"])


def interval(values: Iterable[float], resamples: int = 1000) -> tuple[float, float, float]:
    """Mean and its 95 % bootstrap interval."""
    data = np.array(list(values), dtype=float)
    rng = np.random.default_rng(0)
    means = data[rng.integers(data.size, size=(resamples, data.size))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(data.mean()), float(low), float(high)
