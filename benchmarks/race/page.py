"""Format the race as one HTML page: no script, nothing loaded, light and dark, readable on a phone, all text escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.race import digest, methods, pictures
from benchmarks.race.digest import best_first
from benchmarks.race.pictures import number
from benchmarks.race.statistics import cliques
from benchmarks.race.trained import CURVE_S
from shoestring.reports.figures.style import follow_reader, style_marks

SEEN_TABLES = frozenset((Path(__file__).parent / "seen_tables.txt").read_text("utf-8").split())
MAX_LINES = 14  # in the figure of regret against budget
STYLE = "\n".join((follow_reader(), style_marks(), (Path(__file__).parent / "page.css").read_text("utf-8")))
SUITES = {
    "tables": "Recorded curves",
    "plain": "Plain objectives: a trial has one value",
    "trained": "Real training, on a real clock",
}


def html(facts: Mapping[str, Any], costs: Sequence[Mapping[str, Any]] = ()) -> str:
    body = [_head(facts), *(_part(part) for part in facts["parts"]), _costs(costs), _limitations(facts)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>The race</title><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _kinds(part: Mapping[str, Any]) -> dict[str, str]:
    """Return the CSS class of each method."""
    return {row["method"]: methods.kind(row["method"], part["reference"]) for row in part["effort"]}


def _head(facts: Mapping[str, Any]) -> str:
    return (
        "<h1>The race: the same problems, the same budget</h1>"
        f"<p>{facts['runs']} runs from {escape(facts['from'][:10])} to {escape(facts['to'][:10])}. "
        "Regret is 0 for the lowest loss that any drawn configuration reaches within the budget and 1 for the median first loss; "
        "lower is better. All sources have equal weight, as have the tables of a source and the seeds of a table. Intervals are "
        "95 %, by a bootstrap with the same nesting. "
        f'Reference: <b style="color:var(--ref)">{escape(_references(facts))}</b>; '
        'colours mark <span style="color:var(--own)">ours</span> and <span style="color:var(--peer)">other tools</span>.</p>'
    )


def _references(facts: Mapping[str, Any]) -> str:
    """Name the reference of each suite: the method that we recommend for it."""
    first, *others = facts["parts"]
    apart = [part for part in others if part["reference"] != first["reference"]]
    return "; ".join(
        [
            first["reference"],
            *(f"{part['reference']} on {SUITES[part['suite']].partition(':')[0].lower()}" for part in apart),
        ]
    )


def _part(part: Mapping[str, Any]) -> str:
    kinds, reference = _kinds(part), part["reference"]
    title = SUITES.get(part["suite"], part["suite"])
    lanes = "".join(
        f" {count} runs at a time, each on {'its own core' if each == 1 else f'{each} cores of its own'}, in random order."
        for count, each in part["lanes"]
    )
    counted = "full curves" if part["unit"] == "curves" else "seconds, 1 being the time of a full curve"
    if part["suite"] == "plain":
        counted = "trials" if part["unit"] == "curves" else "seconds, 1 being the median cost of a trial"
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
                "" if len(part["budgets"]) < 2 else pictures.regret_against_budget(
                    part["means"], part["budgets"], _select_methods(part, kinds), part["unit"]
                ),
                f"Mean regret against budget. Shown: the reference, the baselines, and the best methods up to {top_budget:g}.",
            ),
            _means(part, kinds),
            _figure(
                pictures.difference_dots(dots, kinds),
                f"{reference} minus the other method at a budget of {middle:g}, same problems and seeds (square-root scale).",
            ),
            _differences(part, kinds, reference),
            _figure(
                "" if critical is None else pictures.critical_difference(
                    ranks["ranks"], critical, cliques(ranks["ranks"], critical), kinds
                ),
                _describe_ranks(ranks),
            ),
            _by_source(part, kinds),
            _losses(part, reference),
            _effort(part, kinds),
        ]
    )  # fmt: skip


def _describe_ranks(ranks: Mapping[str, Any]) -> str:
    text = (
        f"Average ranks over {ranks['tables']} tables at budgets of {', '.join(f'{b:g}' for b in ranks['budgets'])}; "
        "Nemenyi's critical difference at 5 %. It is too small, because tables of one source are similar."
    )
    return text + (
        f" Not ranked, because runs are missing: {', '.join(ranks['left_out'])}." if ranks["left_out"] else ""
    )


def _select_methods(part: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, str]:
    """Return the methods in the figure: at most `MAX_LINES`, because more lines are unreadable."""
    ranked = [name for name in best_first(part) if name != methods.ORACLE]
    fixed = [name for name in ranked if kinds[name] == "ref" or name in methods.ALWAYS_RACED]
    chosen = [*fixed, *(name for name in ranked if name not in fixed)][:MAX_LINES]
    return {name: kinds[name] for name in ranked if name in chosen}


def _means(part: Mapping[str, Any], kinds: Mapping[str, str]) -> str:
    cells = {(row["method"], row["budget"]): row for row in part["means"]}
    real = [row for row in part["means"] if row["method"] != methods.ORACLE]
    best = {b: min((row["mean"] for row in real if row["budget"] == b), default=0.0) for b in part["budgets"]}
    whole = digest.complete_run_counts(part)

    def cell(row: Mapping[str, Any] | None) -> tuple[str, str]:
        if row is None:
            return "–", ""
        mark = digest.INCOMPLETE_MARK if row["cells"] < whole.get(row["method"], 0) else ""
        text = f"{number(row['mean'])}{mark} <small>{number(row['low'])}–{number(row['high'])}</small>"
        return text, "best" if row["mean"] <= best[row["budget"]] and row["method"] != methods.ORACLE else ""

    rows = [(name, [cell(cells.get((name, b))) for b in part["budgets"]]) for name in best_first(part)]
    caption = f"Mean regret with its interval; {digest.INCOMPLETE_MARK}: only some of the runs"
    return _table(caption, ["method", *(f"{b:g}" for b in part["budgets"])], rows, kinds)


def _differences(part: Mapping[str, Any], kinds: Mapping[str, str], reference: str) -> str:
    cells = {(row["method"], row["budget"]): row for row in part["differences"] if row["method"] != methods.ORACLE}
    if not cells:
        return f"<p>The reference {escape(reference)} has no runs in this part.</p>"

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
        f"{reference} minus the other method (below 0: {reference} is better), interval, tables won–lost; "
        "bold: the interval excludes 0"
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
    text = f"<ul>{''.join(items)}</ul>" if items else "<p>The reference has the lowest mean at every budget.</p>"
    return f"<h3>Where {escape(reference)} is worse</h3>{text}"


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
    heads = ["method", "version", "problems", "seeds", "runs", "errors", "trials per run", "ms per decision"]
    return _table("Runs per method; a run with an error counts with its best loss until then", heads, rows, kinds)


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
        "Milliseconds per decision (95 % quantile, peak memory of the process that decides), by the number of configurations; "
        "*: stopped before its budget was spent"
    )
    return "<h2>Time and memory of decisions</h2>" + _table(
        caption, ["method", *(f"{n} configurations" for n in arms)], rows, kinds
    )


def _limitations(facts: Mapping[str, Any]) -> str:
    tables = sorted({name for part in facts["parts"] if part["suite"] != "trained" for name in part["tables"]})
    marked = "".join(f"<li>{escape(name)}{' ●' if name in SEEN_TABLES else ''}</li>" for name in tables)
    fresh = [name for name in tables if name not in SEEN_TABLES]
    not_marked = escape(", ".join(fresh)) or "none, so all results may be optimistic"
    behind = sum(row["certain"] for part in facts["parts"] for row in part["losses"])
    return (
        "<h2>Limitations</h2>"
        f"<p>{facts['runs']} runs, {escape(facts['from'])} to {escape(facts['to'])}; {facts['resamples']} resamples. A seed "
        "determines the drawn configurations and the random numbers of the method; both come from a hash of the names of the "
        "run, so every run can be repeated.</p>"
        f"<p>Number of seeds. {_describe_seeds(facts)} A method with fewer seeds has wider intervals, and only methods with "
        "all budgets are ranked.</p>"
        "<p>Tables marked ● were known while this project was developed: some of our constants (the number of configurations of "
        "sequential_halving, and priors) were chosen with some of these tables, so their results may be optimistic. "
        f"Not marked: {not_marked}.</p>"
        "<p>A regret of 0 is, on tables, the lowest loss of a drawn configuration within the budget; for functions, the true "
        "minimum; on the real clock, the lowest loss that any run has reached so far.</p>"
        f"<p>Where we lose: in {behind} of the comparisons above the reference is worse and the interval excludes 0. Each part "
        "lists them, for our methods and for other tools.</p>"
        f"<p>{escape(digest.describe_missing_methods(facts))}</p>"
        "<p>Tools have the settings that their documentation introduces, and get the number of steps if they need it. On tables, "
        "a proposed point is replaced by the nearest configuration that was not tried yet. A tool that can pause a trial resumes "
        "it without repeating steps; another tool repeats them and is charged again. The start of a tool's process is never "
        "charged; its computing time is charged on the real clock.</p>"
        f"<details><summary>{len(tables)} tables</summary><ul>{marked}</ul></details>"
    )


def _describe_seeds(facts: Mapping[str, Any]) -> str:
    sentences = []
    for part in facts["parts"]:
        by_count: dict[int, list[str]] = {}
        for row in part["effort"]:
            by_count.setdefault(row["seeds"], []).append(row["method"])
        counts = [f"{count} for {', '.join(by_count[count])}" for count in sorted(by_count, reverse=True)]
        title = SUITES.get(part["suite"], part["suite"])
        sentences.append(escape(f"{title}, budgets in {part['unit']}: {'; '.join(counts)}."))
    return " ".join(sentences)


def _figure(picture: str, caption: str) -> str:
    return (
        f'<figure style="margin:1rem 0">{picture}<figcaption class="faint">{escape(caption)}</figcaption></figure>'
        if picture
        else ""
    )


def _table(
    caption: str, heads: Sequence[str], rows: Iterable[tuple[str, Sequence[tuple[str, str]]]], kinds: Mapping[str, str]
) -> str:
    """Return an HTML table. Cells must be HTML; the caption, names and heads are escaped here."""
    body = "".join(
        f'<tr class="{kinds.get(name, "")}"><td>{escape(name)}</td>'
        + "".join(f'<td class="{kind}">{text}</td>' if kind else f"<td>{text}</td>" for text, kind in cells)
        + "</tr>"
        for name, cells in rows
    )
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    return f'<div class="wide"><table><caption>{escape(caption)}</caption><tr>{head}</tr>{body}</table></div>'
