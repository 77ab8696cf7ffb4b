"""Whether `ce_gp_ucb` with its defaults is as good as validating every round, for fewer passes, on five small loops.

The loops are those of small_loops.py. Protocol, written before the first judged run:

- goal: on every loop, the mean final loss of the default is at most 1.05 times that of "always", for at most 65 % of its passes
- "always" is the same policy with the same settings and `query="always"`
- 20 seeds, 0 to 19; the default was chosen on seeds from 1000 on
- the interval of the ratio is a 95 % bootstrap interval over seeds (both methods have the same loop for a seed)
- `n_starts` is 5 instead of 50 for all methods, which makes a decision ten times as fast

The other rows have no goal. "earlier always" and "earlier default" have the settings from before this default: rate and noise
0.01, and the second the paper's rule alone, with kappa 0.9. "random" validates 60 % of the rounds by chance. "fixed" has a usual
config and no tuner.

    python -m benchmarks online.five_loops            20 seeds, ten minutes of one core
    python -m benchmarks online.five_loops --quick    2 seeds and two methods, a minute
    python -m benchmarks online.five_loops --show -o benchmarks/online/results
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import markdown
from benchmarks.online.runs import gather, run_all
from benchmarks.online.small_loops import LOOPS, Loop
from shoestring import OnlineTuner

TASK = "five_loops"
SEEDS = 20
MOST_LOSS, MOST_PASSES = 1.05, 0.65
EARLIER = {"forgetting_rate": 0.01, "noise_variance": 0.01}
METHODS: dict[str, dict[str, Any] | None] = {  # settings; None: without a tuner
    "default": {},
    "always": {"query": "always"},
    "random": {"query": "bernoulli", "query_probability": 0.6},
    "earlier default": EARLIER | {"query": "kappa", "unvalidated": "acquisition"},
    "earlier always": EARLIER | {"query": "always"},
    "fixed": None,
}
PLAN = {"n_starts": 5}


def run_one(method: str, seed: int) -> dict[str, Any]:
    """Return the final loss and the passes on each loop."""
    settings = METHODS[method]
    loops: dict[str, dict[str, Any]] = {}
    for name, kind in LOOPS.items():
        loop = kind(seed)
        passes = _train_fixed(loop) if settings is None else _tune(loop, PLAN | settings, seed)
        loops[name] = {"loss": round(loop.final_loss(), 6), "passes": passes}
    return {"loops": loops}


def _train_fixed(loop: Loop) -> int:
    for _ in range(loop.rounds):
        loop.train(loop.fixed)
    return 0


def _tune(loop: Loop, settings: dict[str, Any], seed: int) -> int:
    tuner = OnlineTuner(loop.space, loop.rounds, settings=settings, store=None, seed=seed)
    while (config := tuner.next()) is not None:
        loop.train(config)
        if tuner.should_validate:
            tuner.tell(loop.validate())
    return tuner.study.ledger.state.validations


def collect(runs: Sequence[Mapping[str, Any]], method: str, loop: str, kind: str) -> np.ndarray:
    """Return one number of each seed that both this method and "always" were run with, in the order of the seeds."""
    seeds = {run["seed"] for run in runs if run["method"] == "always"}
    found = {run["seed"]: run["loops"][loop][kind] for run in runs if run["method"] == method and run["seed"] in seeds}
    return np.array([found[seed] for seed in sorted(found)], dtype=np.float64)


def compare(losses: np.ndarray, others: np.ndarray) -> tuple[float, float, float]:
    """Return the ratio of the mean losses, with its 95 % bootstrap interval over seeds."""
    draws = np.random.default_rng(0).integers(0, losses.size, (10_000, losses.size))
    low, high = np.quantile(losses[draws].mean(axis=1) / others[draws].mean(axis=1), [0.025, 0.975])
    return float(losses.mean() / others.mean()), float(low), float(high)


def show(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of results: final loss over that of "always", with its interval, and share of rounds validated."""
    rows = []
    for method in [name for name in METHODS if any(run["method"] == name for run in runs)]:
        cells = [method]
        for loop, kind in LOOPS.items():
            ratio, low, high = compare(*(collect(runs, name, loop, "loss") for name in (method, "always")))
            share = collect(runs, method, loop, "passes").mean() / kind.rounds
            loss = collect(runs, method, loop, "loss").mean()
            span = "" if method == "always" else f", {ratio:.2f} ({low:.2f} to {high:.2f})"
            cells.append(f"{loss:.3f}{span}, {share:.0%}")
        rows.append(cells)
    return markdown.table(["method", *LOOPS], rows)


def judge(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    measured: dict[str, dict[str, float]] = {}
    for loop in LOOPS:
        ratio, low, high = compare(*(collect(runs, name, loop, "loss") for name in ("default", "always")))
        passes = float(np.mean(collect(runs, "default", loop, "passes") / collect(runs, "always", loop, "passes")))
        named = {"loss": ratio, "low": low, "high": high, "passes": passes}
        measured[loop] = {name: round(number, 3) for name, number in named.items()}
    misses = [loop for loop, m in measured.items() if m["loss"] > MOST_LOSS or m["passes"] > MOST_PASSES]
    peers = {
        method: {loop: round(float(collect(runs, method, loop, "loss").mean()), 4) for loop in LOOPS}
        for method in METHODS
        if any(run["method"] == method for run in runs)
    }
    target = {"loss": MOST_LOSS, "passes": MOST_PASSES}
    return {"name": TASK, "measured": measured, "target": target, "peers": peers, "misses": misses, "ok": not misses}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", choices=[*METHODS], help="default: all")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true", help="table of finished runs, nothing is run")
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("-o", type=Path, metavar="DIR", help="default: out/online or out/online_quick")
    options = parser.parse_args()
    folder = options.o or Path("out") / ("online_quick" if options.quick else "online")
    if options.show:
        runs = gather(folder, TASK)
    else:
        methods = options.methods or (["default", "always"] if options.quick else [*METHODS])
        seeds = 2 if options.quick else SEEDS
        runs = run_all(TASK, methods, seeds, PLAN, run_one, (), folder, options.workers)
    print(show(runs))
    verdict = judge(runs)
    print(json.dumps(verdict))
    sys.exit(0 if options.quick or verdict["ok"] else 1)


if __name__ == "__main__":
    main()
