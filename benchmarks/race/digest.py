"""The race in a few rows, for a README: our default, what always races, a few of ours, and of each tool its best method.

Rows are chosen by a rule, not by hand: of a tool the method with the best average place at the budgets that it has.
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

OWN = ("thrift", "asha")  # beside the reference and what always races
PARTLY = "†"
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
    rows = _losses(facts, facts["reference"])
    certain = [f"{label(row['method'], '')} {where}" for where, row in rows if row["certain"]]
    perhaps: dict[str, list[str]] = {}
    for where, row in sorted(rows, key=lambda found: found[1]["budget"]):
        if not row["certain"] and not methods.is_ours(row["method"]):
            perhaps.setdefault(label(row["method"], ""), []).append(where)
    tools = [f"{name} {' and '.join(places)}" for name, places in perhaps.items()]
    ahead = (
        f"Ahead of `{facts['reference']}` by more than chance: {', '.join(certain) or 'nobody'}. Other tools ahead of it in the "
        f"mean, which may be chance: {'; '.join(tools) or 'none'}."
    )
    return "\n".join([_size(first) + "\n", _means(facts, chosen(first, facts["reference"])), ahead + "\n"])


def everything(facts: Mapping[str, Any], costs: Sequence[Mapping[str, Any]]) -> str:
    """Markdown for the race's own README: everybody, sources that thrift never saw, where we lose, what thinking costs."""
    first = facts["parts"][0]
    ran = [name for part in facts["parts"] if part["suite"] in (first["suite"], "trained") for name in best_first(part)]
    everybody = [name for name in dict.fromkeys(ran) if name != methods.ORACLE]  # some race on the real clock alone
    names = [name for name in everybody if name in chosen(first, facts["reference"])]
    sources = ", ".join(first["unseen"]["sources"])
    texts = [
        f"{facts['runs']} runs from {facts['from'][:10]} to {facts['to'][:10]}. {_size(first)} Bold: the best of a column.\n",
        _means(facts, everybody),
    ]
    if sources:
        texts += [f"The few on sources that `thrift` was never trained on ({sources}):\n", _unseen(first, names)]
    texts += [_in_seconds(part) for part in facts["parts"][1:] if part["suite"] == first["suite"]]
    texts += [_behind(facts, facts["reference"])]
    texts += [_plain(facts, part) for part in facts["parts"][1:] if part["suite"] == "plain"]
    if costs:
        texts += ["Milliseconds of a decision (MB of memory), by configs to choose from; *: cut off before its end:\n"]
        texts += [_thinking(costs)]
    texts += [say_who_lacks(facts) + "\n"]
    return "\n".join(texts)


def _means(facts: Mapping[str, Any], names: Sequence[str]) -> str:
    first = facts["parts"][0]
    clock = next((part for part in facts["parts"] if part["suite"] == "trained"), None)
    means, whole = first["means"], whole_runs(first)
    columns = [(f"{budget:g}", _column(means, budget, names, whole)) for budget in first["ranks"]["budgets"]]
    if clock:
        columns += [("real clock", _column(clock["means"], budget, names)) for budget in clock["budgets"]]
    return _table(policies.DEFAULT, names, columns, _fewer_seeds(first))


def _fewer_seeds(part: Mapping[str, Any]) -> dict[str, str]:
    """A note on each method that has fewer seeds than others."""
    seeds = {row["method"]: row["seeds"] for row in part["effort"]}
    return {name: f" ({count} seeds)" for name, count in seeds.items() if count < max(seeds.values())}


def whole_runs(part: Mapping[str, Any]) -> dict[str, int]:
    """Of each method, the runs at one budget if all its seeds ran on all problems."""
    return {row["method"]: row["seeds"] * len(part["tables"]) for row in part["effort"]}


def _unseen(part: Mapping[str, Any], names: Sequence[str]) -> str:
    means = part["unseen"]["means"]
    return _table("", names, [(f"{b:g}", _column(means, b, names)) for b in part["ranks"]["budgets"]])


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


def _size(part: Mapping[str, Any]) -> str:
    most = max(row["seeds"] for row in part["effort"])
    return (
        f"{len(part['tables'])} tables of {len(part['sources'])} sources, {most} seeds where no other number is given; "
        f"{PARTLY}: of a part of the tables and seeds."
    )


def _in_seconds(part: Mapping[str, Any]) -> str:
    """The tables that have prices once more, with money that buys time."""
    names = [name for name in best_first(part) if name != methods.ORACLE]
    about = f"Budgets in seconds where a table has prices, 1 being the time of a median full curve: {_size(part)}\n"
    columns = [(f"{b:g}", _column(part["means"], b, names, whole_runs(part))) for b in part["budgets"]]
    return "\n".join([about, _table(policies.DEFAULT, names, columns, _fewer_seeds(part))])


