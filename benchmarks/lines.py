"""Draw line plots for benchmarks in the style of a report, with panels side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from shoestring.reports.figures.drawing import PlotAxis, Point, Sheet, plot_area
from shoestring.reports.figures.static import wrap_svg

COLOURS = 7  # that distinguish lines
_ROW = 15.0  # of the names


def draw_lines(
    lines: Mapping[str, Sequence[Point]], x_name: str, y_name: str, *, log_x: bool = False, x_until: float = 0.0
) -> Sheet:
    """Draw one panel. Its vertical axis begins at 0; the names are placed where there is most space.

    The horizontal axis reaches at least `x_until`, as in the other panels.
    """
    sheet = Sheet(360.0, 280.0)
    left, right, bottom, top = plot_area(sheet)
    xs, ys = ([point[i] for line in lines.values() for point in line] for i in (0, 1))
    x = PlotAxis(min(xs) if log_x else 0.0, max(*xs, x_until), left, right - 12, log=log_x)
    y = PlotAxis(0.0, 1.05 * max(ys), bottom, top)
    sheet.axes(x, y, x_name, y_name)
    places = [[(x(a), y(b)) for a, b in line] for line in lines.values()]
    for number, line in enumerate(places):
        sheet.line(line, f"curve line-{number % COLOURS}")
        for place in line:
            sheet.dot(place, f"fill-{number % COLOURS}", radius=2.0)
    first = _widest_gap([at for line in places for _, at in line], _ROW * len(lines), top, bottom)
    for number, name in enumerate(lines):
        sheet.text(left + 10, first + _ROW * (number + 0.8), f"● {name}", f"fill-{number % COLOURS}")
    return sheet


def _widest_gap(heights: Sequence[float], needed: float, top: float, bottom: float) -> float:
    """Return the place for the names: the middle of the tallest part without marks."""
    ordered = sorted({top, bottom, *heights})
    gaps = [(low - high, high) for high, low in pairwise(ordered)]
    gap, start = max(gaps)
    return start + max(0.0, (gap - needed) / 2)


def write_panels(panels: Sequence[Sheet], title: str) -> str:
    """Write panels of one height as an SVG file, for light and dark backgrounds."""
    width, height = sum(panel.width for panel in panels), panels[0].height
    parts, x = [], 0.0
    for panel in panels:
        place = f'<svg x="{x:g}" y="0" width="{panel.width:g}" height="{panel.height:g}" '
        parts.append(str(panel).replace("<svg ", place, 1))
        x += panel.width
    drawn = f'<svg viewBox="0 0 {width:g} {height:g}">{"".join(parts)}</svg>'
    return wrap_svg(drawn, title, look="reader")
