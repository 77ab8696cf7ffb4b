"""A figure as a file of its own: SVG that every program reads, and PNG where the optional rasteriser is installed."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib import import_module
from typing import Literal

from shoestring.core.values.text import printable
from shoestring.errors import MissingExtra, StudyError
from shoestring.reports.figures.drawing import Figure, drop_tips
from shoestring.reports.figures.style import DARK, FONT, LIGHT, style_marks, write_out

Look = Literal["light", "dark", "reader"]  # reader: as the reader has it, where the program that shows it can tell
PADDING = 14.0
PNG_ZOOM = 2.0  # pixels for a unit: sharp on today's screens
_ON_A_PHONE = "@media (max-width: 480px) { svg text { font-size: 15px; } }\n"  # of the picture, where it is shown small
_HEAD = re.compile(r'<svg viewBox="0 0 ([\d.]+) ([\d.]+)"[^>]*>')


def write_svg(figure: Figure, look: Look = "light") -> str:
    """The picture with its own style and ground. Its title and its sentence are inside, to be read out or shown by hovering."""
    return wrap_svg(figure.svg, figure.title, figure.sentence, look)


def wrap_svg(
    drawn: str, title: str, sentence: str = "", look: Look = "light", padding: float = PADDING, zoom: float = 1.0
) -> str:
    """`drawn`: what a `Sheet` gives; `zoom`: how large it is shown where nobody says otherwise."""
    head = _HEAD.match(drawn)
    assert head is not None, "not a sheet"
    width, height = (float(side) + 2 * padding for side in head.groups())
    size = (
        f'width="{zoom * width:g}" height="{zoom * height:g}" viewBox="{-padding:g} {-padding:g} {width:g} {height:g}"'
    )
    ground = f'<rect class="ground" x="{-padding:g}" y="{-padding:g}" width="{width:g}" height="{height:g}"/>'
    described = f"<desc>{escape(printable(sentence))}</desc>" if sentence else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
        f"<title>{escape(printable(title))}</title>{described}<style>\n{_style(drawn, look, width)}</style>\n{ground}"
        f"{_break_lines(drop_tips(drawn[head.end() :]))}\n"
    )


def _style(drawn: str, look: Look, width: float) -> str:
    rules = f"{style_marks(drawn)}\nsvg .ground {{ fill: var(--card); }}\n"
    first = write_out(rules, DARK if look == "dark" else LIGHT)
    if look != "reader":
        return first
    phone = _ON_A_PHONE if width > 600 else ""
    return f"{first}@media (prefers-color-scheme: dark) {{\n{_only_colours(rules, DARK)}}}\n{phone}"


def _only_colours(rules: str, colours: Mapping[str, str]) -> str:
    """What differs between light and dark."""
    return "".join(f"{write_out(rule, colours)}\n" for rule in rules.splitlines() if "var(" in rule)


def _break_lines(marks: str) -> str:
    """A mark a line: a change of one is a change of one line."""
    return re.sub(r">(?=<(?!/))", ">\n", marks)


def draw_png(svg: str, zoom: float = PNG_ZOOM) -> bytes:
    """`svg`: of `write_svg`, light or dark."""
    return bytes(find_rasteriser()(svg_string=svg, zoom=zoom))


@cache
def find_rasteriser() -> Callable[..., bytes]:
    try:
        render: Callable[..., bytes] = import_module("resvg_py").svg_to_bytes
    except ModuleNotFoundError:
        raise MissingExtra("a figure as PNG", "resvg-py", "pictures") from None
    if render(svg_string=_PROBE.format("x")) == render(svg_string=_PROBE.format("")):  # texts are left out silently
        raise StudyError(
            "no font was found to write a figure as PNG with: install one (fonts-dejavu-core), or take --svg"
        )
    return render


_PROBE = f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><text y="9" style="font: 9px {FONT}">{{}}</text></svg>'
