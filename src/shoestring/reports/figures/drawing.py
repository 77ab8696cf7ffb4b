"""SVG written by hand: scales with round ticks, and a sheet to draw on. No library, no script, every text escaped.

Colours are classes of the page's style, so a figure follows light and dark; `tip` is what a mark says when it is pointed at.

A figure: a picture, one plain sentence, and the same numbers as a table for those who read them or hear them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from shoestring.core.ledger.budget import Budget, show_seconds
from shoestring.core.values.text import printable
from shoestring.reports.facts import say_config, say_why
from shoestring.reports.figures.history import Segment

Point = tuple[float, float]
_TIP = re.compile(r' data-tip="[^"]*"/>')
_TIPPED = re.compile(r'<(\w+)([^<>]*) data-tip="([^"]*)"/>')


class PlotAxis:
    """From numbers to places on a sheet; on a log scale, numbers must be above 0."""

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        if not (math.isfinite(low) and math.isfinite(high)):
            low, high = 0.0, 1.0
        if math.isclose(low, high, rel_tol=1e-9):  # no room between them for a picture
            pad = abs(low) * 0.05 or 0.5
            low, high = (low / 1.1, high * 1.1) if log else (low - pad, high + pad)
        self.low, self.high, self.start, self.end, self.log = low, high, start, end, log

    def __call__(self, number: float) -> float:
        low, high, number = self.low, self.high, min(max(number, self.low), self.high)
        if self.log:
            low, high, number = math.log(low), math.log(high), math.log(number)
        return self.start + (number - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            every = max(1, math.ceil((last - first + 1) / most))
            powers = [10.0**power for power in range(first, last + 1, every)]
            if len(powers) >= 2:
                return powers
        return _round_ticks(self.low, self.high, most)


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, math.floor(high / step + 1e-9) + 1)]


def show_number(number: float) -> str:
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e6 else f"{number:.4g}"


class Sheet:
    """A figure being drawn, `width` by `height` units; it scales with the page."""

    def __init__(self, width: float = 720.0, height: float = 300.0, *, label: str = "") -> None:
        self.width, self.height, self._label = width, height, label
        self._marks: list[str] = []

    def line(self, points: Iterable[Point], style: str, tip: str = "", **more: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", style, tip, points=path, **more)

    def segment(self, a: Point, b: Point, style: str, tip: str = "", **more: str) -> None:
        self._add("line", style, tip, x1=_n(a[0]), y1=_n(a[1]), x2=_n(b[0]), y2=_n(b[1]), **more)

    def dot(self, at: Point, style: str, tip: str = "", radius: float = 3.0, **more: str) -> None:
        self._add("circle", style, tip, cx=_n(at[0]), cy=_n(at[1]), r=_n(radius), **more)

    def box(self, x: float, y: float, width: float, height: float, style: str, tip: str = "", **more: str) -> None:
        size = {"width": _n(max(0.0, width)), "height": _n(max(0.0, height))}
        self._add("rect", style, tip, x=_n(x), y=_n(y), **size, **more)

    def text(self, x: float, y: float, words: str, style: str = "label", anchor: str = "start") -> None:
        place = f'x="{_n(x)}" y="{_n(y)}" class="{style}" text-anchor="{anchor}"'
        self._marks.append(f"<text {place}>{escape(printable(words))}</text>")

    def axes(
        self, x: PlotAxis, y: PlotAxis, x_name: str, y_name: str, show_x: Callable[[float], str] = show_number
    ) -> None:
        """Light lines at round numbers, their names, and what the axes are."""
        for tick in y.ticks():
            self.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
            self.text(x.start - 6, y(tick) + 4, show_number(tick), anchor="end")
        for tick in x.ticks():
            self.segment((x(tick), y.start), (x(tick), y.start + 4), "axis")
            self.text(x(tick), y.start + 17, show_x(tick), anchor="middle")
        self.segment((x.start, y.start), (x.end, y.start), "axis")
        self.text((x.start + x.end) / 2, self.height - 4, x_name, "name", "middle")
        self.text(4, 14, y_name, "name")

    def _add(self, tag: str, style: str, tip: str, **attributes: str) -> None:
        told = f' data-tip="{escape(printable(tip, lines=True))}"' if tip else ""
        listed = "".join(f' {name.replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
        self._marks.append(f'<{tag} class="{style}"{listed}{told}/>')

    def __str__(self) -> str:
        head = f'<svg viewBox="0 0 {_n(self.width)} {_n(self.height)}" role="img" aria-label="{escape(self._label)}">'
        return head + "".join(self._marks) + "</svg>"


def drop_tips(drawn: str) -> str:
    return _TIP.sub("/>", drawn)


def tips_as_titles(drawn: str) -> str:
    """Tips that a browser shows by itself, where no script may run."""
    return _TIPPED.sub(r"<\1\2><title>\3</title></\1>", drawn)


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """At most about `most` points: of each run of neighbours the lowest and the highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    buckets = max(1, most // 2)
    kept: list[Point] = [points[0]]
    for number in range(buckets):
        part = points[number * len(points) // buckets : (number + 1) * len(points) // buckets]
        kept += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [*kept, points[-1]]


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 24.0, 40.0  # margins of a plot
MOST_TABLE_ROWS = 200  # a page is to be read; `shoestring export` has the rest


@dataclass(frozen=True)
class Figure:
    key: str  # its anchor in the page
    title: str
    sentence: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    choice: str = ""  # its name, where one of several is looked at
    others: Sequence[Figure] = ()  # the same of something else, each with its choice


def plot_area(sheet: Sheet) -> tuple[float, float, float, float]:
    """x from left to right, y from bottom to top."""
    return LEFT, sheet.width - RIGHT, sheet.height - BOTTOM, TOP


def draw_frame(sheet: Sheet, x: PlotAxis, y: PlotAxis, *, with_numbers: bool) -> None:
    """The axes of one of several panels; numbers of y stand at the first of a row."""
    for tick in y.ticks(5):
        sheet.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
        if with_numbers:
            sheet.text(x.start - 6, y(tick) + 4, show_number(tick), anchor="end")
    sheet.segment((x.start, y.start), (x.end, y.start), "axis")
    for tick in x.ticks(5):
        sheet.segment((x(tick), y.start), (x(tick), y.start + 4), "axis")
        sheet.text(x(tick), y.start + 16, show_number(tick), anchor="middle")


def money_scale(budget: Budget, high: float, start: float, end: float) -> PlotAxis:
    return PlotAxis(0.0, max(high, 1e-12), start, end)


def value_scale(low: float, high: float, bottom: float, top: float) -> PlotAxis:
    """With a little room at both ends: the best value must not lie on the axis below it."""
    room = 0.04 * (high - low)
    return PlotAxis(low - room, high + room, bottom, top)


def why_tip(segment: Segment, budget: Budget) -> str:
    """What a mark says about the decision that bought it."""
    order = segment.order
    lines = [
        f"order {order.number}: trial {order.trial} to step {order.until}, {segment.status}",
        say_config(order.config),
    ]
    if segment.text:
        lines.append(segment.text)
    if order.why:
        lines.append(f"why: {say_why(order)}")
    expected = "unknown" if order.expected_cost is None else budget.show(order.expected_cost)
    return "\n".join(
        [*lines, f"paid {budget.show(segment.cost)}, expected {expected}, {show_seconds(segment.seconds)}"]
    )
