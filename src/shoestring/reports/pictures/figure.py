"""A figure: a picture, one plain sentence, and the same numbers as a table for those who read them or hear them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoestring.core.money import Budget, show_seconds
from shoestring.reports.facts import say_config, say_why
from shoestring.reports.pictures.story import Segment
from shoestring.reports.pictures.svg import PlotAxis, Sheet, show_number

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
