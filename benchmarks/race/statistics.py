"""Summarise runs as numbers. The page formats them, `--json` prints them.

    mean        all sources have equal weight, so have the tables of a source, and the seeds of a table
    interval    95 %, by a nested bootstrap: it resamples sources, then the tables of each, then the seeds of each table
    difference  from the reference method, on the problems and seeds that both have, with the same resamples
    rank        per table, of the means over its seeds; 1 is best, ties share a rank; only tables that all ranked methods have
    critical difference   of average ranks by Nemenyi's test at 5 %: smaller differences may be chance (Demšar, JMLR 2006)

The mean of a method with missing runs is over the runs that it has; `cells` is their number.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.race import methods
from benchmarks.race.problems import SUITES
from shoestring import policies

Run = Mapping[str, Any]
Cell = tuple[str, str, int]  # source, table, seed
LEVELS = (2.5, 97.5)
REFERENCES = {"plain": "cost_aware_ei"}  # the method that we recommend for the suite
REFERENCE = "sequential_halving"  # for the other suites: the rule of our default, without its model
PART = ("suite", "unit", "steps", "pool")  # runs that differ in one of these are not compared


@dataclass(frozen=True)
class Grid:
    """Regrets of one suite in one unit as an array (cells, methods, budgets); nan where there is no run."""

    cells: list[Cell]
    methods: list[str]
    budgets: list[float]
    regret: Any

    @classmethod
    def from_runs(cls, runs: Iterable[Run]) -> Grid:
        rows = {(cell_of(run), str(run["method"]), float(run["budget"])): float(run["regret"]) for run in runs}
        cells, names = sorted({row[0] for row in rows}), sorted({row[1] for row in rows})
        budgets = sorted({row[2] for row in rows})
        regret = np.full((len(cells), len(names), len(budgets)), math.nan)
        indices = [{value: i for i, value in enumerate(axis)} for axis in (cells, names, budgets)]
        for row, value in rows.items():
            regret[tuple(index[part] for index, part in zip(indices, row, strict=True))] = value
        return cls(cells, names, budgets, regret)


def cell_of(run: Run) -> Cell:
    return str(run["source"]), str(run["table"]), int(run["seed"])


def weights(cells: Sequence[Cell], rng: np.random.Generator | None = None) -> Any:
    """Return (cells,) weights with sum 1, equal per source, table and seed; with `rng`, of one bootstrap resample."""
    tree: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for i, (source, table, _) in enumerate(cells):
        tree[source][table].append(i)
    weight = np.zeros(len(cells))

    def resample(items: Sequence[Any]) -> Sequence[Any]:
        return items if rng is None else [items[i] for i in rng.integers(len(items), size=len(items))]

    sources = resample(list(tree.values()))
    for tables in sources:
        chosen = resample(list(tables.values()))
        for seeds in chosen:
            for i in resample(seeds):
                weight[i] += 1.0 / (len(sources) * len(chosen) * len(seeds))
    return weight


def resample_weights(cells: Sequence[Cell], resamples: int, seed: int = 0) -> Any:
    """Return the weights of all resamples, (resamples, cells)."""
    rng = np.random.default_rng(seed)
    return np.array([weights(cells, rng) for _ in range(resamples)]).reshape(resamples, len(cells))


def mean(weight: Any, values: Any) -> Any:
    """Return weighted means of the finite values: (cells, …) values, (…, cells) weights; nan where none is finite."""
    finite = np.isfinite(values)
    total = weight @ np.where(finite, values, 0.0)
    mass = weight @ finite.astype(float)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(mass > 0, total / mass, math.nan)


def mean_with_interval(values: Any, base: Any, draws: Any) -> tuple[float, float, float]:
    """Return the mean of (cells,) values and its interval; nan without finite values."""
    estimate = float(mean(base, values))
    resampled = mean(draws, values)
    resampled = resampled[np.isfinite(resampled)]
    low, high = np.percentile(resampled, LEVELS) if len(resampled) else (math.nan, math.nan)
    return estimate, float(low), float(high)


def table_of_means(grid: Grid, base: Any, draws: Any) -> list[dict[str, Any]]:
    rows = []
    for m, method in enumerate(grid.methods):
        for b, budget in enumerate(grid.budgets):
            values = grid.regret[:, m, b]
            if not np.isfinite(values).any():
                continue
            estimate, low, high = mean_with_interval(values, base, draws)
            known = values[np.isfinite(values)]
            rows.append(
                {"method": method, "budget": budget, "mean": estimate, "low": low, "high": high}
                | {"median": float(np.median(known)), "cells": len(known)}
            )
    return rows


def differences(grid: Grid, reference: str, base: Any, draws: Any) -> list[dict[str, Any]]:
    """Return the differences reference minus method; below 0 the reference is better."""
    if reference not in grid.methods:
        return []
    own = grid.methods.index(reference)
    rows = []
    for m, method in enumerate(grid.methods):
        for b, budget in enumerate(grid.budgets):
            values = grid.regret[:, own, b] - grid.regret[:, m, b]
            if m == own or not np.isfinite(values).any():
                continue
            estimate, low, high = mean_with_interval(values, base, draws)
            wins, ties, losses = _count_won_tables(grid.cells, values)
            rows.append(
                {"method": method, "budget": budget, "difference": estimate, "low": low, "high": high}
                | {"wins": wins, "ties": ties, "losses": losses}
            )
    return rows


def _count_won_tables(cells: Sequence[Cell], values: Any) -> tuple[int, int, int]:
    """Return the numbers of tables on which the reference is better, equal and worse in the mean over seeds."""
    by_table: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (source, table, _), value in zip(cells, values.tolist(), strict=True):
        if math.isfinite(value):
            by_table[source, table].append(value)
    means = [sum(own) / len(own) for own in by_table.values()]
    return sum(m < -1e-12 for m in means), sum(abs(m) <= 1e-12 for m in means), sum(m > 1e-12 for m in means)


def by_source(grid: Grid) -> list[dict[str, Any]]:
    """Return the means per source."""
    rows = []
    for source in dict.fromkeys(cell[0] for cell in grid.cells):
        own = [i for i, cell in enumerate(grid.cells) if cell[0] == source]
        weight = weights([grid.cells[i] for i in own])
        means = mean(weight, grid.regret[own].reshape(len(own), -1)).reshape(grid.regret.shape[1:])
        rows += [
            {"source": source, "method": method, "budget": budget, "mean": float(means[m, b])}
            for m, method in enumerate(grid.methods)
            for b, budget in enumerate(grid.budgets)
            if math.isfinite(means[m, b])
        ]
    return rows


def ranks(grid: Grid, reference: str | None = None) -> dict[str, Any]:
    """Return average ranks over (table, budget) blocks.

    The critical difference counts tables only, because budgets are not independent. A method is ranked if it has all tables
    at the budgets of the reference (without a reference: at the budgets that have the most tables).
    """
    blocks: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, (source, table, _) in enumerate(grid.cells):
        blocks[source, table].append(i)
    means = np.array([_mean_of_finite(grid.regret[own]) for own in blocks.values()])  # (tables, methods, budgets)
    own = grid.methods.index(reference) if reference in grid.methods else None
    share = np.isfinite(means).mean(axis=0)  # (methods, budgets): share of tables
    counted = share.max(axis=0) > 0 if own is None else share[own] >= share[own].max() - 1e-12
    means, budgets = (
        means[:, :, counted],
        [b for b, is_counted in zip(grid.budgets, counted, strict=True) if is_counted],
    )
    share = np.isfinite(means).mean(axis=(0, 2))
    least = share.max() if own is None else share[own]
    ranked = [m for m, name in enumerate(grid.methods) if share[m] >= least - 1e-12 and name != methods.ORACLE]
    means = means[:, ranked]
    complete = np.isfinite(means).all(axis=(1, 2))
    names = [grid.methods[m] for m in ranked]
    left_out = [name for name in grid.methods if name not in names and name != methods.ORACLE]
    if len(names) < 2 or not complete.any():
        return {"ranks": {}, "tables": 0, "budgets": budgets, "critical_difference": None, "left_out": left_out}
    per_block = np.array([[rank(table[:, b]) for b in range(table.shape[1])] for table in means[complete]])
    average = per_block.mean(axis=(0, 1))
    order = np.argsort(average, kind="stable")
    return {
        "ranks": {names[i]: float(average[i]) for i in order},
        "tables": int(complete.sum()),
        "budgets": budgets,
        "critical_difference": critical_difference(len(names), int(complete.sum())),
        "left_out": left_out,
    }


def _mean_of_finite(values: Any) -> Any:
    """Return the mean of finite values over the first axis; nan where there is none."""
    finite = np.isfinite(values)
    count = finite.sum(axis=0)
    return np.where(count > 0, np.where(finite, values, 0.0).sum(axis=0) / np.maximum(count, 1), math.nan)


def rank(values: Any) -> Any:
    """Return ranks, 1 for the smallest value; ties get their mean rank."""
    below = (values[None, :] < values[:, None]).sum(axis=1)
    equal = (values[None, :] == values[:, None]).sum(axis=1)
    return below + (equal + 1) / 2.0


def critical_difference(count: int, tables: int) -> float:
    from scipy.stats import studentized_range

    q = float(studentized_range.ppf(0.95, count, math.inf)) / math.sqrt(2.0)
    return q * math.sqrt(count * (count + 1) / (6.0 * tables))


def cliques(average: Mapping[str, float], critical: float) -> list[tuple[str, str]]:
    """Return the first and last method of each maximal group whose ranks differ by at most `critical`."""
    names = sorted(average, key=lambda name: average[name])
    found: list[tuple[int, int]] = []
    for i, name in enumerate(names):
        j = max(k for k, other in enumerate(names) if average[other] - average[name] <= critical)
        if j > i and (not found or j > found[-1][1]):
            found.append((i, j))
    return [(names[i], names[j]) for i, j in found]


def losses(found: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the differences where another method is better than the reference in the mean, the certain ones first."""
    behind = [
        {**row, "certain": row["low"] > 0.0}
        for row in found
        if row["method"] != methods.ORACLE and row["difference"] > 0.0
    ]
    return sorted(behind, key=lambda row: (not row["certain"], -row["difference"]))


