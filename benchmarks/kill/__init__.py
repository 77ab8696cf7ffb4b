"""Studies killed again and again: is anything lost, charged twice, or spent beyond the budget?

Each study is a real `shoestring run`, killed with SIGKILL at random moments together with all its workers, and resumed by the
same command until it is done. What the training code really did comes from a log of its own, not from the ledger.

    python -m benchmarks kill --times 1000 [--kinds simulated,local,process,command] [--stores sqlite,postgresql]
                              [--minutes 60] [--at-once 3] [--seed 0] [--json] [--quick]

Last line: one JSON object; exit 1 when a target is missed.

Read `studies` (what is killed), `nursery` (how it is started), `lives` (one study from its first start to its end, with all
kills) and `verdict` (what is checked).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.kill.lives import Life, Nursery
from benchmarks.kill.studies import KINDS, STORES, UNITS, Case, Plan, make_reference
from benchmarks.kill.verdict import Tally

_LOOK_S = 0.004
_MOST_KILLS = 12  # of one study, so that there are many studies; time budgets pay up to a heartbeat for each


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kill", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000, help="kills in all")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--minutes", type=float, default=60.0, help="no more kills after this")
    parser.add_argument("--at-once", type=int, default=3, help="studies at work at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    parser.add_argument("--quick", action="store_true", help="20 kills, on SQLite")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.times, chosen.stores = 20, "sqlite"
    kinds, stores = chosen.kinds.split(","), chosen.stores.split(",")
    for given, known in ((kinds, KINDS), (stores, STORES)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="shoestring-kill-") as folder, Nursery() as nursery:
        plan = Plan(Path(folder), random.Random(chosen.seed))
        if "postgresql" in stores and (reason := plan.start_server()):
            print(reason, file=sys.stderr)
            stores.remove("postgresql")
            if not stores:
                return 1
        references = {
            (kind, unit): make_reference(plan, nursery, kind, unit)
            for kind, unit in (("simulated", "epochs"), ("simulated", "seconds"), ("local", "epochs"))
            if kind in kinds  # with several workers, and where real time is money, decisions hang on chance
        }
        cases = [Case(kind, store, unit) for unit in UNITS for store in stores for kind in kinds]
        _kill(plan, nursery, cases, tally, references, chosen)
    result = tally.result(chosen.times)
    if not chosen.json:
        tally.show()
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def _kill(
    plan: Plan,
    nursery: Nursery,
    cases: list[Case],
    tally: Tally,
    references: dict[tuple[str, str], list[str]],
    chosen: argparse.Namespace,
) -> None:
    """Keep some studies going, each case in its turn, until there were enough kills; then let them come to their ends."""
    deadline = time.monotonic() + 60 * chosen.minutes
    most_kills = min(_MOST_KILLS, math.ceil(chosen.times / len(cases)))
    lives: list[Life] = []
    turn = 0
    while True:
        may_kill = tally.kills < chosen.times and time.monotonic() < deadline
        while may_kill and len(lives) < chosen.at_once:
            lives.append(Life(plan.make(cases[turn % len(cases)]), nursery, plan.chance, most_kills))
            turn += 1
        nursery.listen(_LOOK_S)
        for life in list(lives):
            tally.kills += life.go_on(may_kill=tally.kills < chosen.times and may_kill)
            if life.is_over:
                lives.remove(life)
                tally.add(life, references.get((life.study.case.kind, life.study.case.unit)))
        if not lives and not may_kill:
            return
