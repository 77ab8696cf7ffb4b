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
    links: Mapping[str, str] | None = None,
    version: str | None = None,
) -> str:
    """Return the page. `links` maps the names of other pages to addresses; a page with a `version` updates itself."""
    style = "\n".join((follow_reader(), style_marks(), read_asset("page.css")))
    script = read_asset("page.js") + (read_asset("watch.js") if version is not None else "")
    connect = "connect-src 'self'; " if version is not None else ""
    policy = f"default-src 'none'; {connect}style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
    anchors = "".join(f'<a href="#{escape(figure.key)}">{_text(figure.title)}</a>' for figure in figures)
    others = "".join(f'<a href="{escape(address)}">{_text(name)}</a>' for name, address in (links or {}).items())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<title>{_text(title)}</title><style>{style}</style></head><body><main data-version="{escape(version or "")}">',
        f'<h1>{_text(title)}</h1><p class="lead">{_text(lead)}</p>',
        f'<nav aria-label="studies">{others}</nav>' if others else "",
        f'<nav aria-label="figures">{anchors}</nav>' if anchors else "",
        *(_section(figure) for figure in figures),
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
