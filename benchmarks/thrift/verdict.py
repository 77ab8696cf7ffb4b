"""Paired differences to the base rule, and the conditions for the policy to become the default.

condition        on the paired difference of mean normalised regret (policy less base; below 0 is better)
better at 10     its 95 % interval lies below 0
never worse      its upper end is at most +.01 at 1, 2 and 5 curves, at most +.003 at 20
better overall   the interval of the mean over 2, 5 and 10 curves lies below 0
no bad source    no source has an interval entirely above +.02, at any budget (Holm's correction over sources)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.race.statistics import Grid, mean, resample_weights, weights
from benchmarks.thrift.protocol import BASE, METHOD

RESAMPLES = 4000
MARGINS = {1.0: 0.01, 2.0: 0.01, 5.0: 0.01, 20.0: 0.003}
DECISIVE, OVERALL, BAD = 10.0, (2.0, 5.0, 10.0), 0.02
Run = dict[str, Any]


def pair(runs: Sequence[Run], unit: str, other: str = BASE) -> Grid:
    """Return the runs of all trainings as more seeds of one method, each paired with the other method's run on the same draw."""
    rows = []
    trainings = sorted({int(run["method"].partition("@")[2]) for run in runs if "@" in run["method"]})
    for run in runs:
        if run["unit"] != unit:
            continue
        name, _, training = run["method"].partition("@")
        if name == METHOD and training:
            rows.append({**run, "method": METHOD, "seed": 1000 * int(training) + run["seed"]})
        elif run["method"] == other:
            rows += [{**run, "seed": 1000 * k + run["seed"]} for k in trainings]
    return Grid.from_runs(rows)


def differences(grid: Grid, other: str = BASE) -> Any:
    """Return policy less the other, (cells, budgets)."""
    return grid.regret[:, grid.methods.index(METHOD)] - grid.regret[:, grid.methods.index(other)]


def compare(grid: Grid, other: str = BASE) -> list[dict[str, Any]]:
    """Return means and difference with interval at each budget."""
    found = differences(grid, other)
    base, draws = weights(grid.cells), resample_weights(grid.cells, RESAMPLES)
    rows = []
    for b, budget in enumerate(grid.budgets):
        both = np.isfinite(found[:, b])
        if not both.any():
            continue
        own = {
            name: float(mean(base, np.where(both, grid.regret[:, grid.methods.index(name), b], np.nan)))
            for name in (METHOD, other)
        }
        low, high = np.nanpercentile(mean(draws, found[:, b]), (2.5, 97.5))
        rows.append(
            {"budget": budget, "policy": own[METHOD], "other": own[other], "difference": float(mean(base, found[:, b]))}
            | {"low": float(low), "high": float(high), "runs": int(both.sum())}
            | {"better": int((found[both, b] < -1e-9).sum()), "worse": int((found[both, b] > 1e-9).sum())}
        )
    return rows


def overall(grid: Grid, budgets: Sequence[float] = OVERALL, other: str = BASE) -> dict[str, float]:
    """Return the difference of the mean over several budgets, with its interval."""
    found = differences(grid, other)[:, [grid.budgets.index(budget) for budget in budgets]].mean(axis=1)
    low, high = np.nanpercentile(mean(resample_weights(grid.cells, RESAMPLES), found), (2.5, 97.5))
    return {"difference": float(mean(weights(grid.cells), found)), "low": float(low), "high": float(high)}


def sources(grid: Grid) -> list[dict[str, Any]]:
    """Return the mean difference of each source at each budget, and whether it is clearly worse than the margin (Holm)."""
    found = differences(grid)
    names = sorted({cell[0] for cell in grid.cells})
    facts = []  # (probability of not being worse than the margin, mean difference), each (budgets,)
    for name in names:
        rows_of = [i for i, cell in enumerate(grid.cells) if cell[0] == name]
        cells = [grid.cells[i] for i in rows_of]
        again = mean(resample_weights(cells, RESAMPLES), found[rows_of])
        facts.append(((again <= BAD).mean(axis=0), mean(weights(cells), found[rows_of])))
    rows = []
    for b, budget in enumerate(grid.budgets):
        still = True
        for place, i in enumerate(np.argsort([chance[b] for chance, _ in facts], kind="stable")):
            chance, difference = facts[i]
            still = still and bool(chance[b] <= 0.025 / (len(names) - place))
            rows.append({"source": names[i], "budget": budget, "difference": float(difference[b]), "is_bad": still})
    return rows


def gate(grid: Grid) -> dict[str, Any]:
    """Return each condition with its numbers, and whether all hold."""
    rows = {row["budget"]: row for row in compare(grid)}
    bad = [f"{row['source']} at {row['budget']:g}" for row in sources(grid) if row["is_bad"]]
    conditions = {f"better at {DECISIVE:g}": rows[DECISIVE]["high"] < 0.0}
    conditions |= {f"never worse at {budget:g}": rows[budget]["high"] <= margin for budget, margin in MARGINS.items()}
    conditions |= {"better overall": overall(grid)["high"] < 0.0, "no bad source": not bad}
    return {"conditions": conditions, "bad_sources": bad, "passed": all(conditions.values())}
