"""Compare `thrift` with other policies on a real clock, with models that are really trained and decisions that take time.

    python -m benchmarks thrift clock --lanes 16 -o out/thrift/clock.jsonl      run all, or continue
    python -m benchmarks thrift clock --report out/thrift/clock.jsonl

Every run has a core of its own. Seeds run one after another, each in shuffled order. The result of a run is the lowest validation
loss within the seconds. A difference is that of the means, in % of the other's, on the seeds that both have; its interval
resamples seeds. In the mean over tasks, every task has the same weight.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race import problems, running
from benchmarks.race.trained import CURVE_S

METHOD = 'thrift{"quickest_step_s": 0}'  # the default leaves such quick steps to halving, because of these results
OTHERS = ("sequential_halving", "asha", "optuna_tpe_hyperband")
CONDITION_METHODS = ("asha", "optuna_tpe_hyperband")  # in the conditions
TASKS = (("mlp/digits", 4.0), ("mlp/digits", 20.0), ("xgboost/digits", 10.0), ("networks/cnn", 10.0))  # name, seconds
SEEDS = 20
MARGIN = 5.0  # %: the largest upper end of a task's interval
RESAMPLES = 10_000
Run = dict[str, Any]


def plan(seeds: int, tasks: Sequence[tuple[str, float]] = TASKS) -> list[running.Run]:
    specs = {spec.name: spec for spec in problems.find_problems("trained", [], per_source=None)}
    return [
        running.Run(specs[name], method, seconds / CURVE_S, "seconds", seed)
        for seed in range(seeds)
        for name, seconds in tasks
        for method in (METHOD, *OTHERS)
    ]


def compare(runs: Sequence[Run], other: str) -> list[dict[str, Any]]:
    """Return a row for each task, and one for their mean."""
    rng = np.random.default_rng(0)
    rows, resampled = [], []
    for name, seconds in TASKS:
        pairs = _pairs(runs, name, seconds, other)
        if not len(pairs):
            continue
        drawn = pairs[rng.integers(len(pairs), size=(RESAMPLES, len(pairs)))].mean(axis=1)  # (RESAMPLES, 2)
        resampled.append(_percent(drawn))
        own, others = pairs.mean(axis=0)
        counts = {"better": int((pairs[:, 0] < pairs[:, 1]).sum()), "seeds": len(pairs)}
        row = {"task": name, "seconds": seconds, "policy": float(own), "other": float(others)}
        rows.append(row | _interval(float(_percent(pairs.mean(axis=0))), resampled[-1]) | counts)
    if rows:
        middle = float(np.mean([row["percent"] for row in rows]))
        rows.append({"task": "mean over tasks", **_interval(middle, np.mean(resampled, axis=0))})
    return rows


def _pairs(runs: Sequence[Run], name: str, seconds: float, other: str) -> Any:
    """Return the lowest losses of the policy and of the other, (seeds, 2); a run without a loss has the starting loss."""
    found: dict[tuple[str, int], float] = {}
    for run in runs:
        if f"{run['source']}/{run['table']}" == name and abs(run["budget"] * CURVE_S - seconds) < 1e-6:
            found[run["method"], run["seed"]] = run["start"] if run["best"] is None else run["best"]
    seeds = sorted({seed for method, seed in found if method == METHOD} & {s for m, s in found if m == other})
    return np.array([[found[METHOD, seed], found[other, seed]] for seed in seeds]).reshape(-1, 2)


def _percent(means: Any) -> Any:
    return 100 * (means[..., 0] / means[..., 1] - 1)


def _interval(percent: float, resampled: Any) -> dict[str, float]:
    low, high = np.percentile(resampled, (2.5, 97.5))
    return {"percent": percent, "low": float(low), "high": float(high)}


def judge(runs: Sequence[Run]) -> dict[str, Any]:
    """Return each condition and whether all hold: no task worse by more than the margin, and better in the mean over tasks."""
    conditions: dict[str, bool] = {}
    for other in CONDITION_METHODS:
        *tasks, mean = compare(runs, other) or [{"percent": 0.0}]
        enough = len(tasks) == len(TASKS)
        conditions[f"not worse than {other}"] = enough and all(row["high"] <= MARGIN for row in tasks)
        conditions[f"better than {other} in the mean"] = enough and mean["percent"] < 0
    return {"conditions": conditions, "passed": all(conditions.values())}


def report(runs: Sequence[Run]) -> dict[str, Any]:
    results: dict[str, Any] = {"name": "thrift clock"}
    for other in OTHERS:
        print(f"\n{METHOD} less {other}, in % of its loss")
        results[other] = compare(runs, other)
        for row in results[other]:
            about = f"{row['policy']:.4f} against {row['other']:.4f}, {row['seeds']} seeds" if "seeds" in row else ""
            name = f"{row['task']} {row['seconds']:g} s" if "seconds" in row else row["task"]
            print(f"{name:<22} {row['percent']:+6.1f} [{row['low']:+.1f}, {row['high']:+.1f}]   {about}".rstrip())
    own = [run for run in runs if run["method"] == METHOD]
    results["thinking"] = sum(run["thinking_s"] for run in own) / max(1e-9, sum(run["spent"] for run in own))
    results |= judge(runs)
    print(
        f"\nshare of the seconds that {METHOD} took to decide: {results['thinking']:.3f}; {json.dumps(results['conditions'])}"
    )
    print(json.dumps(results))
    return results


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks thrift clock", description="Compare on a real clock.")
    parser.add_argument(
        "--lanes", type=int, default=1, help="number of runs at the same time, each on its own cores (Linux)"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--report", type=Path, nargs="+", help="files of runs to report on")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/thrift/clock.jsonl"))
    chosen = parser.parse_args(arguments)
    if not chosen.report:
        remaining = running.missing_runs(plan(chosen.seeds), running.read(chosen.out))
        print(f"{len(remaining)} runs to do", file=sys.stderr, flush=True)
        for line in running.race(remaining, chosen.out, 1, lanes=chosen.lanes):
            if "absent" in line:
                print(f"{line['method']} did not run: {line['absent']}", file=sys.stderr, flush=True)
    report([line for path in chosen.report or [chosen.out] for line in running.read(path)])
    return 0
