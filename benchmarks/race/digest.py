"""Format the race as Markdown for the READMEs.

The short report has our default, the baselines, a few of our policies, and the best method of each tool: the one with the best
average rank at the budgets that it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import markdown
from benchmarks.race import methods, pictures
from benchmarks.race.pictures import number
from shoestring import policies
from shoestring.reports.figures.static import wrap_svg

OWN = (policies.DEFAULT, "asha")  # in addition to the reference and the baselines
INCOMPLETE_MARK = "†"
BEGIN, END = "<!-- race report: begin -->\n", "<!-- race report: end -->\n"
NAMES = {
    "botorch": "BoTorch",
    "dehb": "DEHB",
    "hebo": "HEBO",
    "neps": "NePS",
    "optuna": "Optuna",
    "ray": "Ray Tune",
    "smac": "SMAC",
    "syne_tune": "Syne Tune 0.13",
    "syne_tune_newest": "Syne Tune, newest",
}


def best_first(part: Mapping[str, Any]) -> list[str]:
    """Return methods by average rank at the budgets that they have; the oracle is not ranked and comes last."""
    places: dict[str, list[int]] = {}
    for budget in part["budgets"]:
        own = [row for row in part["means"] if row["budget"] == budget and row["method"] != methods.ORACLE]
        for place, row in enumerate(sorted(own, key=lambda row: row["mean"])):
            places.setdefault(row["method"], []).append(place)
    ordered = sorted(places, key=lambda name: sum(places[name]) / len(places[name]))
    return ordered + [row["method"] for row in part["effort"] if row["method"] == methods.ORACLE]


def select_methods(part: Mapping[str, Any], reference: str) -> list[str]:
    """Return the methods of the short report, best first, without the oracle."""
    ordered = [name for name in best_first(part) if name != methods.ORACLE]
    fixed = {reference, *methods.ALWAYS_RACED, *OWN}
    of_tool: dict[str, str] = {}
    for name in ordered:
        if not methods.is_ours(name):
            of_tool.setdefault(methods.describe(name)["tool"], name)
    return [name for name in ordered if name in fixed or name in of_tool.values()]


def short_report(facts: Mapping[str, Any]) -> str:
    """Return Markdown for the project's README: selected methods on the first part and on the real clock."""
    first = facts["parts"][0]
    return "\n".join([_describe_size(first) + "\n", _means(facts, select_methods(first, facts["reference"]))])


def full_report(facts: Mapping[str, Any], costs: Sequence[Mapping[str, Any]]) -> str:
    """Return Markdown for the README of the race: all methods and parts, where we lose, and the cost of decisions."""
    first = facts["parts"][0]
    ran = [name for part in facts["parts"] if part["suite"] in (first["suite"], "trained") for name in best_first(part)]
    # Some methods have runs on the real clock only.
    all_names = [name for name in dict.fromkeys(ran) if name != methods.ORACLE]
    texts = [
        f"{facts['runs']} runs from {facts['from'][:10]} to {facts['to'][:10]}. "
        f"{_describe_size(first)} Bold: best of the column.\n",
        _means(facts, all_names),
    ]
    texts += [_in_seconds(part) for part in facts["parts"][1:] if part["suite"] == first["suite"]]
    texts += [_describe_losses(facts, facts["reference"])]
    texts += [_plain(facts, part) for part in facts["parts"][1:] if part["suite"] == "plain"]
    if costs:
        texts += [
            "Milliseconds per decision (MB of memory), by the number of configurations; *: stopped before its end:\n"
        ]
        texts += [_decision_times(costs)]
    texts += [describe_missing_methods(facts) + "\n"]
    return "\n".join(texts)


