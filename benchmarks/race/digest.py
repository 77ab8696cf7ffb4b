"""The race in a few rows, for a README: our default, what always races, a few of ours, and of each tool its best method.

Rows are chosen by a rule, not by hand: of a tool the method with the best average place at the budgets that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.race import methods, pictures
from benchmarks.race.pictures import number
from shoestring.reports.pictures.static import wrap_svg

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


def few(facts: Mapping[str, Any]) -> str:
    """Markdown for the README: chosen methods on the first part, at each budget that ranks count, and on the real clock."""
    first = facts["parts"][0]
    certain = [f"{label(row['method'], '')} {where}" for where, row in _losses(facts) if row["certain"]]
    ahead = f"Ahead of `{facts['reference']}` by more than chance: {', '.join(certain) or 'nobody'}."
    return "\n".join([_size(first) + "\n", _means(facts, chosen(first, facts["reference"])), ahead + "\n"])


def everything(facts: Mapping[str, Any], costs: Sequence[Mapping[str, Any]]) -> str:
    """Markdown for the race's own README: everybody, sources that thrift never saw, where we lose, what thinking costs."""
    first = facts["parts"][0]
    everybody = [name for name in best_first(first) if name != methods.ORACLE]
    names = [name for name in everybody if name in chosen(first, facts["reference"])]
    sources = ", ".join(first["unseen"]["sources"])
    texts = [
        f"{facts['runs']} runs from {facts['from'][:10]} to {facts['to'][:10]}. {_size(first)} Bold: the best of a column.\n",
        _means(facts, everybody),
    ]
    if sources:
        texts += [f"The few on sources that `thrift` was never trained on ({sources}):\n", _unseen(first, names)]
    texts += [f"Where `{facts['reference']}` is behind in the mean, paired on the same draws:\n", _behind(facts)]
    if costs:
        texts += ["Milliseconds of a decision (MB of memory), by configs to choose from; *: cut off before its end:\n"]
        texts += [_thinking(costs)]
    return "\n".join(texts)


def _means(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    first = facts["parts"][0]
    clock = next((part for part in facts["parts"] if part["suite"] == "trained"), None)
    columns = [(f"{budget:g}", _column(first["means"], budget, names)) for budget in first["ranks"]["budgets"]]
    if clock:
        columns += [("real clock", _column(clock["means"], budget, names)) for budget in clock["budgets"]]
    seeds = {row["method"]: row["seeds"] for row in first["effort"]}
    most = max(seeds.values())
    notes = {name: f" ({seeds[name]} seeds)" for name in names if seeds[name] < most}
    return _table(facts["reference"], names, columns, notes)


def _unseen(part: Mapping[str, Any], names: Sequence[str]) -> str:
    means = part["unseen"]["means"]
    return _table("", names, [(f"{b:g}", _column(means, b, names)) for b in part["ranks"]["budgets"]])


def _table(
    reference: str,
    names: Sequence[str],
    columns: Sequence[tuple[str, Mapping[str, str]]],
    notes: Mapping[str, str] | None = None,
) -> str:
    heads = ["", *(head for head, _ in columns)]
    rows = [
        [label(name, reference) + (notes or {}).get(name, ""), *(cells.get(name, "–") for _, cells in columns)]
        for name in names
    ]
    return "".join(f"| {' | '.join(line)} |\n" for line in [heads, ["---"] * len(heads), *rows])


def _size(part: Mapping[str, Any]) -> str:
    most = max(row["seeds"] for row in part["effort"])
    return (
        f"{len(part['tables'])} tables of {len(part['sources'])} sources, {most} seeds where no other number is given."
    )


def _losses(facts: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [
        ("on the real clock" if part["suite"] == "trained" else f"at {row['budget']:g}", row)
        for part in facts["parts"]
        for row in part["losses"]
    ]


def _behind(facts: Mapping[str, Any]) -> str:
    lines = []
    for where, row in _losses(facts):
        sure = "" if row["certain"] else ", which may be chance"
        span = f"{number(row['low'])} to {number(row['high'])}"
        lines.append(f"- {where}: {label(row['method'], '')}, by {number(row['difference'])} ({span}){sure}\n")
    return "".join(lines) or "- nowhere\n"


def _thinking(costs: Sequence[Mapping[str, Any]]) -> str:
    arms = sorted({row["arms"] for row in costs})
    cells: dict[int, dict[str, str]] = {n: {} for n in arms}
    for row in costs:
        if not row.get("absent"):
            star = "*" if row["error"] else ""
            memory = f" ({row['memory_mb']:.0f})" if row["memory_mb"] else ""
            cells[row["arms"]][row["method"]] = f"{row['mean_ms']:.3g}{memory}{star}"
    by_time = {row["method"]: row["mean_ms"] for row in costs if not row.get("absent") and row["arms"] == arms[0]}
    return _table("", sorted(by_time, key=lambda name: by_time[name]), [(f"{n}", cells[n]) for n in arms])


def _column(means: Sequence[Mapping[str, Any]], budget: float, names: Sequence[str]) -> dict[str, str]:
    own = {row["method"]: row["mean"] for row in means if row["budget"] == budget and row["method"] in names}
    least = min(own.values(), default=0.0)
    return {name: f"**{number(mean)}**" if mean <= least else number(mean) for name, mean in own.items()}


def label(name: str, reference: str) -> str:
    tool = methods.describe(name)["tool"]
    if tool in NAMES:
        return f"{NAMES[tool]}, {name.removeprefix(f'{tool}_').replace('_', ' ')}"
    return f"`{name}`, our default" if name == reference else f"`{name}`"


def picture(facts: Mapping[str, Any]) -> str:
    """Regret of the same rows against money, as a file of its own, light and dark."""
    part, reference = facts["parts"][0], facts["reference"]
    kinds = {name: methods.kind(name, reference) for name in chosen(part, reference)}
    labels = {name: label(name, "").replace("`", "") for name in kinds}  # the reference is known by its colour
    drawn = pictures.regret_against_money(part["means"], part["ranks"]["budgets"], kinds, part["unit"], labels)
    return wrap_svg(drawn, "mean normalised regret against money", look="reader", padding=10.0, zoom=1.5)
