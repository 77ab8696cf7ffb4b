"""The first figures of a report in a cell of a notebook: the same drawings, without a script.

Their style stays below a class that is named after it, so outputs of one notebook, or of two versions, do not disturb each
other or the notebook. Texts have the colour of the notebook's own; the rest is light or dark as the notebook says it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.text import printable
from shoestring.reports.figures.costs import draw_best, draw_money
from shoestring.reports.figures.curves import draw_curves
from shoestring.reports.figures.drawing import Figure, drop_tips, tips_as_titles
from shoestring.reports.figures.history import gather
from shoestring.reports.figures.style import DARK, LIGHT, name_colours, style_marks

MOST_WITH_TIPS = 80_000  # bytes: a notebook is kept, mailed and compared
MOST_BYTES = 250_000
MOST_ENTRIES = 150_000  # a second or two of reading
MOST_POINTS = 8_000  # of all curves
_DARK_NOTEBOOKS = (  # JupyterLab, VS Code, Colab, and pages made from notebooks
    'body[data-jp-theme-light="false"]',
    "body.vscode-dark",
    "body.vscode-high-contrast",
    "html[theme=dark]",
    "[data-theme=dark]",
)
_OF_NOTEBOOK = {  # whatever the notebook's text and ground are
    "ink": "currentColor",
    "soft": "color-mix(in srgb, currentColor 72%, transparent)",
    "rule": "color-mix(in srgb, currentColor 18%, transparent)",
    "card": "transparent",
    "paper": "transparent",
}
_SIZE = "svg { display: block; width: 100%; max-width: 740px; height: auto; margin: 2px 0 10px; }"


def draw_cell(name: str, ledger: Ledger) -> str:
    """HTML; one line where the figures would be too large for a notebook."""
    if not ledger.orders:
        return ""
    if len(ledger) > MOST_ENTRIES:
        return _leave_out(f"{len(ledger)} entries")
    story = gather(name, ledger)
    drawn = (draw_money(story), draw_best(story), draw_curves(story, MOST_POINTS))
    figures = [figure for figure in drawn if figure is not None]
    for change, most in ((tips_as_titles, MOST_WITH_TIPS), (drop_tips, MOST_BYTES)):
        pictures = [change(figure.svg) for figure in figures]
        size = sum(len(picture.encode()) for picture in pictures)
        if size <= most:
            return _put_together(figures, pictures)
    return _leave_out(f"{size // 1000} kB of figures")


def _leave_out(why: str) -> str:
    return f"<div>{why} are too much for a notebook: <code>shoestring report</code> draws them.</div>"


def _put_together(figures: Sequence[Figure], pictures: Sequence[str]) -> str:
    rules = (
        style_marks("".join(pictures), "SCOPE")
        + f"\nSCOPE {_SIZE}\nSCOPE {{ {name_colours({**LIGHT, **_OF_NOTEBOOK})} }}\n"
    )
    dark = ", ".join(f"{notebook} SCOPE" for notebook in _DARK_NOTEBOOKS)
    rules += f"{dark} {{ {name_colours({**DARK, **_OF_NOTEBOOK})} }}"
    scope = f"shoestring-{hashlib.sha256(rules.encode()).hexdigest()[:10]}"
    parts = [
        f"<div><b>{escape(printable(figure.title))}.</b> {escape(printable(figure.sentence))}</div>{picture}"
        for figure, picture in zip(figures, pictures, strict=True)
    ]
    return f'<div class="{scope}"><style>{rules.replace("SCOPE", f".{scope}")}</style>{"".join(parts)}</div>'
