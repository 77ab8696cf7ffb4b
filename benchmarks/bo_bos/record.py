"""Record a real task once as a table of learning curves, which is replayed for every method and seed.

    python -m benchmarks bo_bos.record logreg_digits -o out/recorded                    128 configurations
    python -m benchmarks bo_bos.record xgboost_spambase -o out/recorded --data DIR      DIR/ml_datasets/spambase.npz
    python -m benchmarks bo_bos.record cnn_fashion -o out/recorded --table-only         make the table from the output of cnn.py
    python -m benchmarks bo_bos.record logreg_digits --quick                            4 configurations, nothing is stored

Every finished run is one JSON line in OUT/TASK.jsonl and is not repeated. OUT/TASK.npz is the table of all runs, in the layout of
`shoestring.runners.simulated.recorded_table`. The folder benchmarks/data/stopping_curves has the tables that we recorded.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy: the times are processor seconds of one thread

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import qmc

from benchmarks.bo_bos.compare import read
from benchmarks.bo_bos.tasks import FASHION, Task, task
from shoestring.core.space.space import Space
from shoestring.runners.simulated.recorded_table import Table

CONFIGS = 128


def spread(space: Space, count: int) -> list[dict[str, Any]]:
    """Return configurations that fill the space. They are the same for every call, and so are the first few."""
    points = qmc.Sobol(space.dims, scramble=True, rng=np.random.default_rng(0)).random_base2(
        int(np.ceil(np.log2(count)))
    )
    return [space.from_cube(point) for point in points[:count]]


def record(job: Task, count: int, lines: Path) -> None:
    done = {row["number"] for row in runs_of(lines)}
    lines.parent.mkdir(parents=True, exist_ok=True)
    for number, config in enumerate(spread(job.space, count)):
        if number in done:
            continue
        curve = job.train(config)
        row = {
            "number": number,
            "config": config,
            "errors": [round(float(e), 6) for e in curve.errors],
            "seconds": [round(float(s), 5) for s in curve.seconds],
        }
        with lines.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{job.name} {number + 1}/{count}: ended at {curve.errors[-1]:.4f}", file=sys.stderr)


def runs_of(lines: Path) -> list[dict[str, Any]]:
    return sorted(read(lines), key=lambda row: int(row["number"]))


def write_table(name: str, rows: list[dict[str, Any]], log: list[str], path: Path) -> None:
    """Write the rows as an npz file; a curve that ended early, because its run diverged, is continued with its last error."""
    names = sorted(rows[0]["config"])
    length = max(len(row["errors"]) for row in rows)
    description = {"task": name, "objective": "valid_error", "direction": "min", "fidelity": "epoch"}
    meta = description | {"hp_categories": {}, "log": log}
    np.savez_compressed(
        path,
        hp=np.array([[float(row["config"][key]) for key in names] for row in rows]),
        hp_names=np.array(names),
        meta=np.array(json.dumps(meta)),
        valid_error=np.array([_fill(row["errors"], length) for row in rows], dtype=np.float32),
        cost=np.array([_fill(row["seconds"], length) for row in rows], dtype=np.float32),
    )


def _fill(numbers: list[float], length: int) -> list[float]:
    return numbers + numbers[-1:] * (length - len(numbers))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task")
    parser.add_argument("-o", "--out", type=Path, default=Path("out/recorded"))
    parser.add_argument("--configs", type=int, default=CONFIGS)
    parser.add_argument("--data", type=Path, help="folder with ml_datasets/")
    parser.add_argument(
        "--fashion", type=Path, default=FASHION, help="folder with the idx files of Fashion-MNIST, or an npz"
    )
    parser.add_argument("--table-only", action="store_true", help="do not train")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        out, count = (Path(scratch), 4) if options.quick else (options.out, options.configs)
        job = task(options.task, fashion_at=options.fashion, data=options.data)
        if not options.table_only:
            record(job, count, out / f"{options.task}.jsonl")
        rows = runs_of(out / f"{options.task}.jsonl")
        if not rows:
            raise SystemExit(f"{out / f'{options.task}.jsonl'} has no runs: record some first")
        write_table(options.task, rows, job.space.log_names, out / f"{options.task}.npz")
        table = Table.load(out / f"{options.task}.npz")
    ends = table.values[:, -1]
    measured = {
        "configs": len(table.configs),
        "epochs": table.max_steps,
        "best": round(float(table.values.min()), 4),
        "median": round(float(np.median(ends)), 4),
        "seconds": round(float(table.costs_s.sum()), 1),
    }
    print(json.dumps({"name": f"record_{options.task}", "measured": measured, "target": None, "ok": True}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
