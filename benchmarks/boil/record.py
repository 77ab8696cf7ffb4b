"""Train every config of a task to its end, once per seed, and write the curves as a table.

    python -m benchmarks boil.record cartpole inverted_pendulum reacher --jobs 2 -o out/boil/runs
    python -m benchmarks boil.record cnn --device cuda -o out/boil/runs --data DIR     the four files of Fashion-MNIST or an npz
    python -m benchmarks boil.record --tables benchmarks/data/rl_curves -o out/boil/runs
    python -m benchmarks boil.record cartpole --quick                                  4 configs, 20 episodes or 1 epoch

A process trains one run at a time on one core. Each run has a file, TASK/seed_S/config_N.npz, with `values` and `seconds` of each
step. Existing files are not written again, and a file that is being written has another name. Seed 0 of all configs comes first,
with the tasks in turn, then seed 1, so an interrupted recording is a smaller but complete one. Seconds are processor time of the
run's process, or elapsed time on a GPU. `--tables DIR` writes the recorded runs in the layout of
`shoestring.runners.simulated.recorded_table`: the objective and `cost` of seed 0, and those of the other seeds in `..._again`.
Last line: one JSON object; exit 1 when a run failed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np

from benchmarks.boil.tasks import FASHION_MNIST, TASKS, Task

HERE = Path(__file__).parent
QUICK_CONFIGS, QUICK_STEPS = 4, {"episode": 20, "epoch": 1}
REPORT_EVERY_S = 30.0


@dataclass(frozen=True)
class Job:
    task: str
    config: int
    seed: int
    steps: int
    out: Path
    data: Path
    device: str

    @property
    def path(self) -> Path:
        return self.out / self.task / f"seed_{self.seed}" / f"config_{self.config:03d}.npz"


def jobs(tasks: list[Task], seeds: list[int], arguments: argparse.Namespace) -> list[Job]:
    """Return the runs that are not recorded yet, the most useful first."""
    found = []
    for seed in seeds:
        for number in range(max(task.n_configs for task in tasks)):
            for task in tasks:
                if number < min(task.n_configs, arguments.configs or task.n_configs):
                    steps = QUICK_STEPS[task.unit] if arguments.quick else arguments.steps or task.steps
                    where = (arguments.out, arguments.data, arguments.device)
                    found.append(Job(task.name, number, seed, steps, *where))
    return [job for job in found if not job.path.exists()]


def perform(job: Job) -> str:
    """Train one config to its end and return the error as text, if there was one: a failure must not stop the others."""
    import torch

    torch.set_num_threads(1)
    try:
        task = TASKS[job.task]
        clock = time.process_time if job.device == "cpu" else time.perf_counter
        values, seconds = np.empty(job.steps, np.float32), np.empty(job.steps, np.float32)
        training = task.train(task.configs()[job.config], job.seed, job.data, job.device)
        began = clock()
        for step in range(job.steps):
            values[step] = next(training)
            now = clock()
            seconds[step], began = now - began, now
        job.path.parent.mkdir(parents=True, exist_ok=True)
        half = job.path.with_suffix(f".{os.getpid()}.tmp")
        with half.open("wb") as file:
            np.savez_compressed(file, values=values, seconds=seconds)
        half.replace(job.path)
    except Exception:
        return f"{job.task} config {job.config} seed {job.seed}: {traceback.format_exc()}"
    return ""


def record(todo: list[Job], workers: int) -> int:
    """Run the jobs and return the number that failed."""
    failed, began, reported_s = 0, time.monotonic(), 0.0
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(perform, job) for job in todo]
        for done, run in enumerate(as_completed(running), 1):
            if problem := run.result():
                failed += 1
                print(problem, file=sys.stderr)
            elapsed_s = time.monotonic() - began
            if elapsed_s - reported_s >= REPORT_EVERY_S or done == len(todo):
                reported_s = elapsed_s
                print(f"{done} of {len(todo)} runs, {failed} failed, {elapsed_s:.0f} s", file=sys.stderr, flush=True)
    return failed


# tables --------------------------------------------------------------------------------------------------------------


def table(task: Task, runs: Path) -> dict[str, Any] | None:
    """Return the arrays of the configs that are recorded with every seed; None if there are fewer than two seeds."""
    seeds = sorted(int(folder.name.removeprefix("seed_")) for folder in (runs / task.name).glob("seed_*"))
    paths = {seed: {p.stem: p for p in (runs / task.name / f"seed_{seed}").glob("config_*.npz")} for seed in seeds}
    seeds = [seed for seed in seeds if seed < 2 or len(paths[seed]) == task.n_configs]  # further seeds only if complete
    if len(seeds) < 2:
        return None
    names = sorted(set.intersection(*(set(paths[seed]) for seed in seeds)))
    loaded = [[np.load(paths[seed][name]) for name in names] for seed in seeds]
    values = np.array([[run["values"] for run in row] for row in loaded])  # (seeds, configs, steps)
    seconds = np.array([[run["seconds"] for run in row] for row in loaded], dtype=float)
    if task.unit == "epoch":  # all epochs of a run do the same work; differences come from other load on the machine
        seconds[:] = np.median(seconds, axis=(0, 2))[None, :, None]
    values = values.round(3)  # more digits would double the size of the file
    costs = np.cumsum(seconds, axis=2).round(3).astype(np.float32)
    parameters = list(task.space.parameters)
    configs = task.configs()
    meta = {"task": task.name, "objective": task.objective, "direction": "max", "fidelity": task.unit, "seeds": seeds}
    meta["log"] = task.space.log_names
    return {
        "hp": np.array([[configs[int(name[-3:])][p] for p in parameters] for name in names], dtype=float),
        "hp_names": np.array(parameters),
        "meta": json.dumps(meta),
        task.objective: values[0],
        "cost": costs[0],
        f"{task.objective}_again": values[1:],
        "cost_again": costs[1:],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tasks", nargs="*", help=f"of {', '.join(TASKS)}; none: all")
    parser.add_argument("-o", "--out", type=Path, default=HERE.parents[1] / "out" / "boil" / "runs")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each config")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time")
    parser.add_argument("--configs", type=int, help="only the first n configs")
    parser.add_argument("--steps", type=int, help="shorter runs, for tests")
    parser.add_argument("--data", type=Path, default=FASHION_MNIST, help="Fashion-MNIST: a folder or an npz file")
    parser.add_argument("--device", default="cpu", help="device of the convolutional network")
    parser.add_argument("--tables", type=Path, help="write tables of the recorded runs to this folder; train nothing")
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.tasks if name not in TASKS]:
        parser.error(f"there is no task {', '.join(unknown)}: choose from {', '.join(TASKS)}")
    tasks = [TASKS[name] for name in chosen.tasks or TASKS]
    if chosen.quick:
        chosen.configs, chosen.out = QUICK_CONFIGS, Path(mkdtemp(prefix="boil_runs_"))
    measured: dict[str, Any] = {}
    if chosen.tables:
        chosen.tables.mkdir(parents=True, exist_ok=True)
        for task in tasks:
            arrays = table(task, chosen.out)
            if arrays is not None:
                np.savez_compressed(chosen.tables / f"{task.name}.npz", **arrays)
                again = arrays[f"{task.objective}_again"].shape
                measured[task.name] = {"seeds": 1 + again[0], "configs": again[1], "steps": again[2]}
        ok = len(measured) == len(tasks)
        result = {"name": "boil_tables", "measured": measured, "target": "every task, two seeds", "ok": ok}
    else:
        todo = jobs(tasks, list(range(chosen.seeds)), chosen)
        failed = record(todo, chosen.jobs) if todo else 0
        ok = failed == 0
        result = {"name": "boil_record", "measured": {"runs": len(todo), "failed": failed}, "target": 0, "ok": ok}
    print(json.dumps(result))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
