"""Compare `BudgetSearchCV` with scikit-learn's searches at equal seconds, by accuracy on rows that no search has seen.

    python -m benchmarks sklearn_search --data DIR [--seconds 2] [--splits 10] [--runs FILE] [--quick]
    python -m benchmarks sklearn_search --page

`--data` is the folder with the data sets that scikit-learn does not contain. A split draws two thirds of the rows for training,
at most 1000; the others are the test. In each split all methods search once, one after the other. All times are processor time
of this one process, with one thread, because other programs may run on the machine. BudgetSearchCV reads the same clock.

The peers have no budget of time. The number of their candidates is chosen in a trial run, so that they need about `--seconds`.
What the quicker one really needed in a split is the budget of BudgetSearchCV in this split. The final fit of the best
configuration is not counted for any method. `--runs` is a file to which each run is added; runs that it has are not repeated.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import train_test_split
from threadpoolctl import threadpool_limits

from benchmarks.markdown import table
from benchmarks.sklearn_search import tasks
from shoestring.study.decide import Thinking

HERE = Path(__file__).parent
RUNS = HERE / "runs.jsonl"
OURS = "BudgetSearchCV"
_TRAIN_SHARE = 2 / 3  # of the rows; the others are for the test
_MOST_ROWS = 1000  # for training: a search of a few seconds then compares several configurations
_CANDIDATES = (3, 4, 6, 9, 13, 18, 26, 40, 54, 80, 120, 180, 270, 400, 600)  # that the trial run tries
_PILOT_SPLIT = 1000


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks sklearn_search", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of the data sets (.npz with X and y)")
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--only", nargs="+", help="data sets; by default all")
    parser.add_argument("--quick", action="store_true", help="the digits, one split, 0.3 seconds")
    parser.add_argument("--page", action="store_true", help="write the tables of the page from the stored runs")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.seconds, chosen.splits, chosen.only = 0.3, 1, ["digits"]
        chosen.runs = Path(tempfile.mkdtemp(prefix="sklearn-search-")) / "runs.jsonl"
    if not chosen.page:
        with threadpool_limits(1):
            run_all(chosen)
    runs = read_runs(chosen.runs)
    if chosen.page:
        page = HERE / "README.md"
        head, _, tail = page.read_text("utf-8").partition("<!-- results: begin -->\n")
        page.write_text(
            f"{head}<!-- results: begin -->\n{describe(runs)}\n<!-- results: end -->{tail.partition('<!-- results: end -->')[2]}",
            "utf-8",
        )
    print(describe(runs))
    facts = judge(runs)
    print(json.dumps({"name": "sklearn_search", **facts}))
    return 0 if facts["ok"] else 1


# running -----------------------------------------------------------------------------------------------------------------


def run_all(chosen: argparse.Namespace) -> None:
    done = read_runs(chosen.runs)
    for split in (_PILOT_SPLIT, *range(chosen.splits)):
        for data in chosen.only or tasks.DATA:
            for pipe in tasks.PIPELINES:
                runs = [run for run in done if (run["data"], run["pipeline"]) == (data, pipe)]
                if any(run["split"] == split for run in runs):
                    continue
                X, y = tasks.load(data, chosen.data)
                if split == _PILOT_SPLIT:
                    new = [find_candidates(data, pipe, X, y, chosen.seconds)]
                else:
                    candidates = next(run["candidates"] for run in runs if run["split"] == _PILOT_SPLIT)
                    new = list(race(data, pipe, X, y, split, candidates))
                done += new
                with chosen.runs.open("a", encoding="utf-8") as file:
                    file.writelines(f"{json.dumps(run)}\n" for run in new)
                print(f"{data}, {pipe}, split {split}: {_show(new)}", flush=True)


def find_candidates(data: str, pipe: str, X: Any, y: Any, seconds: float) -> dict[str, Any]:
    """Return how many candidates of each peer need about so many seconds."""
    found = {}
    for name, make in tasks.PEERS.items():
        before, count = (0, 0.0), _CANDIDATES[0]
        for count in _CANDIDATES:
            needed_s = search(make(pipe, count, _PILOT_SPLIT), X, y, _PILOT_SPLIT)["search_s"]
            if needed_s >= seconds:
                share = (seconds - before[1]) / (needed_s - before[1])
                count = max(_CANDIDATES[0], round(before[0] + share * (count - before[0])))
                break
            before = (count, needed_s)
        found[name] = count
    return {"data": data, "pipeline": pipe, "split": _PILOT_SPLIT, "candidates": found, "seconds": seconds}


def race(data: str, pipe: str, X: Any, y: Any, split: int, candidates: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Run all methods on a split; BudgetSearchCV last, with the seconds of the quicker peer."""
    facts = {"data": data, "pipeline": pipe, "split": split}
    budgets = []
    for name, make in tasks.PEERS.items():
        result = search(make(pipe, candidates[name], split), X, y, split)
        budgets.append(result["search_s"])
        yield {**facts, "method": name, **result}
    with processor_clock():
        result = search(tasks.budget_search(pipe, min(budgets), split), X, y, split)
    yield {**facts, "method": OURS, "budget_s": min(budgets), **result}


