"""A study in a notebook: a small HTML table with the first figures of a report, and a progress bar while it runs.

The HTML is self-contained (no script, no request), takes its colours from the notebook's theme, light or dark, and escapes every
text that the user wrote. The bar is one output that is updated with IPython's display handle: this works wherever IPython works
and needs no widgets.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import one_line
from shoestring.reports.facts import draw_curve, format_config, rank_trials, state_of
from shoestring.reports.progress import SilentProgress, copy_if_consumed, find_remark

_EVERY_S = 0.25  # seconds between two drawings; a reader could not follow faster changes
_ROWS = 8
_MAX_TEXT = 300  # characters of one config or message
_FRAME = "font-family:system-ui,sans-serif;font-size:90%;color:inherit;line-height:1.5"
_CELL = "padding:1px 8px;text-align:left;color:inherit;background:transparent;border:0"
_DIM = "opacity:.65"


def study_html(name: str, ledger: Ledger, checkpoint: Path | str | None = None, rows: int = _ROWS) -> str:
    """Return a study as HTML: the budget, the best value and trials, figures; `checkpoint` is that of the best step, if any."""
    from shoestring.reports.figures.notebook_cell import draw_cell  # here, because a progress bar needs no figures

    trials = rank_trials(ledger)
    table = [_row(("trial", "state", "steps", "best", "curve", "configuration"), "th")]
    for trial in trials[:rows]:
        value = "–" if trial.best_value is None else f"{trial.best_value:.5g}"
        table.append(
            _row((trial.number, state_of(trial), trial.steps, value, draw_curve(trial), format_config(trial.config)))
        )
    more = f'<div style="{_DIM}">and {len(trials) - rows} more</div>' if len(trials) > rows else ""
    saved = f'<div style="{_DIM}">checkpoint {_text(str(checkpoint))}</div>' if checkpoint is not None else ""
    head = f"<b>{_text(name)}</b> · {_text(ledger.state.policy)}, seed {ledger.definition.seed}, {len(trials)} trials"
    return (
        f'<div class="shoestring" style="{_FRAME}"><div>{head}</div>{_spending(ledger)}{_best(ledger)}{saved}'
        f'<table style="border-collapse:collapse;color:inherit">{"".join(table)}</table>{more}{draw_cell(name, ledger)}</div>'
    )


def _spending(ledger: Ledger) -> str:
    budget = ledger.budget
    spent, total = budget.show(ledger.spent), budget.show(budget.total)
    share = min(1.0, ledger.spent / budget.total)
    bar = f'<progress value="{share:.4f}" max="1" style="width:20em;vertical-align:middle"></progress>'
    return f"<div>{bar} spent {_text(spent)} of {_text(total)}</div>"


def _best(ledger: Ledger) -> str:
    best = ledger.best
    if best is None:
        return "<div>best: none yet, no validated step</div>"
    where = f"trial {best.number}, step {best.best_step}"
    return f"<div>best <b>{best.best_value:.6g}</b> ({where}) {_text(format_config(best.best_config or best.config))}</div>"


def _row(cells: Iterable[Any], tag: str = "td") -> str:
    shown = [f'<{tag} style="{_CELL}">{_text(str(cell))}</{tag}>' for cell in cells]
    return f"<tr>{''.join(shown)}</tr>"


def _text(text: str) -> str:
    shown = one_line(text)
    return escape(shown if len(shown) <= _MAX_TEXT else f"{shown[:_MAX_TEXT]}…")


class NotebookView(SilentProgress):
    """Show the study as an output of the cell that runs it, updated at most four times a second."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._remarks: list[str] = []
        self._ledger: Ledger | None = None
        self._drawn = 0.0
        self._handle: Any = None

    def __enter__(self) -> NotebookView:
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        self._draw()

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        self._ledger = ledger
        if remark := find_remark(entry):
            self.announce(remark)
        if time.monotonic() - self._drawn > _EVERY_S:
            self._draw()

    def announce(self, line: str) -> None:
        self._remarks = [*self._remarks, line][-_ROWS:]

    def _draw(self) -> None:
        shown: Any = import_module("IPython.display")
        ledger = None if self._ledger is None else copy_if_consumed(self._ledger)
        body = "starting" if ledger is None else _spending(ledger) + _best(ledger)
        remarks = "".join(f'<div style="{_DIM}">{_text(line)}</div>' for line in self._remarks)
        page = shown.HTML(f'<div class="shoestring" style="{_FRAME}"><b>{_text(self._title)}</b>{body}{remarks}</div>')
        if self._handle is None:
            self._handle = shown.display(page, display_id=True)
        else:
            self._handle.update(page)
        self._drawn = time.monotonic()