def _plain(facts: Mapping[str, Any], part: Mapping[str, Any]) -> str:
    """Objectives that are one value, in a table of their own: other methods, and budgets that mean something else."""
    names = [name for name in best_first(part) if name != methods.ORACLE]
    seeds = max(row["seeds"] for row in part["effort"])
    about = (
        f"Plain objectives, a trial being one value at a price: {', '.join(part['tables'])}; {seeds} seeds where no other number "
        f"is given. Budgets in {'trials' if part['unit'] == 'curves' else 'the median price of a trial'}; {PARTLY} as above. "
        "Beside the mean stands the median of all runs:\n"
    )
    columns = []
    for budget in part["budgets"]:
        columns += [(f"{budget:g}", _column(part["means"], budget, names, whole_runs(part)))]
        columns += [(f"{budget:g}, median", _column(part["means"], budget, names, average="median"))]
    table = _table("", names, columns, _fewer_seeds(part))
    return "\n".join([about, table, _behind(facts, part["reference"])])


def say_who_lacks(facts: Mapping[str, Any]) -> str:
    """Methods of other tools that the race knows and that have no run, with the reason where it is the method's own."""
    ran = {row["method"] for part in facts["parts"] for row in part["effort"]}
    lacking = [name for name in methods.peers() if name not in ran]
    notes = {name: methods.describe(name)["note"] for name in lacking}
    told = [f"{name} ({note})" if note else name for name, note in notes.items()]
    return f"Known to the race, and without a run here: {', '.join(told) or 'nobody'}."


def _losses(facts: Mapping[str, Any], reference: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Of the parts that have this reference."""
    first = facts["parts"][0]
    return [
        (
            "on the real clock" if part["suite"] == "trained" else f"at {row['budget']:g}{_another_unit(part, first)}",
            row,
        )
        for part in facts["parts"]
        if part["reference"] == reference
        for row in part["losses"]
    ]


def _another_unit(part: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    return " in seconds" if part["suite"] == first["suite"] and part["unit"] != first["unit"] else ""


def _behind(facts: Mapping[str, Any], reference: str) -> str:
    lines = [f"Where `{reference}` is behind in the mean, paired on the same draws:\n\n"]
    found = _losses(facts, reference)
    for where, row in found:
        sure = "" if row["certain"] else ", which may be chance"
        span = f"{number(row['low'])} to {number(row['high'])}"
        lines.append(f"- {where}: {label(row['method'], '')}, by {number(row['difference'])} ({span}){sure}\n")
    return "".join(lines if found else [*lines, "- nowhere\n"])


def _thinking(costs: Sequence[Mapping[str, Any]]) -> str:
    arms = sorted({row["arms"] for row in costs})
    cells: dict[int, dict[str, str]] = {n: {} for n in arms}
    for row in costs:
        if not row.get("absent"):
            star = "*" if row["error"] else ""
            memory = f" ({row['memory_mb']:.0f})" if row["memory_mb"] else ""
            cells[row["arms"]][row["method"]] = f"{row['mean_ms']:.3g}{memory}{star}"
    # In the order of the largest study that a method has: small ones are over before a model is asked.
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
    """`whole`: the runs of a method that was not cut off; a mean of fewer is marked."""
    own = {row["method"]: row for row in means if row["budget"] == budget and row["method"] in names}
    least = min((row[average] for row in own.values()), default=0.0)
    marks = {name: PARTLY if row["cells"] < (whole or {}).get(name, 0) else "" for name, row in own.items()}
    texts = {name: number(row[average]) + marks[name] for name, row in own.items()}
    return {name: f"**{texts[name]}**" if row[average] <= least else texts[name] for name, row in own.items()}


def label(name: str, default: str) -> str:
    tool = methods.describe(name)["tool"]
    if tool in NAMES:
        return f"{NAMES[tool]}, {name.removeprefix(f'{tool}_').replace('_', ' ')}"
    return f"`{name}`, our default" if name == default else f"`{name}`"


def put_into(path: Path, text: str) -> None:
    """Between the marks of a file that the race reports in."""
    before, begin, rest = path.read_text("utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(
            f"{path} has no lines {BEGIN.strip()} and {END.strip()}: add them where the report is to stand"
        )
    path.write_text(before + begin + text + end + after, encoding="utf-8")


def picture(facts: Mapping[str, Any]) -> str:
    """Regret of the same rows against money, as a file of its own, light and dark."""
    part = facts["parts"][0]
    kinds = {name: methods.kind(name, policies.DEFAULT) for name in chosen(part, facts["reference"])}
    labels = {name: label(name, "").replace("`", "") for name in kinds}  # the default is known by its colour
    drawn = pictures.regret_against_money(part["means"], part["ranks"]["budgets"], kinds, part["unit"], labels)
    return wrap_svg(drawn, "mean normalised regret against money", look="reader", padding=10.0, zoom=1.5)
