"""Store many runs in one small file: every regret, and the sums that the page shows.

    {"parts": [{suite, unit, steps, pool, "methods": {METHOD: {…, "regret": {"source/table": {budget: [by seed]}}}}}],
     "cost": [the fields of `race cost` that the page shows]}

Regrets are integer multiples of REGRET, or null where a seed has no run. Computing times, decisions, trials and errors are stored
as sums per method, so each run that is read from the file has their mean.
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


def pack(runs: Sequence[Mapping[str, Any]], costs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the contents of the file."""
    parts = []
    for part, in_part in _group(runs, part_of):
        by_method = {method: _method(own) for method, own in _group(in_part, lambda run: run["method"])}
        parts.append({**dict(zip(PART, part, strict=True)), "methods": by_method})
    shown = [{name: line[name] for name in COST if name in line} for line in costs]
    return {"regret_unit": REGRET, "parts": parts, "cost": shown}


def _group(runs: Iterable[Mapping[str, Any]], key: Any) -> list[tuple[Any, list[Mapping[str, Any]]]]:
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


def write(contents: Mapping[str, Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_format_json(contents) + "\n", encoding="utf-8")


def _format_json(value: Any) -> str:
    """Format a value as JSON, on one line if it fits, so that new runs of a table change one line of the file."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    if len(text) <= LINE or not isinstance(value, dict | list):
        return text
    if isinstance(value, list):
        return "[\n" + ",\n".join(map(_format_json, value)) + "\n]"
    return "{\n" + ",\n".join(f"{json.dumps(name)}:{_format_json(own)}" for name, own in value.items()) + "\n}"


def unpack(contents: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the runs of a stored file, with the fields that it has."""
    runs = []
    for part in contents["parts"]:
        for method, facts in part["methods"].items():
            own = [
                {
                    "source": name.partition("/")[0],
                    "table": name.partition("/")[2],
                    "budget": float(budget),
                    "seed": seed,
                }
                | {"regret": value * contents["regret_unit"]}
                for name, by_budget in facts["regret"].items()
                for budget, values in by_budget.items()
                for seed, value in enumerate(values)
                if value is not None
            ]
            shared = {name: part[name] for name in PART} | {"method": method, "version": ", ".join(facts["versions"])}
            shared["pool"] = part["pool"] or None  # as in a run, so that a repeated run replaces it
            shared |= {name: facts[name] / len(own) for name in SUMS}
            shared |= dict(zip(("lanes", "cores"), facts["lanes"][0], strict=True)) if facts["lanes"] else {}
            for number, run in enumerate(own):
                run |= shared | {"at": facts["to"] if number else facts["from"]}
                run["error"] = facts["an_error"] if number < facts["errors"] else None
            runs += own
    return runs