def effort(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return versions, runs, errors and computing time per method."""
    grouped: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        grouped[run["method"]].append(run)
    return [
        {
            "method": method,
            "ours": methods.is_ours(method),
            "versions": sorted({str(run["version"]) for run in own}),
            "runs": len(own),
            "seeds": len({run["seed"] for run in own}),
            "tables": len({(run["source"], run["table"]) for run in own}),
            "errors": sum(run["error"] is not None for run in own),
            "an_error": next((run["error"] for run in own if run["error"]), None),
            "decision_ms": 1000.0
            * sum(run["thinking_s"] for run in own)
            / max(1, sum(run["decisions"] for run in own)),
            "trials": sum(run["trials"] for run in own) / len(own),
        }
        for method, own in sorted(grouped.items())
    ]


def part_of(run: Run) -> tuple[str, str, int, int]:
    return str(run["suite"]), str(run["unit"]), int(run["steps"]), int(run["pool"] or 0)


def summary(runs: Sequence[Run], *, reference: str | None = None, resamples: int = 1000) -> dict[str, Any]:
    """Return all numbers of the page."""
    parts = []
    for part in sorted({part_of(run) for run in runs}, key=lambda part: (SUITES.index(part[0]), part)):
        chosen = reference or REFERENCES.get(part[0], REFERENCE)
        own = [run for run in runs if part_of(run) == part]
        grid = Grid.from_runs(own)
        base, draws = weights(grid.cells), resample_weights(grid.cells, resamples)
        compared = differences(grid, chosen, base, draws)
        parts.append(
            {
                **dict(zip(PART, part, strict=True)),
                "reference": chosen,
                "budgets": grid.budgets,
                "sources": sorted({cell[0] for cell in grid.cells}),
                "tables": sorted({f"{cell[0]}/{cell[1]}" for cell in grid.cells}),
                "means": table_of_means(grid, base, draws),
                "differences": compared,
                "from_default": differences(grid, policies.DEFAULT, base, draws),
                "by_source": by_source(grid),
                "ranks": ranks(grid, chosen),
                "losses": losses(compared),
                "effort": effort(own),
                "lanes": sorted({(run["lanes"], run["cores"]) for run in own if "lanes" in run}),
            }
        )
    times = sorted(run["at"] for run in runs)
    return {
        "reference": parts[0]["reference"],
        "runs": len(runs),
        "from": times[0],
        "to": times[-1],
        "resamples": resamples,
        "parts": parts,
    }
