"""Write a figure to a file of its own: as SVG that every program reads, or as PNG if the optional rasteriser is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Literal

from shoestring import private_files
from shoestring.core.values.text import printable
from shoestring.errors import MissingExtra, StoreError, StudyError
from shoestring.reports.figures.drawing import Figure, drop_tips
from shoestring.reports.figures.style import DARK, FONT, LIGHT, replace_variables, style_marks

Look = Literal["light", "dark", "reader"]  # reader: light or dark as the program that shows it is set
PADDING = 14.0
PNG_ZOOM = 2.0  # pixels per unit: sharp on screens of high resolution
_SMALL_SCREEN_STYLE = "@media (max-width: 480px) { svg text { font-size: 15px; } }\n"  # larger text on a small picture
_HEAD = re.compile(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')


def write_svg(figure: Figure, look: Look = "light") -> str:
    """Return the picture with its own style and background, and its title and sentence for screen readers."""
    return wrap_svg(figure.svg, figure.title, figure.sentence, look)


def wrap_svg(
    svg: str, title: str, sentence: str = "", look: Look = "light", padding: float = PADDING, zoom: float = 1.0
) -> str:
    """Return a complete SVG file around what a `Sheet` drew; `zoom` sets its default size."""
    head = _HEAD.match(svg)
    assert head is not None, "not drawn by a Sheet"
    width, height = (float(side) + 2 * padding for side in head.groups())
    size = (
        f'width="{zoom * width:g}" height="{zoom * height:g}" viewBox="{-padding:g} {-padding:g} {width:g} {height:g}"'
    )
    ground = f'<rect class="ground" x="{-padding:g}" y="{-padding:g}" width="{width:g}" height="{height:g}"/>'
    described = f"<desc>{escape(printable(sentence))}</desc>" if sentence else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        f"<title>{escape(printable(title))}</title>{described}<style>\n{_style(svg, look, width)}</style>\n{ground}"
        f"{_break_lines(drop_tips(svg[head.end() :]))}\n"
    )


def _style(svg: str, look: Look, width: float) -> str:
    rules = f"{style_marks(svg)}\nsvg .ground {{ fill: var(--card); }}\n"
    first = replace_variables(rules, DARK if look == "dark" else LIGHT)
    if look != "reader":
        return first
    small_screen = _SMALL_SCREEN_STYLE if width > 600 else ""
    return f"{first}@media (prefers-color-scheme: dark) {{\n{_only_colours(rules, DARK)}}}\n{small_screen}"


def _only_colours(rules: str, colours: Mapping[str, str]) -> str:
    """Return only the rules that contain colours, which differ between light and dark."""
    return "".join(f"{replace_variables(rule, colours)}\n" for rule in rules.splitlines() if "var(" in rule)


def _break_lines(marks: str) -> str:
    """Put each mark on a line of its own, so that a change of one mark changes one line of the file."""
    return re.sub(r">(?=<(?!/))", ">\n", marks)


def draw_png(svg: str, zoom: float = PNG_ZOOM) -> bytes:
    """Return the pixels of a picture that `write_svg` made, light or dark."""
    return bytes(find_rasteriser()(svg_string=svg, zoom=zoom))


def write_file(path: Path, content: bytes | None = None) -> None:
    """Write a file; without content, make a folder. An error is one line."""
    try:
        private_files.make_folder(path) if content is None else private_files.write_file(path, content)
    except (OSError, ValueError) as error:  # ValueError: no file can have that name
        raise StoreError(f"{str(path)!r} cannot be written: {getattr(error, 'strerror', None) or error}") from None


@cache
def find_rasteriser() -> Callable[..., bytes]:
    try:
        render: Callable[..., bytes] = import_module("resvg_py").svg_to_bytes
    except ModuleNotFoundError:
        raise MissingExtra("a figure as PNG", "resvg-py", "pictures") from None
    # Without a font, the rasteriser leaves texts out silently.
    if render(svg_string=_PROBE.format("x")) == render(svg_string=_PROBE.format("")):
        raise StudyError(
            "no font was found for writing a figure as PNG: install one (fonts-dejavu-core), or write it as SVG"
        )
    return render


_PROBE = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" style="font: 9px {FONT}">{{}}</text></svg>'
