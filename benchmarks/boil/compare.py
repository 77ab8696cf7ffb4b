"""BOIL and its baselines on recorded tables: utility for the budget, learned compression, ablations.

    python -m benchmarks boil.compare                        tables of benchmarks/data/rl_curves, 20 seeds
    python -m benchmarks boil.compare --data DIR             also hpo_rl_bench and algoperf below DIR
    python -m benchmarks boil.compare --even                 the same tables with one price for every step
    python -m benchmarks boil.compare --quick                one table, 3 seeds, few methods: under two minutes, nothing is stored
    python -m benchmarks boil.compare --show                 tables and figures of the stored studies, nothing is run
    python -m benchmarks boil.compare --values FILE          also write the utility of each study, by table, method and seed

Every study is a JSON line in the folder `-o`, and is not run again. Calls without `--tables` and `--methods` write their summary
to results/compare.json. Figures show our own tables. The columns are explained in `summary.py`. Last line: one JSON object; exit
1 when a target is missed.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: with small matrices threads are slower

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.boil.problems import EVEN, Problem, load, table_paths
from benchmarks.boil.studies import METHODS, run_study
from benchmarks.boil.summary import summary_of, utilities

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RATIO, CONDITION = 0.6, 20.0
HEADER = (
    "method               seeds  final [90 %]               over time  s of BO-L [90 %]     share  s to 90 % [90 %]     "
    "boil ahead by [90 %]          runs  short  ln cond     ms  after runs [90 %]          cost"
)
cached = cache(load)
QUICK = ("boil", "bo_l", "cm_tf_bo", "hyperband", "random")


def show(summary: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    for name, methods in summary.items():
        print(f"\n{name}")
        print(HEADER)
        for method, m in methods.items():
            print(_line(method, m))
    own = {name: methods for name, methods in summary.items() if "boil" in methods}
    clear = [name for name, methods in own.items() if methods["bo_l"].get("clear")]
    reached = {name: own[name]["boil"]["seconds_of_bo_l"] for name in clear}
    cost = {name: methods["boil"]["cost_of_iterations"] for name, methods in own.items()}
    nearly = {name: methods["boil"]["seconds_to_90"] for name, methods in own.items()}
    ahead = {
        other: {name: methods[other]["boil_ahead_by"] for name, methods in own.items() if other in methods}
        for other in ("hyperband", "cm_tf_bo")
    }
    condition = max((m["boil"]["log_condition"] or 0.0 for m in own.values()), default=0.0)
    most = len(own) / 2
    ok = (
        sum(r is not None and r <= RATIO for r in reached.values()) > len(clear) / 2
        and all(sum(by > 0 for by in of.values()) > most for of in ahead.values())
        and condition <= CONDITION
    )
    verdict = {
        "name": "boil_compare",
        "measured": {
            "seconds_of_bo_l": reached,
            "cost_of_as_many_iterations": cost,
            "seconds_to_90": nearly,
            "ahead_by": ahead,
            "log_condition": condition,
        },
        "target": {
            "seconds_of_bo_l": f"<= {RATIO} on most tables where BO-L clearly beats random",
            "ahead_by": "> 0 on most tables",
            "log_condition": CONDITION,
        },
        "ok": bool(ok),
    }
    return verdict, bool(ok)


def _line(method: str, m: dict[str, Any]) -> str:
    def spread(name: str, digits: int) -> str:
        low, high = (_format(v, digits) for v in m[f"{name}_90"])
        return f"{_format(m[name], digits)} [{low}, {high}]"

    digits = 3 if abs(m["final"]) < 2 else 1
    return (
        f"{method:20s} {m['seeds']:4d}   {spread('final', digits):26s} {_format(m['over_time'], digits):>8s}   "
        f"{spread('seconds_of_bo_l', 2):20s} {_format(m['share_of_budget'], 2):>5s}  {spread('seconds_to_90', 2):20s} "
        f"{spread('boil_ahead_by', digits):28s} {m['runs']:5.1f}  {_format(m['shortest_half'], 2):>5s}  "
        f"{_format(m['log_condition'], 1):>7s} {m['decide_ms']:6.1f}  {spread('after_iterations', digits):26s} "
        f"{_format(m['cost_of_iterations'], 2):>5s}"
    )


def _format(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def perform(order: tuple[str, Path, str, int]) -> dict[str, Any]:
    name, path, method, seed = order
    return {"table": name, **run_study(cached(name, path), method, seed)}


def run_studies(orders: list[tuple[str, Path, str, int]], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the rows in the order in which they finish."""
    if jobs == 1:
        yield from map(perform, orders)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed([pool.submit(perform, order) for order in orders]):
            yield done.result()


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help="folder with hpo_rl_bench/ and algoperf/, or with tables of record.py"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=HERE.parents[1] / "out" / "boil", help="folder of the studies"
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--tables", help="only these, separated by commas")
    parser.add_argument("--methods", help="only these, separated by commas")
    parser.add_argument("--even", action="store_true", help="the same tables with one price for every step")
    parser.add_argument("--jobs", type=int, default=1, help="studies at once")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("--values", type=Path, help="file for the utility of each study")
    chosen = parser.parse_args()
    paths = table_paths(chosen.data)
    paths = {name: path for name, path in paths.items() if not chosen.tables or name in chosen.tables.split(",")}
    if chosen.even:
        paths = {name + EVEN: path for name, path in paths.items()}
    if not paths:
        parser.error("there are no tables: record some with record.py, or name a folder with --data")
    paths = dict(list(paths.items())[: 1 if chosen.quick else None])
    problems = {name: cached(name, path) for name, path in paths.items()}
    methods = [m for m in (QUICK if chosen.quick else METHODS) if not chosen.methods or m in chosen.methods.split(",")]
    raw = chosen.out / "studies.jsonl"
    rows = [] if chosen.quick else read(raw)
    done = {(row["table"], row["method"], row["seed"]) for row in rows}
    todo = [
        (seed, name, method)
        for seed in range(3 if chosen.quick else chosen.seeds)
        for name in problems
        for method in methods
        if (name, method, seed) not in done and seed < METHODS[method].seeds and not chosen.show
    ]
    chosen.out.mkdir(parents=True, exist_ok=True)
    for count, row in enumerate(
        run_studies([(name, paths[name], method, seed) for seed, name, method in todo], chosen.jobs), 1
    ):
        rows.append(row)
        if not chosen.quick:
            with raw.open("a", 1 << 20, encoding="utf-8") as out:  # a whole line at once, in case two processes write
                out.write(json.dumps(rows[-1]) + "\n")
        if count % 20 == 0 or count == len(todo):
            print(f"{count} of {len(todo)} studies", file=sys.stderr, flush=True)
    mine = {name: [row for row in rows if row["table"] == name] for name in problems}
    summary = {name: summary_of(problem, mine[name]) for name, problem in problems.items()}
    if chosen.values:
        values = {name: list_values(problem, mine[name], chosen.seeds) for name, problem in problems.items()}
        chosen.values.write_text(dump_lines(values) + "\n", encoding="utf-8")
    verdict, ok = show(summary)
    if not (chosen.quick or chosen.tables or chosen.methods):
        store(summary)
        if not chosen.even and chosen.data is None:
            from benchmarks.boil.figures import draw_all

            curves = {
                (name, r["method"], r["seed"]): utilities(problems[name], r) for name in problems for r in mine[name]
            }
            draw_all(RESULTS, problems, mine, curves)
    print(json.dumps(verdict))
    return 0 if ok or chosen.quick else 1  # three seeds are too few to judge


def list_values(problem: Problem, rows: list[dict[str, Any]], seeds: int) -> dict[str, dict[str, list[float]]]:
    """Return the utility over time and at the end of each method, by seed."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        if row["seed"] < seeds:
            utility = utilities(problem, row)
            of_method = found.setdefault(row["method"], {"over_time": [], "at_end": []})
            of_method["over_time"].append(round(float(utility.mean()), 4))
            of_method["at_end"].append(round(float(utility[-1]), 4))
    return found


def dump_lines(values: dict[str, Any]) -> str:
    """Return JSON with a line for each table and method."""
    lines = [
        f' "{name}": {{\n' + ",\n".join(f'  "{m}": {json.dumps(v)}' for m, v in methods.items()) + "\n }"
        for name, methods in values.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}"


def store(summary: dict[str, Any]) -> None:
    """Write the summary to results/compare.json, in place of the same methods on the same tables."""
    path = RESULTS / "compare.json"
    RESULTS.mkdir(exist_ok=True)
    before = json.loads(path.read_text()) if path.exists() else {}
    known = {name: before.get(name, {}) | methods for name, methods in summary.items() if methods}
    path.write_text(json.dumps(before | known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
