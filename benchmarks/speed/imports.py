"""Compare `import shoestring` with `import numpy`, in new interpreters, interleaved in the same run.

python -m benchmarks import [--repeats 20] [--quick]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys

TARGET = 2.0  # times the import of NumPy
TIMED = "import time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t)"
TIMED_USE = (
    "import time; t = time.perf_counter(); from shoestring import Space, Study, tune; print(time.perf_counter() - t)"
)


def seconds(code: str) -> float:
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks import", description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="5 repeats")
    chosen = parser.parse_args(arguments)
    repeats = 5 if chosen.quick else chosen.repeats
    codes = {
        "numpy": TIMED.format("numpy"),
        "shoestring": TIMED.format("shoestring"),
        "shoestring, all names": TIMED_USE,
    }
    runs: dict[str, list[float]] = {name: [] for name in codes}
    for _ in range(repeats):
        for name, code in codes.items():
            runs[name].append(seconds(code))
    medians = {name: statistics.median(values) for name, values in runs.items()}
    for name, value in medians.items():
        print(f"{name:24s} {value * 1e3:7.1f} ms")
    ratio = medians["shoestring, all names"] / medians["numpy"]
    ok = ratio <= TARGET
    print(
        json.dumps(
            {"name": "import", "measured": ratio, "target": TARGET, "peers": {"numpy_s": medians["numpy"]}, "ok": ok}
        )
    )
    return 0 if ok else 1
