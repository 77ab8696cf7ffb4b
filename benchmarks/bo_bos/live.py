"""BO-BOS against GP-UCB on real trainings in their own continuous space: linear policies that swim, logistic regression.

    python -m benchmarks bo_bos.live                                   swimmer, discounted and not; 10 seeds, two hours or so
    python -m benchmarks bo_bos.live --tasks logreg_digits --seeds 20  a few minutes
    python -m benchmarks bo_bos.live --quick                           logreg_digits, 1 seed, nothing written

Needs gymnasium with mujoco for the swimmer. Rows are those of `studies.py`, with one more list: for the swimmer the undiscounted,
unclipped return is what one wants in the end, whatever the methods are told, so `scores` holds [epoch, negative return] of
every run that was finished. Studies are kept in `-o` and not run again; results/live.json is their summary. Last line:
one JSON object; exit 1 when BO-BOS does not save epochs on most tasks.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: small matrices, threads only get in the way

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bo_bos.compare import read, show, summarise
from benchmarks.bo_bos.studies import Problem, live, study
from benchmarks.bo_bos.tasks import FASHION, Revealed, task

HERE = Path(__file__).parent
SUMMARY = HERE / "results" / "live.json"
TASKS = "swimmer_discounted,swimmer"
METHODS = "gp_ucb,bo_bos"


def scores(problem: Problem, row: dict[str, Any]) -> list[list[float]]:
    """[epochs spent, score] at the end of each run that was trained in full, the score of the run being -return."""
    assert isinstance(problem.source, Revealed)
    found, epochs = [], 0
    for steps, config in row.pop("configs"):
        epochs += steps
        if steps == problem.max_steps:
            found.append([epochs, round(problem.source.curve(config).score, 4)])
    return found


def race(asked: argparse.Namespace) -> list[dict[str, Any]]:
    """All studies asked for, those of earlier calls included."""
    kept = [] if asked.quick else [row for path in sorted(asked.out.glob("*.jsonl")) for row in read(path)]
    rows = list({(row["table"], row["method"], row["seed"]): row for row in kept}.values())
    done = {(row["table"], row["method"], row["seed"]) for row in rows}
    for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
        for name in asked.tasks.split(","):
            for method in asked.methods.split(","):
                if (name, method, seed) in done:
                    continue
                began = time.perf_counter()
                problem = live(task(name, fashion_at=asked.fashion, data=asked.data))
                row = study(problem, method, seed, with_configs=True)
                row["scores"] = scores(problem, row)
                rows.append(row)
                took = time.perf_counter() - began
                print(
                    f"seed {seed} {name} {method}: {len(row['runs'])} runs, {took:.0f} s", file=sys.stderr, flush=True
                )
                if not asked.quick:
                    asked.out.mkdir(parents=True, exist_ok=True)
                    with (asked.out / asked.lines).open("a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")
    return rows


def returns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """{task: {method: undiscounted return of the best finished run, mean and standard error}} for the swimmer."""
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
    parser.add_argument("--tasks", default=TASKS, help="with commas between")
    parser.add_argument("--methods", default=METHODS, help="with commas between")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder with ml_datasets/")
    parser.add_argument(
        "--fashion", type=Path, default=FASHION, help="folder with the idx files of Fashion-MNIST, or an npz"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=HERE.parents[1] / "out" / "bo_bos" / "live", help="where studies are kept"
    )
    parser.add_argument("--lines", default="live.jsonl", help="name of the file for new studies in that folder")
    parser.add_argument("--quick", action="store_true")
    asked = parser.parse_args()
    if asked.quick:
        asked.tasks, asked.seeds = "logreg_digits", 1
    rows = race(asked)
    summary = summarise(rows)
    told, ok = show(summary, "bo_bos_live")
    told["measured"]["return"] = returns(rows)
    if not asked.quick:
        SUMMARY.parent.mkdir(exist_ok=True)
        SUMMARY.write_text(json.dumps({"tasks": summary, "return": returns(rows)}, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told))
    return 0 if ok or asked.quick else 1


if __name__ == "__main__":
    sys.exit(main())
