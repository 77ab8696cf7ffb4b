"""Measure with a thousand workers: is the loop fast enough, are the workers busy, and does a long study slow down?

    python -m benchmarks scale [--quick] [--policies asha,hyperband] [--out FOLDER]

Everything is simulated: 40 epochs of budget for each worker, curves of 81 steps whose times differ up to fourfold (`load`).
There are four parts: the utilisation of every policy against the number of workers, without the tail after the last order
(`utilisation`); the time of the loop for an entry, without decisions; whether time and memory for an entry stay constant
up to 10^5 receipts (`growth`); and the `constants` from which the page on ten thousand accelerators is computed (`arithmetic`).

Times are processor time. `--out` writes the numbers as `scale.json`, with two figures. Last line: one JSON
object; exit 1 when a target is missed.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from benchmarks.scale.constants import measure_constants
from benchmarks.scale.growth import Growth, measure_growth
from benchmarks.scale.pictures import draw
from benchmarks.scale.utilisation import POLICIES, QUICK_POLICIES, Run, measure

MAX_LOOP_MS = 0.3
MIN_BUSY_SHARE = {"asha": 0.95, "sequential_halving": 0.9, "guided_halving": 0.9, "hyperband": 0.5}
MAX_GROWTH = 1.5  # of time and memory for an entry: the last fifth of a long study against its second fifth
MAX_FIRST_DECISION_S = 2.0  # of cost_aware_ei on a study with 1000 trials of another policy


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks scale", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="policies without a model, and a fifth of the receipts")
    parser.add_argument("--policies", help="only these policies, separated by commas")
    parser.add_argument("--limit", type=float, default=30.0, help="maximum number of seconds of a study with a model")
    parser.add_argument("--out", type=Path, help="folder for scale.json and the figures")
    chosen = parser.parse_args(arguments)
    names = chosen.policies.split(",") if chosen.policies else QUICK_POLICIES if chosen.quick else POLICIES
    limits = dict.fromkeys(QUICK_POLICIES, math.inf)
    runs = [measure(name, n, limits.get(name, chosen.limit)) for name in names for n in (1, 10, 100, 1000)]
    growth = [measure_growth(20_000 if chosen.quick else 100_000, on_disk) for on_disk in (False, True)]
    constants = measure_constants()
    result = _judge(runs, growth, constants)
    if chosen.out is not None:
        _write_results(chosen.out, result, runs, growth)
    print(json.dumps(result))
    return 0 if result["ok"] else 1


def _write_results(folder: Path, result: dict[str, Any], runs: list[Run], growth: list[Growth]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    measured = [{k: None if v != v else v for k, v in run._asdict().items()} for run in runs]
    contents = {**result, "runs": measured, "growth": [one._asdict() for one in growth]}
    (folder / "scale.json").write_text(json.dumps(contents, indent=1) + "\n", encoding="utf-8")
    draw(folder)


def _judge(runs: list[Run], growth: list[Growth], constants: dict[str, float]) -> dict[str, Any]:
    most = max(run.workers for run in runs)
    at_most = {run.policy: run for run in runs if run.workers == most}
    loop_ms = max((run.loop_ms for run in at_most.values() if run.is_whole), default=None)
    busy = {name: run.busy_outside_tail for name, run in at_most.items() if name in MIN_BUSY_SHARE}
    # Only complete studies have a target.
    incomplete = {name: busy.pop(name) for name in list(busy) if not at_most[name].is_whole}
    time_growth, memory_growth = (
        max(getattr(one, part) for one in growth) for part in ("time_growth", "memory_growth")
    )
    first_s = constants["first_decision_s"]
    met = [
        loop_ms is None or loop_ms <= MAX_LOOP_MS,
        all(busy[name] >= MIN_BUSY_SHARE[name] for name in busy),
        max(time_growth, memory_growth) <= MAX_GROWTH,
        first_s <= MAX_FIRST_DECISION_S,
    ]
    return {
        "name": "scale",
        "measured": {
            "workers": most,
            "loop_ms_an_entry": None if loop_ms is None else round(loop_ms, 4),
            "busy_outside_tail": {name: round(share, 3) for name, share in busy.items()},
            "busy_until_stopped": {
                name: round(share, 3) for name, share in incomplete.items() if not math.isnan(share)
            },
            "time_growth": round(time_growth, 2),
            "memory_growth": round(memory_growth, 2),
            "constants": {name: float(f"{value:.4g}") for name, value in constants.items()},
        },
        "target": {
            "loop_ms_an_entry": MAX_LOOP_MS,
            "busy_outside_tail": MIN_BUSY_SHARE,
            "growth": MAX_GROWTH,
            "first_decision_s": MAX_FIRST_DECISION_S,
        },
        "peers": {},
        "ok": all(met),
    }
