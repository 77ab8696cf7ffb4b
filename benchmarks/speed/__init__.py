"""Everything about speed: `imports`, `overhead` (the loop), `decide` (each policy), and all of them at once.

    python -m benchmarks speed [--quick]

`decide` times what `cases/` describes, a module for each policy; `measure` is how. The other names are benchmarks too:
`import`, `overhead`, `decide --policy NAME`, and `start`, `serve` beside this folder.
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
