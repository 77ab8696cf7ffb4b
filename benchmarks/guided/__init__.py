"""Compare two methods of a race by the ratio of their mean regrets, for each budget and each source.

    python -m benchmarks guided --quick
    python -m benchmarks guided runs.jsonl [--method guided_halving] [--base sequential_halving]

`README.md` beside this file has the protocol. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import problems, results, running, statistics
from benchmarks.race.trained import CURVE_S

GOALS = {5.0: 0.70, 10.0: 0.75}  # of the ratio, with budgets in curves
HIGHEST = {1.0: 1.05, 2.0: 1.05, 20.0: 1.05}  # of the upper end of its interval
RESAMPLES = 2000


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks guided", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="*", help="files of the race, .jsonl or .json")
    parser.add_argument("--quick", action="store_true", help="run the two on the shipped tables, one seed, and compare")
    parser.add_argument("--method", default="guided_halving")
    parser.add_argument("--base", default="sequential_halving")
    chosen = parser.parse_args(arguments)
    lines = [run for path in chosen.runs for run in read(path)] + (run_quickly() if chosen.quick else [])
    runs = [run for run in lines if run["method"] in (chosen.method, chosen.base)]
    found: dict[str, Any] = {"name": "guided", "method": chosen.method, "base": chosen.base}
    for suite, unit in sorted({(run["suite"], run["unit"]) for run in runs}):
        own = [run for run in runs if (run["suite"], run["unit"]) == (suite, unit)]
        if suite == "trained":
            found["real clock"] = compare_clock(own, chosen.method, chosen.base)
            continue
        grid = statistics.Grid.from_runs(own)
        rows, sources = compare(grid, chosen.method, chosen.base), compare_sources(grid, chosen.method, chosen.base)
        print(
            f"\n{suite}, budgets in {unit}: {len({c[:2] for c in grid.cells})} tables, {chosen.method} / {chosen.base}"
        )
        for row in rows:
            print(
                "{budget:5g}  {mean:.4f} / {base:.4f} = {ratio:.3f} [{low:.3f}, {high:.3f}]  {pairs} pairs".format(
                    **row
                )
            )
        for source, cells in sources.items():
            print(f"  {source:<24}" + "".join(f"{difference:+8.3f} ± {error:.3f}" for difference, error in cells))
        found[f"{suite} in {unit}"] = {"ratios": rows, "sources": sources}
    goals = judge(found.get("tables in curves", {}).get("ratios", []))
    print(json.dumps({**found, "goals": goals, "ok": all(goals.values())}))
    return 0 if all(goals.values()) else 1


def read(path: Path) -> list[dict[str, Any]]:
    """Return the runs of a file of the race, as written (`.jsonl`) or as stored (`.json`)."""
    return results.unpack(json.loads(path.read_text("utf-8"))) if path.suffix == ".json" else running.read(path)


def run_quickly() -> list[dict[str, Any]]:
    """Run both methods on one shipped table of each source with one full training, and return the records."""
    specs = problems.find_problems("tables", [problems.SHIPPED], per_source=1)
    methods = ("guided_halving", "sequential_halving")
    return [running.execute(running.Run(spec, method, 1.0, "curves", 0)) for spec in specs for method in methods]


def compare(grid: statistics.Grid, method: str, base: str) -> list[dict[str, Any]]:
    """Return for each budget the mean regrets of both on the runs that both have, and their ratio with its interval."""
    own, other = grid.methods.index(method), grid.methods.index(base)
    rows = []
    for at, budget in enumerate(grid.budgets):
        pairs = grid.regret[:, [own, other], at]  # (cells, 2)
        is_whole = np.isfinite(pairs).all(axis=1)
        cells = [cell for cell, whole in zip(grid.cells, is_whole, strict=True) if whole]
        if not cells:
            continue
        mean = statistics.weights(cells) @ pairs[is_whole]
        resampled = statistics.resample_weights(cells, RESAMPLES) @ pairs[is_whole]
        resampled = resampled[resampled[:, 1] > 0.0]  # a resample may have only sources that the base solves
        low, high = np.percentile(resampled[:, 0] / resampled[:, 1], statistics.LEVELS)
        numbers = {"mean": mean[0], "base": mean[1], "ratio": mean[0] / mean[1], "low": low, "high": high}
        rows.append({"budget": budget, **{name: float(value) for name, value in numbers.items()}, "pairs": len(cells)})
    return rows


def compare_sources(grid: statistics.Grid, method: str, base: str) -> dict[str, list[tuple[float, float]]]:
    """Return for each source and budget the mean difference of regrets and its standard error over runs, 0 for one run."""
    own, other = grid.methods.index(method), grid.methods.index(base)
    difference = grid.regret[:, own] - grid.regret[:, other]  # (cells, budgets)
    found = {}
    for source in sorted({cell[0] for cell in grid.cells}):
        columns = [column[np.isfinite(column)] for column in difference[[c[0] == source for c in grid.cells]].T]
        found[source] = [(float(np.mean(known)), _standard_error(known)) for known in columns if len(known)]
    return found


def _standard_error(values: Any) -> float:
    return float(np.std(values, ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0


def compare_clock(runs: Sequence[dict[str, Any]], method: str, base: str) -> list[dict[str, Any]]:
    """Print and return for each budget the mean log ratio of the lowest losses on a real clock, and the share of thinking.

    A run without a loss counts with the starting loss. Tasks have equal weight; the interval draws tasks, then seeds.
    """
    found = {(run["table"] + " " + run["source"], run["seed"], run["budget"], run["method"]): run for run in runs}
    rows = []
    for budget in sorted({key[2] for key in found}):
        pairs = [key for key in found if key[2] == budget and key[3] == method and (*key[:3], base) in found]
        cells = [("real clock", task, seed) for task, seed, _, _ in pairs]
        ratios = np.array([_log_loss(found[key]) - _log_loss(found[*key[:3], base]) for key in pairs])
        own = [found[key] for key in pairs]
        weight, draws = statistics.weights(cells), _draw_tasks(cells)
        mean, low, high = statistics.mean_with_interval(ratios, weight, draws)
        thinking = sum(run["thinking_s"] for run in own) / sum(run["spent"] for run in own)
        tasks = {
            task: float(np.mean(ratios[[cell[1] == task for cell in cells]])) for task in sorted({c[1] for c in cells})
        }
        row = {"seconds": budget * CURVE_S, "log_ratio": mean, "low": low, "high": high, "pairs": len(pairs)}
        rows.append({**row, "thinking": thinking, "tasks": tasks})
        print(
            f"\nreal clock, {budget * CURVE_S:g} s: mean log ratio of losses {mean:+.3f} [{low:+.3f}, {high:+.3f}], "
            f"{len(pairs)} pairs, thinking {thinking:.1%}"
        )
        print("\n".join(f"  {task:<24}{ratio:+8.3f}" for task, ratio in tasks.items()))
    return rows


def _log_loss(run: dict[str, Any]) -> float:
    return math.log(run["start"] if run["best"] is None else run["best"])


def _draw_tasks(cells: Sequence[statistics.Cell]) -> Any:
    """Return the weights of resamples that draw tasks, then seeds; each task counts as a source."""
    return statistics.resample_weights([(task, task, seed) for _, task, seed in cells], RESAMPLES)


def judge(rows: Sequence[dict[str, Any]]) -> dict[str, bool]:
    """Return whether each goal of the protocol is met; nothing without runs in curves."""
    return {
        **{
            f"ratio at {row['budget']:g}": row["ratio"] <= GOALS[row["budget"]]
            for row in rows
            if row["budget"] in GOALS
        },
        **{
            f"interval at {row['budget']:g}": row["high"] <= HIGHEST[row["budget"]]
            for row in rows
            if row["budget"] in HIGHEST
        },
    }
