"""A self-tuning network that overfits, with 3,000 images and 150 epochs: whether it regularises, and then when to tune it.

    python -m benchmarks online.few_images --workers 8       grid, four networks, then the race if they pass: see --seeds
    python -m benchmarks online.few_images --quick           small images, few epochs: a test of two minutes on one processor
    python -m benchmarks online.few_images --show            tables and a figure of the runs in -o DIR

A grid of fixed regularisation (dropout and distortion, each at a share of its largest value, without noise and tuning) measures
the possible gain. The self-tuning network starts at 0.05 of everything and tunes at every step, in four versions: with and
without biases that respond, and with batch normalisation after the response or before it. A version passes if its validation loss
closes `MIN_CLOSED_SHARE` of the way from the grid's weakest point to its best one; test losses are only reported. If one passes,
fixed schedules and bandits are compared with the best version, by which the paper's claim is judged. The tuning uses the
validation images, as in the paper, and the grid's best point is chosen on them, too.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: the processes share the machine

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.online import self_tuning
from benchmarks.online.fashion import DEBIAN, pick_device
from benchmarks.online.runs import arguments, finished_runs, gather, plus_minus, run_all
from benchmarks.online.self_tuning import Plan
from benchmarks.online.self_tuning_network import START, Ways
from benchmarks.online.self_tuning_report import compare, figure, table
from benchmarks.online.self_tuning_report import judge as judge_race

TASK, RACE = "few_images", "few_images_race"
SHARES = (START, 0.3, 0.6)
FIXED_SPREAD = 1e-4  # noise on hyperparameters that are not tuned
GRID = {f"fixed {d:g}/{a:g}": Ways(dropout=d, distortion=a, spread=FIXED_SPREAD) for d in SHARES for a in SHARES}
BUILDS = {
    "tuned": Ways(),
    "tuned, shift": Ways(answer="scale+shift"),
    "tuned, norm before": Ways(norm="before"),
    "tuned, shift, norm before": Ways(answer="scale+shift", norm="before"),
}
WEAKEST = next(iter(GRID))
MIN_CLOSED_SHARE = 0.8  # of the way from the weakest fixed point to the best one
QUICK = Plan(rounds=10, steps=4, batch=64, width=8, size=14, n_train=256, n_held_out=500, hyper_lr=0.02, watch=5)


def run_one(method: str, seed: int, plan: Plan, data: Path, device: str) -> dict[str, Any]:
    """Do a run of the first part: a fixed point, or a network that tunes itself at every step."""
    ways = GRID.get(method) or BUILDS[method]
    return self_tuning.run_one("never" if method in GRID else "1:1", seed, replace(plan, ways=ways), data, device)


def by_method(runs: Sequence[Mapping[str, Any]], kind: str) -> dict[str, list[float]]:
    grouped: dict[str, list[float]] = {}
    for run in runs:
        grouped.setdefault(run["method"], []).append(run[kind])
    return {name: grouped[name] for name in (*GRID, *BUILDS) if name in grouped}


def judge(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the share of the way that each version closes, and the version to compare schedules with."""
    loss = {name: float(np.mean(values)) for name, values in by_method(runs, "validation_loss").items()}
    best = min((name for name in loss if name in GRID), key=loss.__getitem__)
    gap = loss[WEAKEST] - loss[best]
    builds = [name for name in loss if name in BUILDS]
    chosen = min(builds, key=loss.__getitem__)
    closed = {name: round((loss[WEAKEST] - loss[name]) / gap, 3) if gap > 0.0 else None for name in builds}
    passed = gap > 0.0 and (loss[WEAKEST] - loss[chosen]) / gap >= MIN_CLOSED_SHARE
    return {
        "name": TASK,
        "measured": {"best_fixed": best, "gap": round(gap, 4), "closed": closed, "build": chosen},
        "target": {"closed": MIN_CLOSED_SHARE},
        "ok": bool(passed),
    }


def show(runs: Sequence[Mapping[str, Any]]) -> str:
    heads = ("method (dropout/distortion)", "validation loss", "test loss", "test accuracy, %", "values at the end")
    rows = []
    losses = {kind: by_method(runs, kind) for kind in ("validation_loss", "test_loss", "test")}
    for name in losses["test"]:
        ends = [run["hyper"][-1] for run in runs if run["method"] == name and run["hyper"]]
        cells = [name, *(plus_minus(losses[kind][name], 4) for kind in ("validation_loss", "test_loss"))]
        cells += [plus_minus([100.0 * value for value in losses["test"][name]], 2)]
        cells += [" ".join(f"{value:.2f}" for value in np.mean(ends, axis=0)) if ends else ""]
        rows.append(cells)
    return markdown.table(heads, rows)


def main() -> None:
    options = arguments(__doc__ or "", DEBIAN, [*GRID, *BUILDS], {"rounds": "epochs; default: 150, quick 10"})
    plan = QUICK if options.quick else Plan()
    plan = replace(plan, rounds=options.rounds or plan.rounds)
    inputs = (options.data, pick_device(options.device))
    if options.show:
        runs = gather(options.o, TASK)
    else:
        methods = options.methods or ([WEAKEST, "fixed 0.3/0.3", *BUILDS] if options.quick else [*GRID, *BUILDS])
        runs = run_all(TASK, methods, options.seeds, asdict(plan), run_one, (plan, *inputs), options.o, options.workers)
    verdict = judge(runs)
    print(show(runs))
    if (verdict["ok"] or options.quick) and not options.show:
        plan = replace(plan, ways=BUILDS[verdict["measured"]["build"]])
        raced = ["never", "1:1", "CE@0.8"] if options.quick else self_tuning.METHODS
        run_all(
            RACE, raced, options.seeds, asdict(plan), self_tuning.run_one, (plan, *inputs), options.o, options.workers
        )
    if finished_runs(options.o, RACE):
        race = gather(options.o, RACE)
        print("", table(race), "", compare(race), sep="\n")
        if options.show:
            figure(race, options.o / f"{RACE}.svg")
        verdict["race"] = judge_race(race)
    print(json.dumps(verdict))
    sys.exit(0 if options.quick or (verdict["ok"] and verdict.get("race", {}).get("ok")) else 1)


if __name__ == "__main__":
    main()
