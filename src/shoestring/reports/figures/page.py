"""One HTML file: figures, tables, what to copy. It asks nobody for anything, and nothing a user wrote can run in it.

The policy in its head forbids every request and allows just the one style and the one script, by their hashes; all texts are
escaped, and styles come as classes, never as attributes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape, unescape

from shoestring.core.values.text import printable
from shoestring.reports.facts import say_config
from shoestring.reports.figures.configs import draw_parallel, draw_slices
from shoestring.reports.figures.costs import draw_best, draw_front, draw_money, draw_predicted, draw_timeline
from shoestring.reports.figures.curves import draw_curves
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import Story
from shoestring.reports.figures.importance import draw_importance
from shoestring.reports.figures.improvement_and_cost import draw_offers
from shoestring.reports.figures.policy_figures import (
    draw_compression,
    draw_decisions,
    draw_improvement,
    draw_schedule,
)
from shoestring.reports.figures.predicted_and_actual import draw_chances, draw_forecasts
from shoestring.reports.figures.predicted_curves import draw_expected
from shoestring.reports.figures.stopping_map import draw_regions
from shoestring.reports.figures.style import follow_reader, read_beside, style_marks

FIGURES: tuple[Callable[[Story], Figure | None], ...] = (
    draw_money,
    draw_best,
    draw_curves,
    draw_forecasts,
    draw_chances,
    draw_expected,
    draw_offers,
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
_TIPS_HERE = "<!-- tips -->"


@dataclass(frozen=True)
class Copyable:
    """Something to take away: a name, and the text."""

    name: str
    text: str


def draw_study(story: Story) -> list[Figure]:
    """All figures that this study has something to show in."""
    return [figure for draw in FIGURES if (figure := draw(story)) is not None]


def write_page(
    title: str,
    lead: str,
    figures: Sequence[Figure],
    copies: Sequence[Copyable] = (),
    *,
    links: Mapping[str, str] | None = None,
    version: str | None = None,
) -> str:
    """`links`: other pages, by name. `version`: of a page that is served and asks its server for newer ones."""
    style = "\n".join((follow_reader(), style_marks(), read_beside("page.css")))
    script = read_beside("page.js") + (read_beside("watch.js") if version is not None else "")
    asks = "connect-src 'self'; " if version is not None else ""
    policy = f"default-src 'none'; {asks}style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'"
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
        _TIPS_HERE,
        f'</main><div id="tip" role="tooltip" hidden></div><script>{script}</script></body></html>',
    ]
    return _pool_tips("".join(parts))


def _pool_tips(page: str) -> str:
    """Each tip once, as data that is never run: several marks of one order say the same."""
    numbers: dict[str, int] = {}
    short = _TIP.sub(lambda found: f'data-t="{numbers.setdefault(unescape(found[1]), len(numbers))}"', page)
    texts = json.dumps(list(numbers)).replace("<", "\\u003c")
    return short.replace(_TIPS_HERE, f'<script type="application/json" id="tips">{texts}</script>')


def lead_of(story: Story) -> str:
    """A study in one sentence."""
    budget, best = story.budget, story.ledger.best
    spent = f"{budget.show(story.ledger.spent)} of {budget.show(budget.total)} spent on {len(story.trials)} trials"
    if best is None:
        return f"{spent} by {story.books.policy}; no value yet."
    found = f"the best value is {best.best_value:.6g} (trial {best.number}, step {best.best_step})"
    return f"{spent} by {story.books.policy}; {found}: {say_config(best.best_config or best.config)}."


def copies_of(story: Story, resume_command: str, citation: str | None = None) -> list[Copyable]:
    """What a user may want to take away; `citation`: of the method that decided."""
    best = story.ledger.best
    found = []
    if best is not None:
        config = dict(best.best_config or best.config)
        words = " ".join(f"--{name}={json.dumps(v) if not isinstance(v, str) else v}" for name, v in config.items())
        found = [
            Copyable("best config, Python", repr(config)),
            Copyable("best config, JSON", json.dumps(config)),
            Copyable("best config, command line", words),
        ]
    cited = [Copyable(f"cite what decided ({story.books.policy})", citation)] if citation else []
    return [*found, Copyable("go on with this study", resume_command), *cited]


def _section(figure: Figure) -> str:
    body = _choices(figure) if figure.others else _body(figure)
    return f'<section id="{escape(figure.key)}"><h2>{_text(figure.title)}</h2>{body}</section>'


def _choices(figure: Figure) -> str:
    """One of several is shown, the figure itself at first: radio buttons and a rule of the style, no script."""
    marks, bodies = [], []
    for one in (figure, *figure.others):
        name, checked = escape(f"{figure.key}-{one.choice}".replace(" ", "-")), " checked" if one is figure else ""
        marks.append(f'<input type="radio" name="{escape(figure.key)}" id="{name}"{checked}>')
        marks.append(f'<label for="{name}">{_text(one.choice)}</label>')
        bodies.append(f'<div class="choice">{_body(one)}</div>')
    return f'<fieldset class="choices"><legend>show</legend>{"".join(marks + bodies)}</fieldset>'


def _body(figure: Figure) -> str:
    head = "".join(f"<th>{_text(column)}</th>" for column in figure.columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(str(cell))}</td>" for cell in row) + "</tr>" for row in figure.rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<p>{_text(figure.sentence)}</p><div class="picture" tabindex="0">{figure.svg}</div>'
        f'<details><summary>as a table</summary><div class="wide" tabindex="0">{table}</div></details>'
    )


def _copies(copies: Sequence[Copyable]) -> str:
    rows = "".join(
        f'<h3>{_text(one.name)}</h3><div class="copy"><pre id="copy-{number}" tabindex="0">{_text(one.text)}</pre>'
        f'<button type="button" data-copies="copy-{number}">copy</button></div>'
        for number, one in enumerate(copies)
    )
    return f'<section id="take"><h2>To take away</h2>{rows}</section>' if copies else ""


def _text(words: str) -> str:
    return escape(printable(words))


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
