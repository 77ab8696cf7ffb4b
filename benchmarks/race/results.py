"""Many runs in one small file that can be kept: every regret, and of the rest what the page adds up anyway.

    {"parts": [{suite, unit, steps, pool, "methods": {METHOD: {…, "regret": {"source/table": {budget: [by seed]}}}}}],
     "cost": [what the page shows of the lines of `race cost`]}

Regrets are whole numbers of REGRET; null where a seed has no run. Of thinking, decisions, trials and errors a file keeps the
sums of a method, so runs read from it have the mean of each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from benchmarks.race.statistics import PART, part_of

REGRET = 1e-4
LINE = 400  # characters
SUMS = ("thinking_s", "decisions", "trials")
COST = ("method", "arms", "version", "mean_ms", "p95_ms", "memory_mb", "error", "absent")


def keep(runs: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What is written."""
    parts = []
    for part, in_part in _grouped(runs, part_of):
        by_method = {method: _method(own) for method, own in _grouped(in_part, lambda run: run["method"])}
        parts.append({**dict(zip(PART, part, strict=True)), "methods": by_method})
    shown = [{name: line[name] for name in COST if name in line} for line in costs]
    return {"regret_unit": REGRET, "parts": parts, "cost": shown}


def _grouped(runs: Iterable[Mapping[str, Any]], key: Any) -> list[tuple[Any, list[Mapping[str, Any]]]]:
    return [(value, list(own)) for value, own in groupby(sorted(runs, key=key), key)]


def _method(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    regret: dict[str, dict[str, list[int | None]]] = {}
    for run in sorted(runs, key=lambda run: (run["source"], run["table"], run["budget"], run["seed"])):
        row = regret.setdefault(f"{run['source']}/{run['table']}", {}).setdefault(f"{run['budget']:g}", [])
        row += [None] * (run["seed"] - len(row))
        row.append(round(run["regret"] / REGRET))
    errors = [run["error"] for run in runs if run["error"]]
    times = sorted(run["at"] for run in runs)
    return {
        "versions": sorted({version for run in runs for version in str(run["version"]).split(", ")}),
        "from": times[0],
        "to": times[-1],
        "lanes": sorted({(run["lanes"], run["cores"]) for run in runs if "lanes" in run}),
        **{name: round(sum(run[name] for run in runs), 3) for name in SUMS},
        "errors": len(errors),
        "an_error": errors[0][-200:] if errors else None,
        "regret": regret,
    }


def write(told: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_laid_out(told) + "\n", encoding="utf-8")


def _laid_out(value: Any) -> str:
    """JSON with what fits on a line on one, so that other runs of a table change a line of the file."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if len(text) <= LINE or not isinstance(value, dict | list):
        return text
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_laid_out, value)) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(name)}:{_laid_out(own)}" for name, own in value.items()) + "\n}"


def runs_of(told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The runs again, as far as they were kept."""
    runs = []
    for part in told["parts"]:
        for method, facts in part["methods"].items():
            own = [
                {
                    "source": name.partition("/")[0],
                    "table": name.partition("/")[2],
                    "budget": float(budget),
                    "seed": seed,
                }
                | {"regret": value * told["regret_unit"]}
                for name, by_budget in facts["regret"].items()
                for budget, values in by_budget.items()
                for seed, value in enumerate(values)
                if value is not None
            ]
            shared = {name: part[name] for name in PART} | {"method": method, "version": ", ".join(facts["versions"])}
            shared["pool"] = part["pool"] or None  # as a run has it: one that is done again takes its place
            shared |= {name: facts[name] / len(own) for name in SUMS}
            shared |= dict(zip(("lanes", "cores"), facts["lanes"][0], strict=True)) if facts["lanes"] else {}
            for number, run in enumerate(own):
                run |= shared | {"at": facts["to"] if number else facts["from"]}
                run["error"] = facts["an_error"] if number < facts["errors"] else None
            runs += own
    return runs
