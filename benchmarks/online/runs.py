"""Many runs of one benchmark: several at once, each stored as soon as it is finished, none repeated.

A run is a JSON object with "method", "seed" and "plan". Its file FOLDER/TASK/METHOD-SEED.json is written under another name
first and then renamed, so a file is always a whole run. At the end all runs are written to FOLDER/TASK.jsonl, one per line.
A run in either place is not repeated. Runs with another plan must not be mixed with these.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

Run = dict[str, Any]


def arguments(about: str, data: Path, methods: Sequence[str], plans: dict[str, str]) -> argparse.Namespace:
    """Return the options of the command line, with defaults filled in; `plans` describes those of --rounds and --steps."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data, help="folder of the four .gz files, or an .npz")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--quick", action="store_true", help="two minutes on one processor")
    parser.add_argument("--show", action="store_true", help="table and figure of finished runs, nothing is run")
    parser.add_argument("--methods", nargs="+", choices=methods, help="default: all")
    parser.add_argument("--seeds", type=int, help="default: 3, quick 1")
    for name, about_default in plans.items():
        parser.add_argument(f"--{name}", type=int, help=about_default)
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("-o", type=Path, metavar="DIR", help="default: out/online or out/online_quick")
    options = parser.parse_args()
    options.o = options.o or Path("out") / ("online_quick" if options.quick else "online")
    options.seeds = options.seeds or (1 if options.quick else 3)
    return options


def finished_runs(folder: Path, task: str) -> dict[tuple[str, int], Run]:
    """Return the finished runs of a task, by method and seed."""
    lines = (folder / f"{task}.jsonl").read_text().splitlines() if (folder / f"{task}.jsonl").exists() else []
    texts = lines + [path.read_text() for path in sorted((folder / task).glob("*.json"))]
    runs = [json.loads(text) for text in texts]
    return {(run["method"], run["seed"]): run for run in runs}


def run_all(
    task: str,
    methods: Sequence[str],
    seeds: int,
    plan: dict[str, Any],
    do: Callable[..., Run],
    inputs: Sequence[Any],
    folder: Path,
    workers: int,
) -> list[Run]:
    """Do `do(method, seed, *inputs)` for the missing runs and return all runs.

    Runs are done seed by seed, so that an interruption leaves complete sets.
    """
    (folder / task).mkdir(parents=True, exist_ok=True)
    done = finished_runs(folder, task)
    plan = json.loads(json.dumps(plan))  # as it is read from a file: tuples become lists
    if other := [key for key, run in done.items() if run["plan"] != plan]:
        raise SystemExit(f"{folder} has runs with another plan, such as {other[0]}: give another folder with -o")
    jobs = [(method, seed) for seed in range(seeds) for method in methods if (method, seed) not in done]
    began = time.perf_counter()
    calls = [(task, folder, plan, do, method, seed, inputs) for method, seed in jobs]
    for n, line in enumerate(_run_jobs(calls, workers), start=1):
        print(f"{n}/{len(jobs)} after {time.perf_counter() - began:.0f} s: {line}", file=sys.stderr, flush=True)
    return gather(folder, task)


def gather(folder: Path, task: str) -> list[Run]:
    """Write all finished runs to one file and return them."""
    runs_by_key = finished_runs(folder, task)
    if not runs_by_key:
        raise SystemExit(f"{folder} has no finished run of {task}: run it first, or give its folder with -o")
    lines = [json.dumps(runs_by_key[key], separators=(",", ":")) for key in sorted(runs_by_key)]
    (folder / f"{task}.jsonl").write_text("\n".join(lines) + "\n")
    return [runs_by_key[key] for key in sorted(runs_by_key)]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error, nan for one value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)


def plus_minus(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Return mean ± standard error as a cell of a table; without an error for one value, empty for none."""
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:{sign}.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def _run_jobs(calls: Sequence[tuple[Any, ...]], workers: int) -> Iterator[str]:
    """Do all runs and yield a line about each, in the order in which they finish."""
    if workers == 1:
        yield from (_run_job(*call) for call in calls)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from (future.result() for future in as_completed([pool.submit(_run_job, *call) for call in calls]))


def _run_job(
    task: str, folder: Path, plan: dict[str, Any], do: Callable[..., Run], method: str, seed: int, inputs: Sequence[Any]
) -> str:
    """Do one run and store it. An error is stored, too, and does not stop the other runs."""
    path = folder / task / f"{re.sub('[^a-z0-9.]+', '_', method.lower())}-{seed}.json"
    began = time.perf_counter()
    try:
        run = {"method": method, "seed": seed, "plan": plan, **do(method, seed, *inputs)}
    except Exception:
        path.with_suffix(".error").write_text(traceback.format_exc())
        return f"{method}, seed {seed}: failed, see {path.with_suffix('.error')}"
    half = path.with_suffix(".part")
    half.write_text(json.dumps(run, separators=(",", ":")))
    os.replace(half, path)
    return f"{method}, seed {seed}: {time.perf_counter() - began:.0f} s"
