"""A study in a notebook: a small table of HTML with the first figures of a report, and a progress bar while it runs.

The HTML stands alone (no script, no request), takes its colours from the notebook's theme, light or dark, and escapes
every text that is the user's. The bar is one output that is drawn anew, with IPython's display handle: that works
wherever IPython does and needs no widgets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import one_line
from shoestring.reports.facts import draw_curve, say_config, sort_best_first, state_of
from shoestring.reports.progress import Lines, LiveView, Progress, Quiet, remark_on

_EVERY_S = 0.25
_ROWS = 8
_MOST_TEXT = 300  # characters of one config or message
_FRAME = "font-family:system-ui,sans-serif;font-size:90%;color:inherit;line-height:1.5"
_CELL = "padding:1px 8px;text-align:left;color:inherit;background:transparent;border:0"
_DIM = "opacity:.65"


def study_html(name: str, ledger: Ledger, checkpoint: Path | str | None = None, rows: int = _ROWS) -> str:
    """Best, money, the best trials and figures; `checkpoint` is that of the best step, if there is one."""
    from shoestring.reports.figures.notebook_cell import draw_cell  # late: a run that is only followed needs no figures

    trials = sort_best_first(ledger)
    table = [_row(("trial", "state", "steps", "best", "curve", "config"), "th")]
    for trial in trials[:rows]:
        value = "–" if trial.best_value is None else f"{trial.best_value:.5g}"
        table.append(
            _row((trial.number, state_of(trial), trial.steps, value, draw_curve(trial), say_config(trial.config)))
        )
    more = f'<div style="{_DIM}">and {len(trials) - rows} more</div>' if len(trials) > rows else ""
    kept = f'<div style="{_DIM}">checkpoint {_text(str(checkpoint))}</div>' if checkpoint is not None else ""
    head = f"<b>{_text(name)}</b> · {_text(ledger.books.policy)}, seed {ledger.opened.seed}, {len(trials)} trials"
    return (
        f'<div class="shoestring" style="{_FRAME}"><div>{head}</div>{_money(ledger)}{_best(ledger)}{kept}'
        f'<table style="border-collapse:collapse;color:inherit">{"".join(table)}</table>{more}{draw_cell(name, ledger)}</div>'
    )


def _money(ledger: Ledger) -> str:
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
    return (
        f"<div>best <b>{best.best_value:.6g}</b> ({where}) {_text(say_config(best.best_config or best.config))}</div>"
    )


def _row(cells: Iterable[Any], tag: str = "td") -> str:
    shown = [f'<{tag} style="{_CELL}">{_text(str(cell))}</{tag}>' for cell in cells]
    return f"<tr>{''.join(shown)}</tr>"


def _text(text: str) -> str:
    shown = one_line(text)
    return escape(shown if len(shown) <= _MOST_TEXT else f"{shown[:_MOST_TEXT]}…")


class NotebookView(Quiet):
    """The study as an output of the cell that runs it, drawn anew at most four times a second."""

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
        if remark := remark_on(entry):
            self.say(remark)
        if time.monotonic() - self._drawn > _EVERY_S:
            self._draw()

    def say(self, line: str) -> None:
        self._remarks = [*self._remarks, line][-_ROWS:]

    def _draw(self) -> None:
        shown: Any = import_module("IPython.display")
        body = "starting" if self._ledger is None else _money(self._ledger) + _best(self._ledger)
        remarks = "".join(f'<div style="{_DIM}">{_text(line)}</div>' for line in self._remarks)
        page = shown.HTML(f'<div class="shoestring" style="{_FRAME}"><b>{_text(self._title)}</b>{body}{remarks}</div>')
        if self._handle is None:
            self._handle = shown.display(page, display_id=True)
        else:
            self._handle.update(page)
        self._drawn = time.monotonic()


def is_notebook() -> bool:
    """Whether the code was typed into something that shows HTML: a notebook, not a terminal with IPython in it."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    shell = find_shell()
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell"


def make_view(title: str, wanted: bool | None) -> Progress:
    """How a run in Python is shown. None: where somebody can see it; True: always; False: never."""
    if wanted is False:
        return Quiet()
    if is_notebook():
        return NotebookView(title)
    if sys.stderr is not None and sys.stderr.isatty():
        return LiveView(title)
    return Lines() if wanted else Quiet()
