"""The race as one HTML page: no script, nothing fetched, light and dark, readable on a phone. All text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from training.sources import TRAINABLE

from benchmarks.race import digest, methods, pictures
from benchmarks.race.digest import best_first
from benchmarks.race.pictures import number
from benchmarks.race.statistics import cliques
from benchmarks.race.trained import CURVE_S
from shoestring.reports.figures.style import follow_reader, style_marks

SEEN = frozenset((Path(__file__).parent / "seen_tables.txt").read_text("utf-8").split())
MOST_LINES = 14  # in the picture of regret against money
STYLE = "\n".join((follow_reader(), style_marks(), (Path(__file__).parent / "page.css").read_text("utf-8")))
SUITES = {
    "tables": "Recorded curves",
    "plain": "Plain objectives: a trial is one value",
    "trained": "Really trained, on a real clock",
}


def html(facts: Mapping[str, Any], costs: Sequence[Mapping[str, Any]] = ()) -> str:
    body = [_head(facts), *(_part(part) for part in facts["parts"]), _costs(costs), _honesty(facts)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>The race</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _kinds(part: Mapping[str, Any]) -> dict[str, str]:
    """Of each method, how it is coloured."""
    return {row["method"]: methods.kind(row["method"], part["reference"]) for row in part["effort"]}


def _head(facts: Mapping[str, Any]) -> str:
    return (
        "<h1>The race: the same problems, the same money</h1>"
        f"<p>{facts['runs']} runs from {escape(facts['from'][:10])} to {escape(facts['to'][:10])}. "
        "Regret is 0 for the lowest loss that any drawn config reaches within the budget and 1 for the median first loss; small "
        "is good. Every source counts the same, in it every table, of that every seed. Intervals are 95 %, by a bootstrap "
        "nested in the same way. "
        f'<b style="color:var(--ref)">{escape(_references(facts))}</b> is the reference, '
        '<span style="color:var(--own)">ours</span> and <span style="color:var(--peer)">other tools</span> are coloured.</p>'
    )


def _references(facts: Mapping[str, Any]) -> str:
    """What we recommend for each kind of problem is what others are compared with."""
    first, *others = facts["parts"]
    apart = [part for part in others if part["reference"] != first["reference"]]
    return "; ".join(
        [first["reference"], *(f"{part['reference']} on {SUITES[part['suite']].lower()}" for part in apart)]
    )


def _part(part: Mapping[str, Any]) -> str:
    kinds, reference = _kinds(part), part["reference"]
    title = SUITES.get(part["suite"], part["suite"])
    lanes = "".join(
        f" {count} runs at a time, each alone on {'a core' if each == 1 else f'{each} cores'} of its own, in a shuffled order."
        for count, each in part["lanes"]
    )
    counted = "full curves" if part["unit"] == "curves" else "seconds, 1 being the time of a full curve"
    if part["suite"] == "plain":
        counted = "trials" if part["unit"] == "curves" else "seconds, 1 being the median price of a trial"
    if part["suite"] == "trained":
        counted = f"units of {CURVE_S:g} seconds"
    ranks = part["ranks"]
    critical = ranks["critical_difference"]
    top_budget = max(part["budgets"])
    middle = part["budgets"][len(part["budgets"]) // 2]
    dots = [row for row in part["differences"] if row["budget"] == middle and row["method"] != methods.ORACLE]
    return "".join(
        [
            f"<h2>{escape(title)}, budgets in {counted}</h2>",
            f"<p>{len(part['tables'])} problems of {len(part['sources'])} sources: {escape(', '.join(part['sources']))}."
            f"{lanes}</p>",
            _figure(
                "" if len(part["budgets"]) < 2 else pictures.regret_against_money(
                    part["means"], part["budgets"], _shown(part, kinds), part["unit"]
                ),
                f"Mean regret against money. Shown: the reference, what always races, and the best up to {top_budget:g}.",
            ),
            _means(f"Mean regret, with its interval; {digest.PARTLY}: of a part of the runs", part["means"], part, kinds),
            _unseen(part, kinds),
            _figure(
                pictures.difference_dots(dots, kinds),
                f"{reference} minus the other at a budget of {middle:g}, on the same draws (square-root scale).",
            ),
            _differences(part, kinds, reference),
            _figure(
                "" if critical is None else pictures.critical_difference(
                    ranks["ranks"], critical, cliques(ranks["ranks"], critical), kinds
                ),
                _say_ranks(ranks),
            ),
            _by_source(part, kinds),
            _losses(part, reference),
            _effort(part, kinds),
        ]
    )  # fmt: skip


def _say_ranks(ranks: Mapping[str, Any]) -> str:
    text = (
        f"Average ranks over {ranks['tables']} tables at budgets of {', '.join(f'{b:g}' for b in ranks['budgets'])}; "
        "Nemenyi's critical difference at 5 %. Tables of one source are alike, so it flatters."
    )
    return text + (f" Left out, since runs are missing: {', '.join(ranks['left_out'])}." if ranks["left_out"] else "")


def _shown(part: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, str]:
    """The methods in the picture: a picture of thirty lines shows none."""
    ranked = [name for name in best_first(part) if name != methods.ORACLE]
    fixed = [name for name in ranked if kinds[name] == "ref" or name in methods.ALWAYS]
    chosen = [*fixed, *(name for name in ranked if name not in fixed)][:MOST_LINES]
    return {name: kinds[name] for name in ranked if name in chosen}


def _means(caption: str, means: Sequence[Mapping[str, Any]], part: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    cells = {(row["method"], row["budget"]): row for row in means}
    real = [row for row in means if row["method"] != methods.ORACLE]
    best = {b: min((row["mean"] for row in real if row["budget"] == b), default=0.0) for b in part["budgets"]}
    whole = digest.whole_runs(part) if means is part["means"] else {}

    def cell(row: Mapping[str, Any] | None) -> tuple[str, str]:
        if row is None:
            return "–", ""
        mark = digest.PARTLY if row["cells"] < whole.get(row["method"], 0) else ""
        text = f"{number(row['mean'])}{mark} <small>{number(row['low'])}–{number(row['high'])}</small>"
        return text, "best" if row["mean"] <= best[row["budget"]] and row["method"] != methods.ORACLE else ""

    rows = [(name, [cell(cells.get((name, b))) for b in part["budgets"]]) for name in best_first(part)]
    return _table(caption, ["method", *(f"{b:g}" for b in part["budgets"])], rows, kinds)


def _unseen(part: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    sources = part["unseen"]["sources"]
    if "thrift" not in kinds or not sources or sources == part["sources"]:
        return ""
    caption = f"The same on the sources that thrift was never trained on: {', '.join(sources)}"
    return _means(caption, part["unseen"]["means"], part, kinds)


def _differences(part: Mapping[str, Any], kinds: Mapping[str, str], reference: str) -> str:
    cells = {(row["method"], row["budget"]): row for row in part["differences"] if row["method"] != methods.ORACLE}
    if not cells:
        return f"<p>The reference {escape(reference)} has no runs here.</p>"

    def cell(row: Mapping[str, Any] | None) -> tuple[str, str]:
        if row is None:
            return "–", ""
        text = (
            f"{number(row['difference'])} <small>({number(row['low'])}, {number(row['high'])}) "
            f"{row['wins']}–{row['losses']}</small>"
        )
        return text, "best" if row["high"] < 0 or row["low"] > 0 else ""

    order = [name for name in kinds if any(key[0] == name for key in cells)]
    rows = [(name, [cell(cells.get((name, b))) for b in part["budgets"]]) for name in order]
    caption = (
        f"{reference} minus the other (below 0: it is better), interval, tables won–lost; bold: the interval excludes 0"
    )
    return _table(caption, ["against", *(f"{b:g}" for b in part["budgets"])], rows, kinds)


def _by_source(part: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    middle = part["budgets"][len(part["budgets"]) // 2]
    cells = {(r["method"], r["source"]): r["mean"] for r in part["by_source"] if r["budget"] == middle}
    best = {
        s: min((v for (m, own), v in cells.items() if own == s and m != methods.ORACLE), default=0.0)
        for s in part["sources"]
    }

    def cell(name: str, source: str) -> tuple[str, str]:
        value = cells.get((name, source))
        return number(value), "best" if value is not None and value <= best[source] and name != methods.ORACLE else ""

    rows = [(name, [cell(name, source) for source in part["sources"]]) for name in kinds if name != methods.ORACLE]
    return _table(f"By source, at a budget of {middle:g}", ["method", *part["sources"]], rows, kinds)


def _losses(part: Mapping[str, Any], reference: str) -> str:
    items = [
        f"<li>{escape(row['method'])}{' (ours)' if methods.is_ours(row['method']) else ''} at {row['budget']:g}: by "
        f"{number(row['difference'])} ({number(row['low'])} to {number(row['high'])})"
        f"{'' if row['certain'] else ', which may be chance'}</li>"
        for row in part["losses"]
    ]
    text = f"<ul>{''.join(items)}</ul>" if items else "<p>Nowhere in the mean.</p>"
    return f"<h3>Where {escape(reference)} is behind</h3>{text}"


def _effort(part: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    rows = [
        (
            row["method"],
            [
                (escape(", ".join(row["versions"])), ""),
                (str(row["tables"]), ""),
                (str(row["seeds"]), ""),
                (str(row["runs"]), ""),
                (
                    f"{row['errors']}"
                    + (f' <small title="{escape(row["an_error"])}">why?</small>' if row["errors"] else ""),
                    "",
                ),
                (f"{row['trials']:.0f}", ""),
                (f"{row['decision_ms']:.2f}", ""),
            ],
        )
        for row in part["effort"]
    ]
    heads = ["method", "version", "problems", "seeds", "runs", "errors", "trials a run", "ms a decision"]
    return _table("Who ran how often; a run with an error counts with what it had by then", heads, rows, kinds)


def _costs(costs: Sequence[Mapping[str, Any]]) -> str:
    if not costs:
        return ""
    arms = sorted({row["arms"] for row in costs})
    names = list(dict.fromkeys(row["method"] for row in costs))
    kinds = {name: "own" if methods.is_ours(name) else "peer" for name in names}
    cells = {(row["method"], row["arms"]): row for row in costs}

    def cell(row: Mapping[str, Any] | None) -> tuple[str, str]:
        if row is None or row.get("absent"):
            return "–", ""
        note = f' <b title="{escape(row["error"])}">*</b>' if row.get("error") else ""
        memory = f"{row['memory_mb']:.0f} MB" if row["memory_mb"] else "memory unknown"
        return f"{row['mean_ms']:.2f} <small>{row['p95_ms']:.1f}, {memory}{note}</small>", ""

    rows = [(name, [cell(cells.get((name, n))) for n in arms]) for name in names]
    caption = (
        "Milliseconds of a decision (95 % quantile, peak memory of the process that thinks), by configs to choose from; "
        "*: ended before its money was spent"
    )
    return "<h2>What thinking costs</h2>" + _table(caption, ["method", *(f"{n} arms" for n in arms)], rows, kinds)


def _honesty(facts: Mapping[str, Any]) -> str:
    tables = sorted({name for part in facts["parts"] if part["suite"] != "trained" for name in part["tables"]})
    marked = "".join(f"<li>{escape(name)}{_marks(name)}</li>" for name in tables)
    fresh = [name for name in tables if name not in SEEN]
    not_marked = escape(", ".join(fresh)) or "none, so nothing here is fresh evidence"
    behind = sum(row["certain"] for part in facts["parts"] for row in part["losses"])
    return (
        "<h2>How far to trust this</h2>"
        f"<p>{facts['runs']} runs, {escape(facts['from'])} to {escape(facts['to'])}; {facts['resamples']} resamples. Seeds "
        "draw the configs and the methods' own random numbers; both come from a hash of the run's names, so every run can be "
        "repeated.</p>"
        f"<p>Seeds. {_say_seeds(facts)} A method with fewer seeds or budgets has wider intervals, and stands in the "
        "ranks only where it has all budgets.</p>"
        "<p>Tables marked ● lay open while this project was developed: constants of ours (the arms of sequential_halving, "
        f"weights and priors) were chosen with some of them in sight. Not marked: {not_marked}. Tables marked ▲ are of sources "
        "that the weights of thrift were trained on. thrift leaves small budgets to sequential_halving, so the two differ there "
        "by the draw of random numbers alone; its own page says how small.</p>"
        "<p>What a regret of 0 is: on tables the lowest loss of a drawn config within the budget, of a function its true "
        "minimum, on the real clock the lowest loss that any run has reached so far.</p>"
        f"<p>Where we lose: {behind} of the comparisons above have the reference behind with an interval that excludes 0; each "
        "part lists them under “Where the reference is behind” by its name, ours and others.</p>"
        f"<p>{escape(digest.say_who_lacks(facts))}</p>"
        "<p>Tools run with the settings that their documentation introduces, told the number of steps where they need it. On "
        "tables a proposed point is taken for the nearest config not tried yet. A tool that can pause a run resumes it for "
        "free; one that cannot pays again. Starting a tool's process is never charged; its thinking is, where the clock is "
        "real.</p>"
        f"<details><summary>{len(tables)} tables</summary><ul>{marked}</ul></details>"
    )


def _marks(name: str) -> str:
    return (" ●" if name in SEEN else "") + (" ▲" if name.partition("/")[0] in TRAINABLE else "")


def _say_seeds(facts: Mapping[str, Any]) -> str:
    said = []
    for part in facts["parts"]:
        by_count: dict[int, list[str]] = {}
        for row in part["effort"]:
            by_count.setdefault(row["seeds"], []).append(row["method"])
        counts = [f"{count} of {', '.join(by_count[count])}" for count in sorted(by_count, reverse=True)]
        title = SUITES.get(part["suite"], part["suite"])
        said.append(escape(f"{title}, budgets in {part['unit']}: {'; '.join(counts)}."))
    return " ".join(said)


def _figure(picture: str, caption: str) -> str:
    return (
        f'<figure style="margin:1rem 0">{picture}<figcaption class="faint">{escape(caption)}</figcaption></figure>'
        if picture
        else ""
    )


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[tuple[str, str]]]], kinds: Mapping[str, str]
) -> str:
    """`rows` hold cells that are HTML already; names and heads are escaped here."""
    body = "".join(
        f'<tr class="{kinds.get(name, "")}"><td>{escape(name)}</td>'
        + "".join(f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>" for text, kind in cells)
        + "</tr>"
        for name, cells in rows
    )
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f'<div class="wide"><table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table></div>'
