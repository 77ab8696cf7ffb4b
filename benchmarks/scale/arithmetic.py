"""Compute the tables of docs/explanation/ten-thousand-accelerators.md from the measured numbers.

    python -m benchmarks scale.arithmetic [benchmarks/scale/results/scale.json]

prints them. One process decides for all workers, so all results are shares of one core, and the ledger store is one file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "scale.json"
WORKERS = 10_000
STEPS_S = (1.0, 10.0, 60.0, 600.0)  # duration of a step
_DAY_S = 86_400
_APPENDS_A_SECOND = 5.0  # the loop stores what has arrived at least this often


def main(arguments: list[str]) -> int:
    path = Path(arguments[0]) if arguments else RESULTS
    print(write_tables(json.loads(path.read_text(encoding="utf-8"))))
    return 0


def write_tables(result: Mapping[str, Any]) -> str:
    return f"{_what_a_rate_needs(result)}\n\n{_what_policies_allow(result)}"


def _what_a_rate_needs(result: Mapping[str, Any]) -> str:
    """Return the load for `asha`, which places an order for every two or three steps."""
    costs = result["measured"]["constants"]
    asha = _run(result, "asha")
    entries_a_step = asha["entries"] / (asha["workers"] * 40)
    entry_ms = asha["loop_ms"] + costs["commit_of_1000_ms"] / 1000
    lines = [
        "| a step takes | steps a second | entries a second | loop and store | deciding | disk a day | memory a day |",
        "|---|---|---|---|---|---|---|",
    ]
    for step_s in STEPS_S:
        steps = WORKERS / step_s
        entries = steps * entries_a_step
        fixed_ms = _APPENDS_A_SECOND * (costs["commit_of_one_ms"] + costs["heartbeat_of_10000_ms"])
        deciding = steps * (entries_a_step - 1) * asha["decide_ms"] / 1000
        memory = entries * _DAY_S * result["growth"][0]["bytes"][-1]
        cells = [
            f"{step_s:g} s",
            _number(steps),
            _number(entries),
            _share((entries * entry_ms + fixed_ms) / 1000),
            _share(deciding),
            _size(entries * _DAY_S * costs["bytes_an_entry"]),
            _size(memory),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _what_policies_allow(result: Mapping[str, Any]) -> str:
    """Return the shortest step at which one core can decide for all workers, at the speed measured with the most workers."""
    lines = [
        "| policy | a decision takes | measured with | decisions a second | shortest step that keeps 10,000 busy |",
        "|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(run["policy"] for run in result["runs"]):
        run = _run(result, name)
        orders_a_step = max(0.0, run["entries"] - 1 - run["receipts"]) / max(1, run["receipts"])
        shortest_s = WORKERS * orders_a_step * run["decide_ms"] / 1000
        cells = [
            f"`{name}`",
            f"{_number(run['decide_ms'])} ms",
            f"{run['workers']} workers" + ("" if run["is_whole"] else ", stopped early"),
            _number(1000 / run["decide_ms"]),
            f"{_number(shortest_s)} s",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _run(result: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    """Return the complete study with the most workers that was decided on results, or else the longest one that was stopped."""
    own = [run for run in result["runs"] if run["policy"] == policy and run["busy_outside_tail"] is not None]
    return max(own, key=lambda run: (run["is_whole"], run["workers"] if run["is_whole"] else run["receipts"]))


def _number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.2g}"


def _share(share: float) -> str:
    return f"{100 * share:.2g} %" if share < 1 else f"{share:.2g} cores: too much"


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.2g} {unit}" if size < 100 else f"{size:.0f} {unit}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