def search(one: Any, X: Any, y: Any, split: int) -> dict[str, Any]:
    """Return the test accuracy of a search and the seconds of processor time that it needed."""
    rows = min(_MOST_ROWS, round(_TRAIN_SHARE * len(X)))
    train_x, test_x, train_y, test_y = train_test_split(X, y, train_size=rows, random_state=split, stratify=y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of networks that could be trained for longer
        began = time.process_time()
        one.fit(train_x, train_y)
        needed_s = time.process_time() - began
        model = one if one.refit else clone(one.estimator).set_params(**one.best_params_).fit(train_x, train_y)
    return {
        "accuracy": round(float(model.score(test_x, test_y)), 5),
        "search_s": round(needed_s - getattr(one, "refit_time_", 0.0), 3),
        "configurations": len({repr(sorted(params.items())) for params in one.cv_results_["params"]}),
        "best": repr(one.best_params_),
    }


@contextmanager
def processor_clock() -> Iterator[None]:
    """Replace the clocks of this process by its processor time, so that a budget in seconds is one of processor time."""
    now = time.process_time
    with (
        patch.object(time, "monotonic", now),
        patch.object(time, "perf_counter", now),
        patch.object(Thinking.__init__, "__defaults__", (now,)),  # the clock of decisions
    ):
        yield


def _show(runs: Sequence[Mapping[str, Any]]) -> str:
    if "candidates" in runs[0]:
        return ", ".join(f"{count} candidates for {name}" for name, count in runs[0]["candidates"].items())
    return ", ".join(f"{run['method']} {run['accuracy']:.3f} in {run['search_s']:.1f} s" for run in runs)


# results -----------------------------------------------------------------------------------------------------------------


def read_runs(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.is_file() else []


def compare(runs: Sequence[Mapping[str, Any]], peer: str) -> list[dict[str, Any]]:
    """Return for each data set and pipeline the difference of the mean accuracies and its standard error over the splits."""
    by_cell: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for run in runs:
        if "method" in run:
            splits = by_cell.setdefault((run["data"], run["pipeline"]), {})
            splits.setdefault(run["split"], {})[run["method"]] = run["accuracy"]
    rows = []
    for (data, pipe), splits in by_cell.items():
        pairs = [found[OURS] - found[peer] for found in splits.values() if OURS in found and peer in found]
        error = float(np.std(pairs, ddof=1)) / math.sqrt(len(pairs)) if len(pairs) > 1 else math.nan
        rows.append({"data": data, "pipeline": pipe, "difference": float(np.mean(pairs)), "error": error})
    return rows


def judge(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mean difference from each peer with its 95 % interval; `ok`: no peer is better beyond the interval."""
    peers: dict[str, dict[str, float]] = {}
    for peer in sorted({run["method"] for run in runs if "method" in run} - {OURS}):
        rows = compare(runs, peer)
        known = [row["error"] for row in rows if not math.isnan(row["error"])]  # a single split has none
        margin = round(1.96 * math.sqrt(float(np.mean(np.square(known))) / len(rows)), 5) if known else 0.0
        peers[peer] = {"difference": round(float(np.mean([row["difference"] for row in rows])), 5), "margin": margin}
    measured = min((found["difference"] for found in peers.values()), default=math.nan)
    ok = all(found["difference"] + found["margin"] >= 0.0 for found in peers.values())
    return {"measured": measured, "target": 0.0, "peers": peers, "ok": ok}


def _show_gain(row: Mapping[str, Any]) -> str:
    error = "" if math.isnan(row["error"]) else f" ± {100 * row['error']:.1f}"
    return f"{100 * row['difference']:+.1f}{error}"


def describe(runs: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the mean test accuracies, and the seconds that the searches needed."""
    raced = [run for run in runs if "method" in run]
    methods = [OURS, *sorted({run["method"] for run in raced} - {OURS})]
    differences = {method: compare(runs, method) for method in methods[1:]}
    lines = []
    for place, (data, pipe) in enumerate(dict.fromkeys((run["data"], run["pipeline"]) for run in raced)):
        own = [run for run in raced if (run["data"], run["pipeline"]) == (data, pipe)]
        means = {name: float(np.mean([run["accuracy"] for run in own if run["method"] == name])) for name in methods}
        best = max(round(100 * mean, 1) for mean in means.values())
        cells = [f"{100 * mean:.1f}" for mean in means.values()]
        cells = [f"**{cell}**" if float(cell) == best else cell for cell in cells]
        cells += [_show_gain(differences[name][place]) for name in methods[1:]]
        counts = [f"{np.mean([run['configurations'] for run in own if run['method'] == name]):.0f}" for name in methods]
        times = [f"{np.mean([run['search_s'] for run in own if run['method'] == name]):.1f}" for name in methods]
        splits = len({run["split"] for run in own})
        lines.append([data, pipe, str(splits), *cells, " / ".join(counts), " / ".join(times)])
    heads = [
        "data",
        "pipeline",
        "splits",
        *methods,
        *(f"gain over {name}" for name in methods[1:]),
        "configurations",
        "seconds",
    ]
    gains_over = [
        f"Over {name}, mean of all rows: {100 * found['difference']:+.2f} points, 95 % interval ± {100 * found['margin']:.2f}."
        for name, found in judge(runs)["peers"].items()
    ]
    return "\n\n".join([table(heads, lines), *gains_over])
