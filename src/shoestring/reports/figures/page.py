"""One self-contained HTML file with figures, tables and texts to copy; nothing is loaded from the network.

Nothing that a user wrote can run in the page. The content security policy in its head forbids every request and allows one style
and one script, by their hashes. All texts are escaped, and styles are classes, never attributes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

from shoestring.core.values.text import count, printable
from shoestring.reports.facts import format_config
from shoestring.reports.figures.configs import draw_importance, draw_parallel, draw_slices
from shoestring.reports.figures.costs import draw_best, draw_budget, draw_front, draw_predicted, draw_timeline
from shoestring.reports.figures.decisions import draw_candidates, draw_regions
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import StudyHistory
from shoestring.reports.figures.policy_figures import (
    draw_compression,
    draw_decisions,
    draw_improvement,
    draw_schedule,
)
from shoestring.reports.figures.predicted_and_actual import draw_forecasts
from shoestring.reports.figures.predicted_curves import draw_expected
from shoestring.reports.figures.style import follow_reader, read_asset, style_marks
from shoestring.reports.figures.trial_curves import draw_curves
from shoestring.reports.figures.trials_table import Cell, Duration, TrialsTable, show_cell

TRIALS = "trials"  # the anchor of the table
FIGURES: tuple[Callable[[StudyHistory], Figure | None], ...] = (
    draw_budget,
    draw_best,
    draw_curves,
    draw_forecasts,
    draw_expected,
    draw_candidates,
    draw_regions,
    draw_improvement,
    draw_decisions,
    draw_compression,
    draw_schedule,
    draw_timeline,
    draw_predicted,
    draw_front,
    draw_parallel,
    draw_slices,
    draw_importance,
)
_TIP = re.compile(r'data-tip="([^"]*)"')
_BEFORE_TRIALS = (
    "comparison",
    "replayed",
    "budget",
    "best",
    "curves",
)  # keys of the figures before the table of trials
_MAX_OPEN_ROWS = 200  # of the table of trials; without a script, a longer one is shown when the reader opens it
_TIPS_PLACE = "<!-- tips -->"


@dataclass(frozen=True)
class Copyable:
    """A text that the reader may want to copy, and its name."""

    name: str
    text: str


def draw_study(history: StudyHistory) -> list[Figure]:
    """Return all figures for which this study has data."""
    return [figure for draw in FIGURES if (figure := draw(history)) is not None]


def write_page(
    title: str,
    lead: str,
    figures: Sequence[Figure],
    copies: Sequence[Copyable] = (),
    *,
    trials: TrialsTable | None = None,
    links: Mapping[str, str] | None = None,
    version: str | None = None,
) -> str:
    """Return the page; the table of trials comes after the first figures.

    `links` maps the names of other pages to addresses. A page with a `version` updates itself.
    """
    style = "\n".join((follow_reader(), style_marks(), read_asset("page.css")))
    scripts = ["page.js", *(["trials_table.js"] if trials else []), *(["watch.js"] if version is not None else [])]
    script = "\n".join(map(read_asset, scripts))
    connect = "connect-src 'self'; " if version is not None else ""
    policy = f"default-src 'none'; {connect}style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    sections = [(figure.key, figure.title, _section(figure)) for figure in figures]
    if trials is not None:
        first = [number for number, figure in enumerate(figures, 1) if figure.key in _BEFORE_TRIALS]
        sections.insert(max(first, default=0), (TRIALS, "All trials", _trials_section(trials)))
    anchors = "".join(f'<a href="#{escape(key)}">{_text(title)}</a>' for key, title, _ in sections)
    others = "".join(f'<a href="{escape(address)}">{_text(name)}</a>' for name, address in (links or {}).items())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{_text(title)}</title><style>{style}</style></head><body><main data-version="{escape(version or "")}">',
        f'<h1>{_text(title)}</h1><p class="lead">{_text(lead)}</p>',
        f'<nav aria-label="studies">{others}</nav>' if others else "",
        f'<nav aria-label="figures">{anchors}</nav>' if anchors else "",
        *(section for _, _, section in sections),
        _copies(copies),
        '<p id="state"></p>',
        _TIPS_PLACE,
        f'</main><div id="tip" role="tooltip" hidden></div><script>{script}</script></body></html>',
    ]
    return _pool_tips("".join(parts))


def _pool_tips(page: str) -> str:
    """Return the page with each tip stored once, as data that is never run: several marks of one order have the same tip."""
    numbers: dict[str, int] = {}
    short = _TIP.sub(lambda found: f'data-t="{numbers.setdefault(unescape(found[1]), len(numbers))}"', page)
    texts = json.dumps(list(numbers)).replace("<", "\\u003c")
    return short.replace(_TIPS_PLACE, f'<script type="application/json" id="tips">{texts}</script>')


def describe_study(history: StudyHistory) -> str:
    """Return one or two sentences that describe a study."""
    budget, best = history.budget, history.ledger.best
    spent = f"{history.state.policy} spent {budget.show(history.ledger.spent)} of {budget.show(budget.total)}"
    head = f"{spent} on {count(len(history.trials), 'trial')}."
    if best is None:
        return f"{head} There is no value yet."
    config = format_config(best.best_config or best.config)
    where = f"trial {best.number}, step {best.best_step}"
    return f"{head} The best {history.metric} is {best.best_value:.6g} ({where}), with {config}."


def list_copyables(history: StudyHistory, resume_command: str, citation: str | None = None) -> list[Copyable]:
    """Return the texts that a user may want to copy; `citation` is the citation of the policy's method."""
    best = history.ledger.best
    copies = []
    if best is not None:
        config = dict(best.best_config or best.config)
        values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}
        options = shlex.join(f"--{name}={value}" for name, value in values.items())
        copies = [
            Copyable("best configuration, Python", repr(config)),
            Copyable("best configuration, JSON", json.dumps(config)),
            Copyable("best configuration, command line", options),
        ]
    copies.append(Copyable("continue this study", resume_command))
    return [*copies, Copyable(f"cite the method ({history.state.policy})", citation)] if citation else copies


