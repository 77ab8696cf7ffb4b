"""Measure speed: `imports`, `overhead` (the loop) and `decide` (each policy).

    python -m benchmarks speed [--quick]

`decide` times the cases in `cases/`, a module for each policy, with the functions of `measure`. The parts are benchmarks too:
`import`, `overhead` and `decide --policy NAME`. So are `start` and `serve` next to this folder.
"""

from __future__ import annotations

import argparse

from benchmarks.speed import decide, imports, overhead


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks speed", description="All that is measured about speed.")
    parser.add_argument("--quick", action="store_true", help="the quick form of each")
    words = ["--quick"] if parser.parse_args(arguments).quick else []
    codes: list[int] = [part.main(words) for part in (imports, overhead, decide)]
    return max(codes)
