"""Time 20 consecutive decisions on a study with many results, refits included.

    python -m benchmarks decide --policy bhpt
    OMP_NUM_THREADS=1 python -m benchmarks decide          every policy that has a case
    python -m benchmarks decide --quick                    5 decisions of each, without peers

Each case is a policy with settings, an initial ledger, a source of receipts, and a target for the mean; median and
95 % quantile are printed too. Peers are timed on the same data in the same run. Last line of each case: one JSON
object; exit 1 when a target is missed. To add a policy, write `cases/POLICY.py` with a function `cases`.
"""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path

from benchmarks.speed.measure import DECISIONS, QUICK_DECISIONS, Case, measure

POLICIES = sorted(file.stem for file in (Path(__file__).parent / "cases").glob("[a-z]*.py"))


def cases_of(policy: str) -> list[Case]:
    return list(import_module(f"benchmarks.speed.cases.{policy}").cases())


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks decide", description=__doc__.splitlines()[0])
    parser.add_argument("--policy", choices=POLICIES, action="append", help="default: all")
    parser.add_argument("--quick", action="store_true", help="5 decisions of each case, without peers")
    chosen = parser.parse_args(arguments)
    good = True
    for policy in chosen.policy or POLICIES:
        for case in cases_of(policy):
            result = measure(case, QUICK_DECISIONS if chosen.quick else DECISIONS, with_peers=not chosen.quick)
            good &= result["ok"]
            print(json.dumps(result), flush=True)
    return 0 if good else 1
