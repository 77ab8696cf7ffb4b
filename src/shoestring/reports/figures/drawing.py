"""Write SVG without a library or a script: axes with round ticks, and a sheet to draw on. All text is escaped.

Colours are classes of the page's style, so a figure is light or dark like its page. A mark's `tip` is the text that a reader
sees when pointing at it. A `Figure` is a picture, one plain sentence, and the same numbers as a table.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Any

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.values.text import printable
from shoestring.reports.facts import format_config
from shoestring.reports.figures.history import Segment, StudyHistory
from shoestring.reports.reasons import describe_reason

Point = tuple[float, float]
_TIP = re.compile(r' data-tip="[^"]*"/>')
_MARK_WITH_TIP = re.compile(r'<(\w+)([^<>]*) data-tip="([^"]*)"/>')

LEFT, RIGHT, TOP, BOTTOM = 62.0, 14.0, 24.0, 40.0  # margins of a plot
MAX_TABLE_ROWS = 200  # so that a page stays readable; `shoestring export` has all data


@dataclass(frozen=True)
class Figure:
    """A picture with its title, one sentence and a table."""

    key: str  # its anchor in the page
    title: str
    sentence: str
    svg: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    choice: str = ""  # its label, if the reader chooses one of several figures
    others: Sequence[Figure] = ()  # the other figures to choose from, each with its label


# axes -----------------------------------------------------------------------------------------------------------------


class PlotAxis:
    """Map numbers to places on a sheet; on a log scale the numbers must be above 0."""

    def __init__(self, low: float, high: float, start: float, end: float, *, log: bool = False) -> None:
        if not (math.isfinite(low) and math.isfinite(high)):
            low, high = 0.0, 1.0
        if math.isclose(low, high, rel_tol=1e-9):  # nothing can be drawn between them
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
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            every = max(1, math.ceil((last - first - 1) / most))
            for factors, step in (((1, 2, 5), 1), ((1, 3), 1), ((1,), every)):
                found = [float(f"{factor}e{power}") for power in range(first, last + 1, step) for factor in factors]
                inside = [tick for tick in found if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]
                if 2 <= len(inside) <= most:
                    return inside
        return _round_ticks(self.low, self.high, most)

    def labelled_ticks(self, most: int = 6) -> list[tuple[float, str]]:
        ticks = self.ticks(most)
        return list(zip(ticks, show_numbers(ticks), strict=True))


def _round_ticks(low: float, high: float, most: int) -> list[float]:
    """Return multiples of 1, 2, 2.5 or 5 times a power of ten."""
    raw = (high - low) / max(1, most - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [float(f"{i * step:.12g}") for i in range(first, math.floor(high / step + 1e-9) + 1)]


def budget_axis(high: float, start: float, end: float) -> PlotAxis:
    """Return an axis for amounts of the budget, which begins at 0."""
    return PlotAxis(0.0, max(high, 1e-12), start, end)


def value_axis(low: float, high: float, bottom: float, top: float, *, log: bool = False) -> PlotAxis:
    """Return an axis for values, with room at both ends, so that the best value does not lie on the other axis."""
    if log:
        room = math.exp(0.04 * (math.log(high) - math.log(low)))
        least, most = sys.float_info.min, sys.float_info.max  # numbers beyond them are drawn on the edge
        return PlotAxis(max(low / room, least), min(high * room, most), bottom, top, log=True)
    return PlotAxis(low - 0.04 * (high - low), high + 0.04 * (high - low), bottom, top)


def show_number(number: float) -> str:
    return f"{number:,.0f}" if 1e4 <= abs(number) < 1e6 else f"{number:.4g}"


def show_numbers(numbers: Sequence[float]) -> list[str]:
    """Return the numbers of one axis as text, with as many digits as it takes to tell neighbours apart."""
    ordered = sorted(set(numbers))
    error = 0.01 * min((b - a for a, b in pairwise(ordered)), default=math.inf)  # what rounding may change
    shown = [show_number(number) for number in numbers]
    for digits in range(5, 18):
        if all(
            abs(float(text.replace(",", "")) - number) <= error for text, number in zip(shown, numbers, strict=True)
        ):
            break
        shown = [f"{number:.{digits}g}" for number in numbers]
    return shown


# a sheet --------------------------------------------------------------------------------------------------------------


class Sheet:
    """A figure being drawn, `width` by `height` units; it scales with the page."""

    def __init__(self, width: float = 720.0, height: float = 300.0, *, label: str = "") -> None:
        self.width, self.height, self._label = width, height, label
        self._marks: list[str] = []

    def line(self, points: Iterable[Point], style: str, tip: str = "", **more: str) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._add("polyline", style, tip, points=path, **more)

    def segment(self, a: Point, b: Point, style: str, tip: str = "", **more: str) -> None:
        self._add("line", style, tip, x1=_round(a[0]), y1=_round(a[1]), x2=_round(b[0]), y2=_round(b[1]), **more)

    def dot(self, at: Point, style: str, tip: str = "", radius: float = 3.0, **more: str) -> None:
        self._add("circle", style, tip, cx=_round(at[0]), cy=_round(at[1]), r=_round(radius), **more)

    def box(self, x: float, y: float, width: float, height: float, style: str, tip: str = "", **more: str) -> None:
        size = {"width": _round(max(0.0, width)), "height": _round(max(0.0, height))}
        self._add("rect", style, tip, x=_round(x), y=_round(y), **size, **more)

    def text(self, x: float, y: float, words: str, style: str = "label", anchor: str = "start") -> None:
        place = f'x="{_round(x)}" y="{_round(y)}" class="{style}" text-anchor="{anchor}"'
        self._marks.append(f"<text {place}>{escape(printable(words))}</text>")

    def axes(
        self, x: PlotAxis, y: PlotAxis, x_name: str, y_name: str, show_x: Callable[[float], str] | None = None
    ) -> None:
        """Draw light lines at round numbers, the numbers, and the names of the axes."""
        for tick, number in y.labelled_ticks():
            self.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
            self.text(x.start - 6, y(tick) + 4, number, anchor="end")
        for tick, number in x.labelled_ticks():
            self.segment((x(tick), y.start), (x(tick), y.start + 4), "axis")
            self.text(x(tick), y.start + 17, number if show_x is None else show_x(tick), anchor="middle")
        self.segment((x.start, y.start), (x.end, y.start), "axis")
        self.text((x.start + x.end) / 2, self.height - 4, x_name, "name", "middle")
        self.text(4, 14, y_name, "name")

    def _add(self, tag: str, style: str, tip: str, **attributes: str) -> None:
        data = f' data-tip="{escape(printable(tip, lines=True))}"' if tip else ""
        listed = "".join(f' {name.replace("_", "-")}="{escape(value)}"' for name, value in attributes.items())
        self._marks.append(f'<{tag} class="{style}"{listed}{data}/>')

    def __str__(self) -> str:
        size = f"{_round(self.width)} {_round(self.height)}"
        head = f'<svg viewBox="0 0 {size}" role="img" aria-label="{escape(self._label)}">'
        return head + "".join(self._marks) + "</svg>"


def _round(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def plot_area(sheet: Sheet) -> tuple[float, float, float, float]:
    """Return the left, right, bottom and top edge of the plot on a sheet."""
    return LEFT, sheet.width - RIGHT, sheet.height - BOTTOM, TOP


def draw_frame(sheet: Sheet, x: PlotAxis, y: PlotAxis, *, with_numbers: bool) -> None:
    """Draw the axes of one of several panels; the first panel of a row has the numbers of y."""
    for tick, number in y.labelled_ticks(5):
        sheet.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
        if with_numbers:
            sheet.text(x.start - 6, y(tick) + 4, number, anchor="end")
    sheet.segment((x.start, y.start), (x.end, y.start), "axis")
    for tick, number in x.labelled_ticks(5):
        sheet.segment((x(tick), y.start), (x(tick), y.start + 4), "axis")
        sheet.text(x(tick), y.start + 16, number, anchor="middle")


def thin(points: Sequence[Point], most: int) -> list[Point]:
    """Return about `most` points: the lowest and the highest of each run of neighbours, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    buckets = max(1, most // 2)
    thinned: list[Point] = [points[0]]
    for number in range(buckets):
        part = points[number * len(points) // buckets : (number + 1) * len(points) // buckets]
        thinned += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return [*thinned, points[-1]]


# tips -----------------------------------------------------------------------------------------------------------------


def segment_tip(history: StudyHistory, segment: Segment) -> str:
    """Return the tip of a mark that stands for an order: what was trained, why, and at what cost."""
    order, budget = segment.order, history.budget
    lines = [
        f"order {order.number}: trial {order.trial} to step {order.until}, {segment.status}",
        format_config(order.config),
    ]
    if segment.text:
        lines.append(segment.text)
    if order.why:
        lines.append(f"why: {describe_reason(order, history.ledger)}")
    expected = "unknown" if order.expected_cost is None else budget.show(order.expected_cost)
    cost = f"cost {budget.show(segment.cost)}, expected {expected}, took {show_seconds(segment.seconds)}"
    return "\n".join([*lines, cost])


def drop_tips(svg: str) -> str:
    return _TIP.sub("/>", svg)


def tips_as_titles(svg: str) -> str:
    """Return the drawing with its tips as titles, which a browser shows without a script."""
    return _MARK_WITH_TIP.sub(r"<\1\2><title>\3</title></\1>", svg)
