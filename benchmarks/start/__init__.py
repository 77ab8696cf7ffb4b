"""Measure the time until the first step, for training code whose import takes a second, with 1, 2 and 4 workers.

    python -m benchmarks start [--repeats 3] [--workers 1 2 4] [--quick]

The time runs from the start of the interpreter until every worker has begun its first step. The second that the code's own
import takes is subtracted. There are two cases: the command line, and a script that calls `tune`. The main process of the
script imports the code too, before it tunes; that second is subtracted as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

IMPORT_S = 1.0
TARGET_S = 2.0

TRAINING = f"""
import os, time
time.sleep({IMPORT_S})
def train(config):
    with open(os.environ["START_TIMES"], "a") as times:
        times.write(f"{{time.time()}}\\n")
    yield 1.0
    time.sleep(1.0)  # so that every worker gets a first step
    yield 1.0
"""
SCRIPT = """
import sys
from slow_training import train
from shoestring import tune
if __name__ == "__main__":
    workers = int(sys.argv[1])
    tune(train, {"x": {"float": [0.0, 1.0]}}, f"{2 * workers} epochs", max_steps=2, workers=workers, runner="process",
         policy="random_search", seed=1)
"""


def time_starts(folder: Path, argv: list[str], workers: int) -> float:
    """Return the seconds until the last worker has begun its first step."""
    times = folder / "times"
    times.unlink(missing_ok=True)
    for store in folder.glob("*.db*"):
        store.unlink() if store.is_file() else None
    path = os.pathsep.join(part for part in (str(folder), os.environ.get("PYTHONPATH", "")) if part)
    environment = {**os.environ, "START_TIMES": str(times), "PYTHONPATH": path}
    began = time.time()
    subprocess.run([sys.executable, *argv], cwd=folder, env=environment, check=True, capture_output=True)
    return sorted(float(line) for line in times.read_text().splitlines())[workers - 1] - began


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks start", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="2 workers, once")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.repeats, chosen.workers = 1, [2]
    added: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "slow_training.py").write_text(TRAINING)
        (folder / "script.py").write_text(SCRIPT)
        for workers in chosen.workers:
            options = f"--budget {2 * workers}epochs --max-steps 2 --workers {workers} --runner process --seed 1"
            command = ["-m", "shoestring", "run", "slow_training.py:train", *options.split()]
            command += ["--policy", "random_search", "--param", "x={float=[0,1]}"]
            ways = {"tune": (["script.py", str(workers)], 2 * IMPORT_S), "command line": (command, IMPORT_S)}
            for way, (argv, imports_s) in ways.items():
                runs = [time_starts(folder, argv, workers) - imports_s for _ in range(chosen.repeats)]
                added[f"{way}, {workers}"] = statistics.median(runs)
                print(
                    f"{way:>12}, {workers} workers: {added[f'{way}, {workers}']:5.2f} s without the imports", flush=True
                )
    worst = max(added.values())
    facts = {"name": "start", "measured": worst, "target": TARGET_S, "peers": {}, "added_s": added}
    print(json.dumps({**facts, "ok": worst <= TARGET_S}))
    return 0 if worst <= TARGET_S else 1
