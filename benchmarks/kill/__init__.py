"""Kill studies repeatedly and check that nothing is lost, charged twice, or spent beyond the budget.

Each study is a real `shoestring run`. It is killed with SIGKILL at random times together with all its workers, and resumed by the
same command until it ends. The training code writes its own log, and the ledger is compared with that log: what was really
trained must not exceed the budget, whatever the ledger says. There are other worlds than kills (see `studies.WORLDS`): training
code that prints without end, a store that does not answer, a driver that is stopped, and children in process groups of their own.

    python -m benchmarks kill --times 1000 [--kinds simulated,local,process,command] [--stores sqlite,postgresql]
                              [--worlds kill,flood,away,stop,children] [--minutes 60] [--at-once 3] [--seed 0]
                              [--tally FILE] [--json] [--quick]

With `--tally`, the figures are written to a file after each study, and the same command continues from there.
Last line: one JSON object; exit 1 when a target is missed.

Modules: `studies` creates the studies, `fork_server` starts them quickly, `killed_study` runs one study to its end with all
kills, and `checks` compares the results with the logs.
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

from benchmarks.kill.checks import Tally
from benchmarks.kill.killed_study import ForkServer, KilledStudy
from benchmarks.kill.studies import KINDS, STORES, UNITS, WORLDS, Case, Plan, make_reference

_POLL_S = 0.004
_MAX_KILLS = 12  # per study, so that there are many studies; under a time budget each kill is charged up to a heartbeat


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks kill", description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000, help="kills in all")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--stores", default=",".join(STORES))
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--minutes", type=float, default=60.0, help="no more kills after this")
    parser.add_argument("--at-once", type=int, default=3, help="studies at work at the same time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tally", type=Path, help="a file with the figures so far, to be continued")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    parser.add_argument("--quick", action="store_true", help="20 kills, on SQLite")
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        chosen.times, chosen.stores, chosen.worlds = 20, "sqlite", "kill"
    kinds, stores, worlds = chosen.kinds.split(","), chosen.stores.split(","), chosen.worlds.split(",")
    for given, known in ((kinds, KINDS), (stores, STORES), (worlds, WORLDS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    tally = Tally.read(chosen.tally) if chosen.tally else Tally()
    with tempfile.TemporaryDirectory(prefix="shoestring-kill-") as folder, ForkServer() as fork_server:
        plan = Plan(Path(folder), random.Random(f"{chosen.seed} {tally.kills}"))
        if "postgresql" in stores and (reason := plan.start_server()):
            print(reason, file=sys.stderr)
            stores.remove("postgresql")
            if not stores:
                return 1
        references = {
            (kind, unit): make_reference(plan, fork_server, kind, unit)
            for kind, unit in (("simulated", "epochs"), ("simulated", "seconds"), ("local", "epochs"))
            if kind in kinds
            and "kill" in worlds  # with several workers, or under a time budget, decisions depend on timing
        }
        cases = (
            [Case(kind, store, unit) for unit in UNITS for store in stores for kind in kinds]
            if "kill" in worlds
            else []
        )
        # A step of the local runner cannot be interrupted, and only budgets of time have a cutoff.
        guarded = [kind for kind in kinds if kind in ("process", "command")]
        others = [world for world in worlds if world != "kill"]
        cases += [Case(kind, store, "seconds", world) for store in stores for world in others for kind in guarded]
        _kill(plan, fork_server, cases, tally, references, chosen)
    result = tally.result(chosen.times)
    if not chosen.json:
        tally.show()
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def _kill(
    plan: Plan,
    fork_server: ForkServer,
    cases: list[Case],
    tally: Tally,
    references: dict[tuple[str, str], list[str]],
    chosen: argparse.Namespace,
) -> None:
    """Run several studies at a time, case after case, until there were enough kills; then let them end."""
    deadline = time.monotonic() + 60 * chosen.minutes
    max_kills = min(_MAX_KILLS, math.ceil(chosen.times / len(cases)))
    killed_studies: list[KilledStudy] = []
    turn = 0
    while True:
        may_kill = tally.kills < chosen.times and time.monotonic() < deadline
        while may_kill and len(killed_studies) < chosen.at_once:
            killed_studies.append(KilledStudy(plan.make(cases[turn % len(cases)]), fork_server, plan.chance, max_kills))
            turn += 1
        fork_server.listen(_POLL_S)
        for killed_study in list(killed_studies):
            tally.kills += killed_study.advance(may_kill=tally.kills < chosen.times and may_kill)
            if killed_study.is_over:
                killed_studies.remove(killed_study)
                case = killed_study.study.case
                tally.add(killed_study, references.get((case.kind, case.unit)) if case.world == "kill" else None)
                if killed_study.study.server is not None:
                    killed_study.study.server.stop()
                if chosen.tally:
                    tally.save(chosen.tally)
        if not killed_studies and not may_kill:
            return
