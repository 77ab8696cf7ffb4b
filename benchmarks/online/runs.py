"""Many runs of one benchmark, as the user asks for them: several at once, each kept as soon as it is done, none done twice.

A run is a JSON object with "method", "seed" and "plan". It is written to FOLDER/TASK/METHOD-SEED.json under another name
first and renamed, so that a file is a whole run; at the end all of them are put into FOLDER/TASK.jsonl, one line a run.
A run found in either place is not done again. Runs made under another plan may not be mixed with these.
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
    """What the user asked for; `o` is filled in. `plans` describes the defaults of --rounds and --steps."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data, help="folder of the four .gz files, or an .npz")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--quick", action="store_true", help="two minutes on one processor")
    parser.add_argument("--show", action="store_true", help="table and figure of finished runs, nothing is run")
    parser.add_argument("--methods", nargs="+", choices=methods, help="default: all")
    parser.add_argument("--seeds", type=int, help="default: 3, quick 1")
    for name, told in plans.items():
        parser.add_argument(f"--{name}", type=int, help=told)
    parser.add_argument("--workers", type=int, default=1, help="runs at once")
    parser.add_argument("-o", type=Path, metavar="DIR", help="default: out/online or out/online_quick")
    asked = parser.parse_args()
    asked.o = asked.o or Path("out") / ("online_quick" if asked.quick else "online")
    asked.seeds = asked.seeds or (1 if asked.quick else 3)
    return asked


def found(folder: Path, task: str) -> dict[tuple[str, int], Run]:
    """The finished runs of a task, by method and seed."""
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
    told: Sequence[Any],
    folder: Path,
    workers: int,
) -> list[Run]:
    """All finished runs, after `do(method, seed, *told)` for the missing ones: seed by seed, so that a cut leaves whole sets."""
    (folder / task).mkdir(parents=True, exist_ok=True)
    done = found(folder, task)
    plan = json.loads(json.dumps(plan))  # as it will be read: tuples are lists there
    if other := [key for key, run in done.items() if run["plan"] != plan]:
        raise SystemExit(f"{folder} holds runs of another plan, such as {other[0]}: give another folder with -o")
    jobs = [(method, seed) for seed in range(seeds) for method in methods if (method, seed) not in done]
    began = time.perf_counter()
    told_all = [(task, folder, plan, do, method, seed, told) for method, seed in jobs]
    for n, line in enumerate(_each(told_all, workers), start=1):
        print(f"{n}/{len(jobs)} after {time.perf_counter() - began:.0f} s: {line}", file=sys.stderr, flush=True)
    return gather(folder, task)


def gather(folder: Path, task: str) -> list[Run]:
    """All finished runs, put into one file."""
    kept = found(folder, task)
    if not kept:
        raise SystemExit(f"{folder} holds no finished run of {task}: run it first, or give its folder with -o")
    lines = [json.dumps(kept[key], separators=(",", ":")) for key in sorted(kept)]
    (folder / f"{task}.jsonl").write_text("\n".join(lines) + "\n")
    return [kept[key] for key in sorted(kept)]


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error; nan for one value."""
    error = np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(np.mean(values)), float(error)


def plus_minus(values: Sequence[float], digits: int, sign: str = "") -> str:
    """Mean ± standard error as a cell of a table; without an error for one value, empty for none."""
    if not values:
        return ""
    mean, error = mean_and_error(values)
    return f"{mean:{sign}.{digits}f}" + ("" if np.isnan(error) else f" ± {error:.{digits}f}")


def _each(told: Sequence[tuple[Any, ...]], workers: int) -> Iterator[str]:
    """Do all runs, and say of each that it is done, in the order in which they are."""
    if workers == 1:
        yield from (_one(*one) for one in told)
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield from (future.result() for future in as_completed([pool.submit(_one, *one) for one in told]))


def _one(
    task: str, folder: Path, plan: dict[str, Any], do: Callable[..., Run], method: str, seed: int, told: Sequence[Any]
) -> str:
    """Do one run and keep it. An error is kept too, beside the runs, and stops no other."""
    path = folder / task / f"{re.sub('[^a-z0-9.]+', '_', method.lower())}-{seed}.json"
    began = time.perf_counter()
    try:
        run = {"method": method, "seed": seed, "plan": plan, **do(method, seed, *told)}
    except Exception:
        path.with_suffix(".error").write_text(traceback.format_exc())
        return f"{method}, seed {seed}: failed, see {path.with_suffix('.error')}"
    half = path.with_suffix(".part")
    half.write_text(json.dumps(run, separators=(",", ":")))
    os.replace(half, path)
    return f"{method}, seed {seed}: {time.perf_counter() - began:.0f} s"
