"""The style of all figures: colours for light and dark backgrounds, and how marks are drawn.

A page and a notebook define the colours as variables. An SVG file has the colours themselves, since few programs that show SVG
know variables. The benchmarks' pictures use the same style.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

FONT = (
    "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', 'Noto Sans', 'Liberation Sans', 'DejaVu Sans', Arial, sans-serif"
)
_COLOURS = {  # on light, on dark
    "paper": ("#fcfcfa", "#16181a"),
    "card": ("#ffffff", "#1e2123"),  # the background of figures
    "ink": ("#1d2021", "#e7e6e2"),
    "soft": ("#62686d", "#a0a5a8"),
    "rule": ("#d9dad6", "#34383b"),
    "accent": ("#b3491b", "#ef8a55"),
    "c-train": ("#2f6f8f", "#62a8c9"),  # kinds of cost
    "c-validate": ("#74a7c0", "#9ccbe0"),
    "c-setup": ("#c9b458", "#d9c56d"),
    "c-thinking": ("#8d6cab", "#b597d1"),
    "c-repeated": ("#d08a4e", "#dfa06b"),
    "c-check": ("#8aa64a", "#a7c466"),
    "c-failed": ("#b23a48", "#e06a77"),
    "c-lost": ("#7d2e3a", "#b9606d"),
    "s1": ("#c0cdd3", "#3a4a53"),  # shades, from little to much
    "s2": ("#a2b8c2", "#456070"),
    "s3": ("#7a9bab", "#4f768a"),
    "s4": ("#517e94", "#578aa2"),
    "s5": ("#2f6f8f", "#62a8c9"),
    "l0": ("#b3491b", "#ef8a55"),  # distinct lines, and the text that names them
    "l1": ("#2f6f8f", "#62a8c9"),
    "l2": ("#587a1c", "#a7c466"),
    "l3": ("#7f5a9e", "#b597d1"),
    "l4": ("#866a00", "#d9c56d"),
    "l5": ("#b23a48", "#e06a77"),
}
LIGHT: Mapping[str, str] = {name: light for name, (light, _) in _COLOURS.items()}
DARK: Mapping[str, str] = {name: dark for name, (_, dark) in _COLOURS.items()}
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")
_VARIABLE = re.compile(r"var\(--([\w-]+)\)")
_CLASS = re.compile(r"\.([\w-]+)")


def read_asset(name: str) -> str:
    """Return the text of a style sheet or of a script in this folder."""
    return files("shoestring.reports.figures").joinpath(name).read_text(encoding="utf-8").strip()


@cache
def _rules() -> tuple[tuple[str, str], ...]:
    """Return (selector, declarations) for every kind of mark."""
    found = _RULE.findall(read_asset("figure.css").replace("FONT", FONT))
    return tuple((one.strip(), body.strip()) for selectors, body in found for one in selectors.split(","))


def style_marks(svg: str | None = None, scope: str = "") -> str:
    """Return the rules for the marks in `svg`, or for all marks; `scope` is a selector to put before each."""
    used = None if svg is None else {name for names in re.findall(r'class="([^"]*)"', svg) for name in names.split()}
    rules = [rule for rule in _rules() if used is None or set(_CLASS.findall(rule[0])) <= used]
    return "\n".join(f"{scope} {selector} {{ {body} }}".strip() for selector, body in rules)


def name_colours(colours: Mapping[str, str]) -> str:
    """Return the colours as variables, for use in a rule."""
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def follow_reader() -> str:
    """Return the colours of a page, light or dark as the reader's system is set."""
    light, dark = f":root {{ color-scheme: light dark; {name_colours(LIGHT)} }}", f":root {{ {name_colours(DARK)} }}"
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}"


def replace_variables(style: str, colours: Mapping[str, str]) -> str:
    """Return the style with its variables replaced by colours."""
    return _VARIABLE.sub(lambda found: colours[found[1]], style)
