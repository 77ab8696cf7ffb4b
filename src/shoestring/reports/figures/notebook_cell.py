"""Show the first figures of a report in a cell of a notebook: the same drawings, without a script.

Their style applies only below a class that is named after its content, so outputs of one notebook, or of two versions, do not
change each other or the notebook. Texts have the colour of the notebook's text; the rest is light or dark like the notebook.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from html import escape

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.text import printable
from shoestring.reports.figures.costs import draw_best, draw_budget
from shoestring.reports.figures.drawing import Figure, drop_tips, tips_as_titles
from shoestring.reports.figures.history import read_history
from shoestring.reports.figures.style import DARK, LIGHT, name_colours, style_marks
from shoestring.reports.figures.trial_curves import draw_curves

MAX_BYTES_WITH_TIPS = 80_000  # small, because notebooks are stored, mailed and compared
MAX_BYTES = 250_000
MAX_ENTRIES = 150_000  # reading them takes a second or two
MAX_POINTS = 8_000  # of all curves together
_DARK_NOTEBOOKS = (  # JupyterLab, VS Code, Colab, and pages made from notebooks
    'body[data-jp-theme-light="false"]',
    "body.vscode-dark",
    "body.vscode-high-contrast",
    "html[theme=dark]",
    "[data-theme=dark]",
    '[data-md-color-scheme="slate"]',
)
_OWN_COLOURS = {  # follow the notebook's text and background
    "ink": "currentColor",
    "soft": "color-mix(in srgb, currentColor 72%, transparent)",
    "rule": "color-mix(in srgb, currentColor 18%, transparent)",
    "card": "transparent",
    "paper": "transparent",
}
_SIZE = "svg { display: block; width: 100%; max-width: 740px; height: auto; margin: 2px 0 10px; }"


def draw_cell(name: str, ledger: Ledger) -> str:
    """Return the figures as HTML, or one line if they would be too large for a notebook."""
    if not ledger.orders:
        return ""
    if len(ledger) > MAX_ENTRIES:
        return _refuse(f"{len(ledger)} ledger entries")
    history = read_history(name, ledger)
    drawn = (draw_budget(history), draw_best(history), draw_curves(history, MAX_POINTS))
    return show_figures([figure for figure in drawn if figure is not None])


def show_figures(figures: Sequence[Figure]) -> str:
    """Return figures as HTML for a notebook, without tips if they are large; one line if they are too large without them."""
    for change, most in ((tips_as_titles, MAX_BYTES_WITH_TIPS), (drop_tips, MAX_BYTES)):
        pictures = [change(figure.svg) for figure in figures]
        size = sum(len(picture.encode()) for picture in pictures)
        if size <= most:
            return _join(figures, pictures)
    return _refuse(f"{size // 1000} kB of figures")


def _refuse(amount: str) -> str:
    return f"<div>{amount} are too much for a notebook: <code>shoestring report</code> draws the figures.</div>"


def _join(figures: Sequence[Figure], pictures: Sequence[str]) -> str:
    rules = (
        style_marks("".join(pictures), "SCOPE")
        + f"\nSCOPE {_SIZE}\nSCOPE {{ {name_colours({**LIGHT, **_OWN_COLOURS})} }}\n"
    )
    dark = ", ".join(f"{notebook} SCOPE" for notebook in _DARK_NOTEBOOKS)
    rules += f"{dark} {{ {name_colours({**DARK, **_OWN_COLOURS})} }}"
    scope = f"shoestring-{hashlib.sha256(rules.encode()).hexdigest()[:10]}"
    parts = [
        f"<div><b>{escape(printable(figure.title))}.</b> {escape(printable(figure.sentence))}</div>{picture}"
        for figure, picture in zip(figures, pictures, strict=True)
    ]
    return f'<div class="{scope}"><style>{rules.replace("SCOPE", f".{scope}")}</style>{"".join(parts)}</div>'
