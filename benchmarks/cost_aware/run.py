"""Run the experiments of arXiv:2011.11456 on tables, one command each.

    python -m benchmarks cost_aware.run cost_model_error  --data DIR ... -o out    (a) error of cost models (Fig. 2)
    python -m benchmarks cost_aware.run tradeoff          --data DIR ... -o out    (b) loss against time at N trials (Figs. 3, 5)
    python -m benchmarks cost_aware.run time_allocation   --data DIR ... -o out    (c) ranks at multiples of a budget (Figs. 4, 6)
    python -m benchmarks cost_aware.run front             --data DIR ... -o out    (d) EI-cost front over a run (Figs. 1, 7)
    python -m benchmarks cost_aware.run cost_model_effect --data DIR ... -o out    (e) cost models inside the search (Fig. 9)
    python -m benchmarks cost_aware.run transfer_models   --data DIR ... -o out    (f) models fitted to other problems (Fig. 8)

Each writes <experiment>.jsonl (one line per number, with its interval) and <experiment>.png to -o; (b) and (c) also write their
tables as <experiment>.md. It prints the lines and then one JSON object that says whether the paper's claim holds; the exit code
is 1 if it does not. Runs are stored in -o and reused. Long runs can be executed beforehand, in parts and with a time limit:

    python -m benchmarks cost_aware.run collect --collect races --part 0 --parts 2 --minutes 10 --data DIR ... -o out

Tables that `xgboost_problems.py` recorded are replayed; with `--train` models are trained, in a continuous space.
`--quick` uses fewer problems, seeds and trials: two minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cost_aware import figures, page
from benchmarks.cost_aware.models_alone import cost_model_error, front
from benchmarks.cost_aware.problems import Problem, load
from benchmarks.cost_aware.races import (
    DEFAULT,
    SEARCH_COST_MODELS,
    collect,
    cost_model_effect,
    time_allocation,
    tradeoff,
)
from benchmarks.cost_aware.traces import ALPHAS, SLACKS, Traces
from benchmarks.cost_aware.transferred import transfer_models
from benchmarks.cost_aware.xgboost_problems import make_trainable

Line = dict[str, Any]
EXPERIMENTS: dict[str, Callable[[list[Problem], argparse.Namespace, Traces], tuple[list[Line], Line]]] = {
    "cost_model_error": cost_model_error,
    "tradeoff": tradeoff,
    "time_allocation": time_allocation,
    "front": front,
    "cost_model_effect": cost_model_effect,
    "transfer_models": transfer_models,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=[*EXPERIMENTS, "collect"])
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of .npz tables")
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for results and figures")
    parser.add_argument("--problems", type=int, nargs="+", default=[3], help="tables per folder (default 3)")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--trials", type=int, default=100, help="N, the number of trials of a run")
    parser.add_argument("--rows", type=int, default=2000, help="maximum number of rows per table")
    parser.add_argument(
        "--multiples", type=float, nargs="+", default=[0.25, 0.5, 1.0, 2.0], help="multiples of the unit budget"
    )
    parser.add_argument(
        "--collect", choices=["races", "cost_models"], default="races", help="runs to execute beforehand"
    )
    parser.add_argument("--alphas", type=float, nargs="+", default=ALPHAS, help="exponents of EI / cost^alpha; 0 is EI")
    parser.add_argument("--competitors", nargs="*", default=["random", "ei_cool", "carbo"], help="further methods")
    parser.add_argument("--cap", type=float, default=4.0, help="runs end after this multiple of N trials")
    parser.add_argument(
        "--printed",
        nargs="*",
        default=[],
        help="methods that are also fitted as printed, by likelihood only, in the trade-off: alpha=0.1",
    )
    parser.add_argument(
        "--models", nargs="+", default=SEARCH_COST_MODELS, help="cost models compared inside the search"
    )
    parser.add_argument(
        "--rules", nargs="+", default=[DEFAULT, "alpha=0.2", "alpha=1"], help="rules that use these cost models"
    )
    parser.add_argument("--slacks", type=float, nargs="+", default=SLACKS, help="slacks of contextual EI")
    parser.add_argument("--deep-seeds", type=int, default=10, help="number of seeds with multiples above 1")
    parser.add_argument(
        "--train", type=Path, nargs="*", help="train the recorded boosting problems; folders of their data sets"
    )
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=np.inf, help="start no new problem after this time")
    parser.add_argument("--quick", action="store_true", help="2 tables per folder, 2 seeds, 25 trials, 300 rows")
    options = parser.parse_args()
    if options.quick:
        options.problems, options.seeds, options.trials, options.rows = [2], 2, 25, 300
    options.seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.train is None:
        problems = load(options.data, options.rows, options.problems)
    else:
        problems = load(
            options.data, options.rows, options.problems, lambda p, table: make_trainable(p, table, options.train)
        )
    collecting = options.experiment == "collect"
    part = f"_{options.collect}_{options.part}_of_{options.parts}" if collecting else ""
    traces = Traces(options.output, part)
    if collecting:
        ok = collect(problems, options, traces)
        print(json.dumps({"name": "collect", "measured": {"all runs": ok}, "target": {"all runs": True}, "ok": ok}))
        return 0 if ok else 1
    lines, verdict = EXPERIMENTS[options.experiment](problems, options, traces)
    text = "\n".join(json.dumps(line) for line in lines)
    (options.output / f"{options.experiment}.jsonl").write_text(text + "\n")
    if options.experiment in page.TABLES:
        (options.output / f"{options.experiment}.md").write_text(page.TABLES[options.experiment](lines) + "\n")
    getattr(figures, options.experiment)(lines, options.output / f"{options.experiment}.png")
    print(text)
    print(json.dumps(verdict))
    return 0 if verdict["ok"] or options.quick else 1  # two seeds are too few for a verdict


if __name__ == "__main__":
    sys.exit(main())
