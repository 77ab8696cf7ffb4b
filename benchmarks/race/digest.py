"""The race in a few rows, for a README: our default, what always races, a few of ours, and of each tool its best method.

Rows are chosen by a rule, not by hand: of a tool the method with the best average place at the budgets that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.race import methods, pictures
from benchmarks.race.pictures import number

OWN = ("thrift", "asha")  # beside the reference and what always races
NAMES = {
    "dehb": "DEHB",
    "neps": "NePS",
    "optuna": "Optuna",
    "ray": "Ray Tune",
    "smac": "SMAC",
    "syne_tune": "Syne Tune 0.13",
    "syne_tune_newest": "Syne Tune, newest",
}


def best_first(part: Mapping[str, Any]) -> list[str]:
    """Methods by their average place at the budgets that they have; the oracle is no competitor and comes last."""
    places: dict[str, list[int]] = {}
    for budget in part["budgets"]:
        own = [row for row in part["means"] if row["budget"] == budget and row["method"] != methods.ORACLE]
        for place, row in enumerate(sorted(own, key=lambda row: row["mean"])):
            places.setdefault(row["method"], []).append(place)
    ordered = sorted(places, key=lambda name: sum(places[name]) / len(places[name]))
    return ordered + [row["method"] for row in part["effort"] if row["method"] == methods.ORACLE]


def chosen(part: Mapping[str, Any], reference: str) -> list[str]:
    """Best first, without the oracle."""
    ordered = [name for name in best_first(part) if name != methods.ORACLE]
    fixed = {reference, *methods.ALWAYS, *OWN}
    of_tool: dict[str, str] = {}
    for name in ordered:
        if not methods.is_ours(name):
            of_tool.setdefault(methods.describe(name)["tool"], name)
    return [name for name in ordered if name in fixed or name in of_tool.values()]


def table(facts: Mapping[str, Any]) -> str:
    """Markdown: a row for each chosen method of the first part, a column for each budget that ranks count, and the clock."""
    first = facts["parts"][0]
    clock = next((part for part in facts["parts"] if part["suite"] == "trained"), None)
    columns = [(first, budget, f"{budget:g}") for budget in first["ranks"]["budgets"]]
    if clock:
        columns += [(clock, budget, "real clock") for budget in clock["budgets"]]
    names = chosen(first, facts["reference"])
    cells = [_column(part, budget, names) for part, budget, _ in columns]
    heads = ["", *(head for *_, head in columns)]
    rows = [[label(name, facts["reference"]), *(cell.get(name, "–") for cell in cells)] for name in names]
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _column(part: Mapping[str, Any], budget: float, names: Sequence[str]) -> dict[str, str]:
    means = {row["method"]: row["mean"] for row in part["means"] if row["budget"] == budget and row["method"] in names}
    least = min(means.values(), default=0.0)
    return {name: f"**{number(mean)}**" if mean <= least else number(mean) for name, mean in means.items()}


def label(name: str, reference: str) -> str:
    tool = methods.describe(name)["tool"]
    if tool in NAMES:
        return f"{NAMES[tool]}, {name.removeprefix(f'{tool}_').replace('_', ' ')}"
    return f"`{name}`, our default" if name == reference else f"`{name}`"


def picture(facts: Mapping[str, Any], style: str) -> str:
    """Regret of the same rows against money, as a file of its own, light and dark."""
    part, reference = facts["parts"][0], facts["reference"]
    kinds = {name: methods.kind(name, reference) for name in chosen(part, reference)}
    labels = {name: label(name, "").replace("`", "") for name in kinds}  # the reference is known by its colour
    drawn = pictures.regret_against_money(part["means"], part["ranks"]["budgets"], kinds, part["unit"], labels)
    alone = drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return alone.replace("</title>", f"</title><style>{style}svg{{background:var(--paper)}}</style>", 1) + "\n"