def _section(figure: Figure) -> str:
    body = _choices(figure) if figure.others else _body(figure)
    return f'<section id="{escape(figure.key)}"><h2>{_text(figure.title)}</h2>{body}</section>'


def _choices(figure: Figure) -> str:
    """Return the HTML that shows one of several figures, at first the first one, with radio buttons and no script."""
    marks, bodies = [], []
    for one in (figure, *figure.others):
        name, checked = escape(f"{figure.key}-{one.choice}".replace(" ", "-")), " checked" if one is figure else ""
        marks.append(f'<input type="radio" name="{escape(figure.key)}" id="{name}"{checked}>')
        marks.append(f'<label for="{name}">{_text(one.choice)}</label>')
        bodies.append(f'<div class="choice">{_body(one)}</div>')
    return f'<fieldset class="choices"><legend>Show</legend>{"".join(marks + bodies)}</fieldset>'


def _body(figure: Figure) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in figure.columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(str(cell))}</td>" for cell in row) + "</tr>" for row in figure.rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<p>{_text(figure.sentence)}</p><div class="picture" tabindex="0">{figure.svg}</div>'
        f'<details><summary>Show as a table</summary><div class="wide" tabindex="0">{table}</div></details>'
    )


def _trials_section(trials: TrialsTable) -> str:
    """Return the plain table of trials, which is closed if it is long. The script makes it sortable."""
    heads = []
    for name in trials.columns:
        order = "descending" if trials.is_max else "ascending"
        ranked = f' aria-sort="{order}" data-ranked="{order}"' if name == trials.ranked_by else ""
        heads.append(f'<th scope="col"{ranked}>{_text(name)}</th>')
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in trials.rows)
    is_open = " open" if len(trials.rows) <= _MAX_OPEN_ROWS else ""
    return (
        f'<section id="{TRIALS}" data-example="{escape(printable(_example_condition(trials)))}"><h2>All trials</h2>'
        f"<p>{_text(trials.sentence)}</p><details{is_open}><summary>Table of {count(len(trials.rows), 'trial')}</summary>"
        f'<div class="wide" tabindex="0" role="region" aria-label="All trials"><table><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div></details></section>"
    )


def _cell(cell: Cell) -> str:
    value = f' data-v="{cell.seconds:.6g}"' if isinstance(cell, Duration) else ""
    return f"<td{value}>{escape(show_cell(cell))}</td>"


def _example_condition(trials: TrialsTable) -> str:
    """Return a condition that half of the trials with a value meet."""
    column = list(trials.columns).index(trials.ranked_by)
    values = sorted(row[column] for row in trials.rows if isinstance(row[column], int | float))  # type: ignore[type-var]
    name = f'"{trials.ranked_by}"' if " " in trials.ranked_by else trials.ranked_by
    return f"{name}<{values[len(values) // 2]:.2g}" if values else "state=complete"


def _copies(copies: Sequence[Copyable]) -> str:
    rows = "".join(
        f'<h3>{_text(one.name)}</h3><div class="copy"><pre id="copy-{number}" tabindex="0">{_text(one.text)}</pre>'
        f'<button type="button" data-copies="copy-{number}">copy</button></div>'
        for number, one in enumerate(copies)
    )
    return f'<section id="copy"><h2>Copy</h2>{rows}</section>' if copies else ""


def _text(text: str) -> str:
    return escape(printable(text))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
