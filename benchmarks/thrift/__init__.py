"""Compare `thrift` with sequential halving and other tools, on sources that the weights of its network have not seen.

    python -m benchmarks thrift --data DIR --weights W --jobs 16 -o out/thrift/runs.jsonl
    python -m benchmarks thrift report out/thrift/runs.jsonl [race.jsonl]
    python -m benchmarks thrift clock --lanes 16 -o out/thrift/clock.jsonl     models really trained, on a clock

`W` holds `FOLD-SEED.npz` for every fold and training seed (`training/README.md` makes them); `protocol.py` defines the runs
and `verdict.py` the conditions. If lines of a race on the same tables (`python -m benchmarks race`) are added to the report,
other tools are compared on the runs that both have.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from training.sources import JUDGED_ONLY

from benchmarks.race import running
from benchmarks.thrift import protocol, studies, verdict


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "report":
        return report(arguments[1:])
    if arguments and arguments[0] == "clock":
        from benchmarks.thrift import clock

        return clock.main(arguments[1:])
    parser = argparse.ArgumentParser(prog="python -m benchmarks thrift", description="Run the protocol.")
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="folders of folders of tables")
    parser.add_argument("--weights", type=Path, required=True, help="folder of a-0.npz, b-0.npz, …, all-0.npz")
    parser.add_argument("--trainings", type=int, nargs="*", default=list(protocol.TRAININGS))
    parser.add_argument("--units", nargs="+", choices=protocol.UNITS, default=list(protocol.UNITS))
    parser.add_argument("--seeds", type=int, help="fewer seeds than the protocol has")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="100 to choose settings; the seeds of the protocol are for judging"
    )
    parser.add_argument("--budgets", type=float, nargs="+", help="fewer than the protocol has, in curves")
    parser.add_argument("--settings", type=json.loads, help="settings of the policy, as JSON")
    parser.add_argument("--workers", type=int, default=1, help="trials at the same time; the protocol has one")
    parser.add_argument("--device", help="run the networks there, as cuda; needs PyTorch")
    parser.add_argument("--quick", action="store_true", help="one seed, one training, in steps")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("-o", "--out", type=Path, default=Path("out/thrift/runs.jsonl"))
    chosen = parser.parse_args(arguments)
    seeds = {unit: min(count, chosen.seeds or count) for unit, count in protocol.SEEDS.items()}
    trainings, units = chosen.trainings, chosen.units
    if chosen.quick:
        seeds, trainings, units = dict.fromkeys(seeds, 1), trainings[:1], ["curves"]
    tables = protocol.judged_tables(chosen.data)
    wanted = [
        replace(study, seed=chosen.first_seed + study.seed)
        for study in protocol.plan(tables, trainings, seeds, units)
        if not chosen.budgets or study.budget in chosen.budgets
    ]
    plan = f"{len(tables)} tables of {len({t.source for t in tables})} sources, {len(wanted)} studies"
    print(plan, file=sys.stderr, flush=True)
    options = (chosen.jobs, chosen.settings, chosen.device, chosen.workers)
    lines = studies.run(wanted, chosen.weights, chosen.out, *options)
    for number, _ in enumerate(lines, 1):
        if number % 200 == 0:
            print(f"{number} studies done", file=sys.stderr, flush=True)
    return report([str(chosen.out)])


def report(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks thrift report", description="Print the results.")
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument(
        "--shipped", action="store_true", help="only the shipped weights, on the sources for judging only"
    )
    chosen = parser.parse_args(arguments)
    runs = [line for path in chosen.runs for line in running.read(path)]
    runs = [line for line in runs if line.get("suite") == "tables" and line.get("steps") == 50]
    if chosen.shipped:
        others = {f"{protocol.METHOD}@{training}" for training in protocol.TRAININGS[1:]}
        runs = [line for line in runs if line["source"] in JUDGED_ONLY and line["method"] not in others]
    results: dict[str, object] = {"name": "thrift"}
    for unit in protocol.UNITS:
        grid = verdict.pair(runs, unit)
        if protocol.METHOD not in grid.methods or protocol.BASE not in grid.methods:
            continue
        print(f"\nbudgets in {unit}, less {protocol.BASE}")
        facts: dict[str, Any] = {"against_base": _print(verdict.compare(grid)), "sources": verdict.sources(grid)}
        if set(verdict.MARGINS) | {verdict.DECISIVE} <= set(grid.budgets):
            facts |= {"overall": verdict.overall(grid), "gate": verdict.gate(grid)}
            print(json.dumps(facts["overall"]), json.dumps(facts["gate"]))
        _print_sources(facts["sources"])
        for other in _peers(runs, unit):
            print(f"\nless {other}")
            facts[other] = _print(verdict.compare(verdict.pair(runs, unit, other), other))
        results[unit] = facts
    print(json.dumps(results))
    return 0


def _peers(runs: Sequence[verdict.Run], unit: str) -> list[str]:
    own = {protocol.BASE, "oracle"}
    names = {run["method"] for run in runs if run["unit"] == unit and "@" not in run["method"]} - own
    return sorted(names)


def _print(rows: list[dict[str, float]]) -> list[dict[str, float]]:
    for row in rows:
        print(
            f"{row['budget']:5g}  {row['policy']:.4f} against {row['other']:.4f}   {row['difference']:+.4f}"
            f" [{row['low']:+.4f}, {row['high']:+.4f}]   better {row['better']}, worse {row['worse']} of {row['runs']}"
        )
    return rows


def _print_sources(rows: object) -> None:
    assert isinstance(rows, list)
    budgets = sorted({row["budget"] for row in rows})
    for source in sorted({row["source"] for row in rows}):
        own = {row["budget"]: row for row in rows if row["source"] == source}
        differences = "  ".join(f"{own[b]['difference']:+.4f}{'!' if own[b]['is_bad'] else ' '}" for b in budgets)
        print(f"  {source:<24} {differences}")
