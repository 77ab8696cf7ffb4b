"""BO-BOS and GP-UCB on real trainings in continuous spaces: linear policies for Swimmer, logistic regression.

    python -m benchmarks bo_bos.live                                   swimmer, discounted and not; 10 seeds, about two hours
    python -m benchmarks bo_bos.live --tasks logreg_digits --seeds 20  a few minutes
    python -m benchmarks bo_bos.live --quick                           logreg_digits, 1 seed, nothing written

Needs gymnasium with mujoco for the swimmer. Rows are those of `studies.py` with one more list: `scores` holds
[step, negative return] of every finished run. For the swimmer this is the undiscounted, unclipped return, which is the real
objective, whatever the methods optimise. Studies are stored in `-o` and not repeated; results/live.json is their summary.
Last line: one JSON object; exit 1 when BO-BOS does not save steps on most tasks.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: threads slow down small matrices

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bo_bos.compare import read, show, summarise
from benchmarks.bo_bos.studies import Problem, live_problem, run_study
from benchmarks.bo_bos.tasks import FASHION, TaskSource, task

HERE = Path(__file__).parent
SUMMARY = HERE / "results" / "live.json"
TASKS = "swimmer_discounted,swimmer"
METHODS = "gp_ucb,bo_bos"


def scores(problem: Problem, row: dict[str, Any]) -> list[list[float]]:
    """Return [steps spent, score] at the end of each full run; the score is the negative return."""
    assert isinstance(problem.source, TaskSource)
    found, spent = [], 0
    for steps, config in row.pop("configs"):
        spent += steps
        if steps == problem.max_steps:
            found.append([spent, round(problem.source.curve(config).score, 4)])
    return found


def race(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the requested studies, including those of earlier calls."""
    stored = [] if options.quick else [row for path in sorted(options.out.glob("*.jsonl")) for row in read(path)]
    rows = list({(row["table"], row["method"], row["seed"]): row for row in stored}.values())
    done = {(row["table"], row["method"], row["seed"]) for row in rows}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for name in options.tasks.split(","):
            for method in options.methods.split(","):
                if (name, method, seed) in done:
                    continue
                began = time.perf_counter()
                problem = live_problem(task(name, fashion_at=options.fashion, data=options.data))
                row = run_study(problem, method, seed, with_configs=True)
                row["scores"] = scores(problem, row)
                rows.append(row)
                took = time.perf_counter() - began
                print(
                    f"seed {seed} {name} {method}: {len(row['runs'])} runs, {took:.0f} s", file=sys.stderr, flush=True
                )
                if not options.quick:
                    options.out.mkdir(parents=True, exist_ok=True)
                    with (options.out / options.lines).open("a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")
    return rows


def returns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return {task: {method: mean and standard error of the undiscounted return of the best finished run}} for Swimmer."""
    found: dict[str, Any] = {}
    for row in rows:
        if row["table"].startswith("swimmer"):
            best = -min(score for _, score in row["scores"])
            found.setdefault(row["table"], {}).setdefault(row["method"], []).append(best)
    return {
        name: {
            method: {"mean": round(float(np.mean(best)), 2), "se": round(float(np.std(best) / np.sqrt(len(best))), 2)}
            for method, best in methods.items()
        }
        for name, methods in found.items()
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", default=TASKS, help="names separated by commas")
    parser.add_argument("--methods", default=METHODS, help="names separated by commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder with ml_datasets/")
    parser.add_argument(
        "--fashion", type=Path, default=FASHION, help="folder with the idx files of Fashion-MNIST, or an npz"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=HERE.parents[1] / "out" / "bo_bos" / "live", help="folder for the studies"
    )
    parser.add_argument("--lines", default="live.jsonl", help="name of the file for new studies in that folder")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    if options.quick:
        options.tasks, options.seeds = "logreg_digits", 1
    rows = race(options)
    summary = summarise(rows)
    result, ok = show(summary, "bo_bos_live")
    result["measured"]["return"] = returns(rows)
    if not options.quick:
        SUMMARY.parent.mkdir(exist_ok=True)
        SUMMARY.write_text(json.dumps({"tasks": summary, "return": returns(rows)}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result))
    return 0 if ok or options.quick else 1


if __name__ == "__main__":
    sys.exit(main())