def _means(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    first = facts["parts"][0]
    clock = next((part for part in facts["parts"] if part["suite"] == "trained"), None)
    means, whole = first["means"], complete_run_counts(first)
    columns = [(f"{budget:g}", _column(means, budget, names, whole)) for budget in first["ranks"]["budgets"]]
    if clock:
        columns += [("real clock", _column(clock["means"], budget, names)) for budget in clock["budgets"]]
    return _table(policies.DEFAULT, names, columns, _fewer_seeds(first))


def _fewer_seeds(part: Mapping[str, Any]) -> dict[str, str]:
    """Return a note for each method that has fewer seeds than others."""
    seeds = {row["method"]: row["seeds"] for row in part["effort"]}
    return {name: f" ({count} seeds)" for name, count in seeds.items() if count < max(seeds.values())}


def complete_run_counts(part: Mapping[str, Any]) -> dict[str, int]:
    """Return, per method, its number of runs at one budget if no run is missing."""
    return {row["method"]: row["seeds"] * len(part["tables"]) for row in part["effort"]}


def _table(
    default: str,
    names: Sequence[str],
    columns: Sequence[tuple[str, Mapping[str, str]]],
    notes: Mapping[str, str] | None = None,
) -> str:
    heads = ["", *(head for head, _ in columns)]
    rows = [
        [label(name, default) + (notes or {}).get(name, ""), *(cells.get(name, "–") for _, cells in columns)]
        for name in names
    ]
    return markdown.table(heads, rows) + "\n"


def _describe_size(part: Mapping[str, Any]) -> str:
    most = max(row["seeds"] for row in part["effort"])
    return (
        f"{len(part['tables'])} tables of {len(part['sources'])} sources, {most} seeds unless another number is given; "
        f"{INCOMPLETE_MARK}: run on only some of the tables and seeds; –: not run."
    )


def _in_seconds(part: Mapping[str, Any]) -> str:
    """Return the section on tables with costs, where budgets are in seconds."""
    names = [name for name in best_first(part) if name != methods.ORACLE]
    about = (
        f"Budgets in seconds, for tables with costs, 1 being the time of a median full curve: {_describe_size(part)}\n"
    )
    columns = [(f"{b:g}", _column(part["means"], b, names, complete_run_counts(part))) for b in part["budgets"]]
    return "\n".join([about, _table(policies.DEFAULT, names, columns, _fewer_seeds(part))])


def _plain(facts: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """Return the section on plain objectives, which have other methods and another meaning of budgets."""
    names = [name for name in best_first(part) if name != methods.ORACLE]
    seeds = max(row["seeds"] for row in part["effort"])
    about = (
        f"Plain objectives, where a trial has one value and a cost: {', '.join(part['tables'])}; {seeds} seeds unless another "
        f"number is given. Budgets in {'trials' if part['unit'] == 'curves' else 'the median cost of a trial'}; "
        f"{INCOMPLETE_MARK} as above. "
        "The median of all runs is next to the mean:\n"
    )
    columns = []
    for budget in part["budgets"]:
        columns += [(f"{budget:g}", _column(part["means"], budget, names, complete_run_counts(part)))]
        columns += [(f"{budget:g}, median", _column(part["means"], budget, names, average="median"))]
    table = _table("", names, columns, _fewer_seeds(part))
    return "\n".join([about, table, _describe_losses(facts, part["reference"])])


def describe_missing_methods(facts: Mapping[str, Any]) -> str:
    """Name the methods of other tools without a run, with the reason if it is a property of the method."""
    ran = {row["method"] for part in facts["parts"] for row in part["effort"]}
    missing = [name for name in methods.peers() if name not in ran]
    notes = {name: methods.describe(name)["note"] for name in missing}
    texts = [f"{name} ({note})" if note else name for name, note in notes.items()]
    return f"Methods that the race supports and that were not run: {', '.join(texts) or 'none'}."


def _losses_with_budget(facts: Mapping[str, Any], reference: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Return (budget as text, difference) of all losses in the parts with this reference."""
    first = facts["parts"][0]
    return [
        (
            "on the real clock" if part["suite"] == "trained" else f"at {row['budget']:g}{_unit_suffix(part, first)}",
            row,
        )
        for part in facts["parts"]
        if part["reference"] == reference
        for row in part["losses"]
    ]


def _unit_suffix(part: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    return " in seconds" if part["suite"] == first["suite"] and part["unit"] != first["unit"] else ""


def _describe_losses(facts: Mapping[str, Any], reference: str) -> str:
    lines = [f"Where `{reference}` is worse in the mean, compared on the same problems and seeds:\n\n"]
    found = _losses_with_budget(facts, reference)
    for where, row in found:
        sure = "" if row["certain"] else ", which may be chance"
        span = f"{number(row['low'])} to {number(row['high'])}"
        lines.append(f"- {where}: {label(row['method'], '')}, by {number(row['difference'])} ({span}){sure}\n")
    return "".join(lines if found else [*lines, "- nowhere\n"])


def _decision_times(costs: Sequence[Mapping[str, Any]]) -> str:
    arms = sorted({row["arms"] for row in costs})
    cells: dict[int, dict[str, str]] = {n: {} for n in arms}
    for row in costs:
        if not row.get("absent"):
            star = "*" if row["error"] else ""
            memory = f" ({row['memory_mb']:.0f})" if row["memory_mb"] else ""
            cells[row["arms"]][row["method"]] = f"{row['mean_ms']:.3g}{memory}{star}"
    # Sorted by the largest study of each method: in small studies some methods never fit their model.
    grown = sorted(costs, key=lambda row: row["arms"])
    by_time = {row["method"]: row["mean_ms"] for row in grown if not row.get("absent")}
    return _table("", sorted(by_time, key=lambda name: by_time[name]), [(f"{n}", cells[n]) for n in arms])


def _column(
    means: Sequence[Mapping[str, Any]],
    budget: float,
    names: Sequence[str],
    whole: Mapping[str, int] | None = None,
    average: str = "mean",
) -> dict[str, str]:
    """Return one column of a table. `whole` has the runs per method if none is missing; a mean of fewer is marked."""
    own = {row["method"]: row for row in means if row["budget"] == budget and row["method"] in names}
    least = min((row[average] for row in own.values()), default=0.0)
    marks = {name: INCOMPLETE_MARK if row["cells"] < (whole or {}).get(name, 0) else "" for name, row in own.items()}
    texts = {name: number(row[average]) + marks[name] for name, row in own.items()}
    return {name: f"**{texts[name]}**" if row[average] <= least else texts[name] for name, row in own.items()}


def label(name: str, default: str) -> str:
    tool = methods.describe(name)["tool"]
    if tool in NAMES:
        return f"{NAMES[tool]}, {name.removeprefix(f'{tool}_').replace('_', ' ')}"
    return f"`{name}`, our default" if name == default else f"`{name}`"


def insert_report(path: Path, text: str) -> None:
    """Replace the text between the marks of a file."""
    before, begin, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{path} has no lines {BEGIN.strip()} and {END.strip()}: add them where the report belongs")
    path.write_text(before + begin + text + end + after, encoding="utf-8")


def picture(facts: Mapping[str, Any]) -> str:
    """Draw the regret of our default, of the best method of each tool and of random search, as an SVG file for light and dark."""
    part, default = facts["parts"][0], policies.DEFAULT
    chosen = [name for name in select_methods(part, facts["reference"]) if not methods.is_ours(name)]
    labels = {default: label(default, ""), **{name: label(name, "") for name in (*chosen, "random_search")}}
    means = {row["budget"]: row["mean"] for row in part["means"] if row["method"] == default}
    drawn = pictures.regret_with_intervals(
        means, part["from_default"], {name: text.replace("`", "") for name, text in labels.items()}, part["unit"]
    )
    return wrap_svg(drawn, "mean normalised regret at several budgets", look="reader", padding=10.0, zoom=1.5)
