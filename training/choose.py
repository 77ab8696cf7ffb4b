"""Compare rules and weights in lockstep, to choose constants and to measure the effect of each part of the training.

The file has one line for each rule, weights, training and budget:

    rule, weights, training     names, and the seed of the training; `sequential_halving` has neither weights nor training
    curves                      the budget
    regret                      {"source/table": [regret for each seed]}

Each rule is judged with weights that have not seen the source. Differences to sequential halving are paired by seed and table;
a standard error is over sources.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.race.problems import ProblemSpec

from training import lockstep
from training.export import restore
from training.halving import halve
from training.sources import FOLDS, fold_of

BASE = "sequential_halving"
Line = dict[str, Any]


def judge(
    tables: Sequence[ProblemSpec],
    seeds: Sequence[int],
    budgets: Sequence[float],
    rules: Mapping[str, lockstep.Rule],
    weights: Mapping[str, Path],
    trainings: Sequence[int],
    device: torch.device,
    done: Iterable[Line] = (),
) -> Iterator[Line]:
    """Yield the lines that are not in `done`."""
    have = {key_of(line) for line in done}
    drawn = lockstep.draw(tables, seeds)
    for curves in budgets:
        studies = list(zip(drawn.losses, drawn.limit, drawn.steps, strict=True))
        orders = [halve(y, limit, int(steps), max(1, round(curves * steps))) for y, limit, steps in studies]
        base = {"rule": BASE, "weights": "", "training": 0, "curves": curves}
        if key_of(base) not in have:
            yield base | _measure(drawn, curves, lockstep.best_of(drawn, orders))
        for name, folder in weights.items():
            for training in trainings:
                lines = [{"rule": rule, "weights": name, "training": training, "curves": curves} for rule in rules]
                if all(key_of(line) in have for line in lines):
                    continue
                networks = {fold: restore(folder / f"{fold}-{training}.npz")[0].to(device) for fold in _folds(tables)}
                for line, rule in zip(lines, rules.values(), strict=True):
                    if key_of(line) not in have:
                        found = lockstep.race(networks, fold_of, drawn, curves, rule, device, orders)
                        yield line | _measure(drawn, curves, found)


def key_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in ("rule", "weights", "training", "curves"))


def _folds(tables: Sequence[ProblemSpec]) -> list[str]:
    needed = {fold_of(spec.source) for spec in tables}
    return [fold for fold in FOLDS if fold in needed]


def _measure(drawn: lockstep.DrawnStudies, curves: float, found: lockstep.Floats) -> Line:
    regret: dict[str, list[float]] = defaultdict(list)
    for source, table, value in zip(drawn.source, drawn.table, lockstep.regrets(drawn, curves, found), strict=True):
        regret[f"{source}/{table}"].append(round(float(value), 5))
    return {"regret": dict(regret)}


def summary(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """Return a row for each rule, weights and budget: the regret, the difference to halving with its error, the worst source."""
    base = {line["curves"]: line["regret"] for line in lines if line["rule"] == BASE}
    groups: dict[tuple[str, str, float], list[Line]] = defaultdict(list)
    for line in lines:
        if line["rule"] != BASE and line["curves"] in base:
            groups[line["rule"], line["weights"], line["curves"]].append(line)
    rows = []
    for (rule, weights, curves), own in groups.items():
        change = _by_source(
            {
                table: np.mean([np.subtract(line["regret"][table], base[curves][table]) for line in own])
                for table in base[curves]
            }
        )
        values = np.array(list(change.values()))
        error = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
        worst = max(change, key=lambda source: change[source])
        rows.append(
            {"rule": rule, "weights": weights, "curves": curves, "trainings": len(own)}
            | {"difference": float(values.mean()), "standard_error": error}
            | {"regret": float(values.mean()) + _mean_of(base[curves]), "base": _mean_of(base[curves])}
            | {"worst": worst, "worst_difference": float(change[worst])}
        )
    return rows


def _by_source(of_tables: Mapping[str, Any]) -> dict[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for table, value in of_tables.items():
        found[table.partition("/")[0]].append(float(value))
    return {source: float(np.mean(values)) for source, values in found.items()}


def _mean_of(regret: Mapping[str, Sequence[float]]) -> float:
    return float(np.mean(list(_by_source({table: np.mean(values) for table, values in regret.items()}).values())))
