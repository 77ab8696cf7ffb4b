"""Draw the figures of the race as SVG text, narrow enough for a phone, in the style of a report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.reports.figures.drawing import PlotAxis, Sheet, tips_as_titles

WIDTH = 480.0
_LABEL = 13.0  # height of a line of text
_ROW = 17.0
_LEFT, _RIGHT = 168.0, 16.0  # margins of figures with one row per method
_TICKS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)  # of regret
_COLOUR = {"ref": 0, "own": 1, "peer": 6}  # the number of the CSS class on the page
_LINE = {"ref": "curve best", "own": "curve line-1", "peer": "curve dashed line-6"}
_NAME = {"ref": "name fill-0", "own": "fill-1", "peer": "fill-6"}


def number(value: float | None, digits: int = 3) -> str:
    """Format a regret without its leading zero: `.052`."""
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def regret_against_budget(
    rows: Sequence[Mapping[str, Any]],
    budgets: Sequence[float],
    kinds: Mapping[str, str],
    unit: str,
    labels: Mapping[str, str] | None = None,
) -> str:
    """Draw one line per method. `kinds` maps each shown method to `ref`, `own` or `peer`."""
    shown = [row for row in rows if row["method"] in kinds and row["budget"] in budgets and row["mean"] > 0]
    if not shown:
        return ""
    left, right, top, bottom, height = 44.0, 160.0, 12.0, 34.0, 380.0
    sheet = Sheet(WIDTH, height, label="mean normalised regret against budget")
    lowest, highest = max(1e-4, min(row["mean"] for row in shown)), max(row["mean"] for row in shown)
    x = PlotAxis(min(budgets), max(budgets), left, WIDTH - right, log=True)
    y = PlotAxis(lowest / 1.26, highest * 1.26, height - bottom, top, log=True)
    for tick in _TICKS:
        if y.low <= tick <= y.high:
            sheet.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
            sheet.text(x.start - 5, y(tick) + 3.5, number(tick), anchor="end")
    sheet.line([(x.start, y.end), (x.start, y.start), (x.end, y.start)], "axis")
    for budget in budgets:
        sheet.text(x(budget), y.start + 14, f"{budget:g}", anchor="middle")
    axis = "budget in full curves" if unit == "curves" else "budget in times of a full curve"
    sheet.text((x.start + x.end) / 2, height - 5, axis, "name", "middle")
    sheet.text(x.end, top + 4, "mean regret: lower is better", "name", "end")
    lines = {name: own for name in kinds if (own := [row for row in shown if row["method"] == name])}
    ends = {name: y(own[-1]["mean"]) for name, own in lines.items()}
    for name, place in _spread(ends, top + 4, height - 4).items():
        own, kind = lines[name], kinds[name]
        points = [(x(row["budget"]), y(row["mean"])) for row in own]
        sheet.line(points, _LINE[kind], name)
        for point, row in zip(points, own, strict=True):
            sheet.dot(point, f"fill-{_COLOUR[kind]}", f"{name} at {row['budget']:g}: {number(row['mean'])}", 2.0)
        sheet.segment((points[-1][0] + 3, ends[name]), (x.end + 12, place), "lead")
        sheet.text(x.end + 15, place + 3.5, (labels or {}).get(name, name), _NAME[kind])
    return tips_as_titles(str(sheet))


def regret_with_intervals(
    means: Mapping[float, float], differences: Sequence[Mapping[str, Any]], labels: Mapping[str, str], unit: str
) -> str:
    """Draw one panel for each budget, one row for each method; the first of `labels` is the method that others are compared with.

    A method is drawn at the mean of the first one plus their difference on the runs that both have, with the interval of this
    difference: regrets of two tables differ more than those of two methods, so intervals of means would hide the methods.
    """
    whole, left, gap, top, foot, columns = 540.0, 150.0, 16.0, 30.0, 34.0, 3
    first, *others = labels
    width, height = (whole - left) / columns - gap, top + _ROW * len(labels) + foot
    count = len(means) + 1  # the panels and the legend
    sheet = Sheet(whole, height * math.ceil(count / columns), label="mean normalised regret by method and budget")
    for place, (budget, mean) in enumerate(sorted(means.items())):
        start, above = left + (place % columns) * (width + gap), height * (place // columns)
        rows = {row["method"]: row for row in differences if row["budget"] == budget and row["method"] in others}
        # A difference is the first method minus the other one; the bar is the interval of the other one.
        ends = {name: (mean - row["high"], mean - row["difference"], mean - row["low"]) for name, row in rows.items()}
        x = PlotAxis(0.0, max([mean, *(end[2] for end in ends.values())]), start, start + width)
        bottom = above + top + _ROW * len(labels)
        sheet.text(start, above + 14, f"budget {budget:g}", "name")
        for tick, shown in x.labelled_ticks(3):
            sheet.segment((x(tick), above + top - 6), (x(tick), bottom), "grid")
            sheet.text(x(tick), bottom + 13, shown, anchor="middle")
        sheet.segment((x(mean), above + top - 6), (x(mean), bottom), "curve best")
        for row_number, (name, text) in enumerate(labels.items()):
            at = above + top + _ROW * (row_number + 0.5)
            if place % columns == 0:
                sheet.text(left - 8, at + 3.5, text, "name fill-0" if name == first else "fill-6", "end")
            if name == first:
                sheet.dot((x(mean), at), "fill-0", f"{text}: {number(mean)}", 4.0)
            elif name in ends:
                low, middle, high = ends[name]
                tip = f"{text}: {number(middle)} [{number(low)}, {number(high)}]"
                style = 1 if low > mean or high < mean else 6  # the difference is beyond chance, or may be chance
                sheet.segment((x(low), at), (x(high), at), f"curve line-{style}", tip)
                sheet.dot((x(middle), at), f"fill-{style}", tip, 3.0)
            else:
                sheet.text(start + width / 2, at + 3.5, "not run", anchor="middle")
    place = len(means)
    at_left, at_top = left + (place % columns) * (width + gap), height * (place // columns) + 14
    sheet.text(at_left, at_top, "regret: left is better", "name")
    words = [
        "budgets in full trainings" if unit == "curves" else "1: the time of a training",
        "bar: 95 % interval of",
        "the difference from ours",
    ]
    for line, text in enumerate(words, 1):
        sheet.text(at_left, at_top + _ROW * line, text)
    for line, (style, text) in enumerate(((1, "beyond chance"), (6, "may be chance")), len(words) + 1):
        at = at_top + _ROW * line
        sheet.segment((at_left, at - 4), (at_left + 16, at - 4), f"curve line-{style}")
        sheet.dot((at_left + 8, at - 4), f"fill-{style}", radius=3.0)
        sheet.text(at_left + 22, at, text)
    return tips_as_titles(str(sheet))


def critical_difference(
    average: Mapping[str, float], critical: float, groups: Sequence[tuple[str, str]], kinds: Mapping[str, str]
) -> str:
    """Draw a critical difference diagram (Demšar, 2006) with one row per method; bars join indistinguishable methods."""
    if len(average) < 2:
        return ""
    names, top = list(average), 34.0
    sheet = Sheet(
        WIDTH, top + _ROW * len(names) + 10, label="average ranks; bars join methods that cannot be distinguished"
    )
    x = PlotAxis(1.0, max(2.0, float(math.ceil(max(average.values())))), _LEFT, WIDTH - _RIGHT)
    places = {name: top + _ROW * row + 8 for row, name in enumerate(names)}
    for tick in range(1, int(x.high) + 1, max(1, math.ceil((x.high - 1) / 10))):
        sheet.text(x(tick), top - 6, f"{tick:g}", anchor="middle")
        sheet.segment((x(tick), top), (x(tick), sheet.height - 6), "grid")
    sheet.segment((x.start, 8), (x(x.low + critical), 8), "join")
    sheet.text(_LEFT - 8, 11.5, f"critical difference {critical:.2f}", "name", "end")
    for name, place in places.items():
        kind = kinds.get(name, "peer")
        sheet.text(_LEFT - 8, place + 3.5, name, _NAME[kind], "end")
        sheet.dot((x(average[name]), place), f"fill-{_COLOUR[kind]}", f"{average[name]:.2f}", 4.0)
    for number_of, (first, last) in enumerate(groups):
        # Each bar is at the mean rank of its first method, slightly shifted so that bars do not overlap.
        at = x(average[first]) - 7 - 3 * (number_of % 3)
        sheet.segment((at, places[first] - 4), (at, places[last] + 4), "join")
    return tips_as_titles(str(sheet))


def difference_dots(rows: Sequence[Mapping[str, Any]], kinds: Mapping[str, str]) -> str:
    """Draw the paired differences at one budget; the reference is better left of the middle line."""
    if not rows:
        return ""
    ordered, top = sorted(rows, key=lambda row: row["difference"], reverse=True), 22.0
    sheet = Sheet(
        WIDTH, top + _ROW * len(ordered) + 12, label="paired differences from the reference, with 95 % intervals"
    )
    bound = max(max(abs(row["low"]), abs(row["high"])) for row in ordered) or 1.0
    root = PlotAxis(-1.0, 1.0, _LEFT, WIDTH - _RIGHT)

    def x(value: float) -> float:
        # A square root keeps small differences visible.
        return root(math.copysign(math.sqrt(abs(value) / bound), value))

    sheet.segment((x(0), top - 4), (x(0), sheet.height - 6), "axis")
    sheet.text(x(0) - 8, 12, "reference better", "name", "end")
    sheet.text(x(0) + 8, 12, "worse", "name")
    for i, row in enumerate(ordered):
        at, kind = top + _ROW * i + 8, kinds.get(row["method"], "peer")
        tip = f"{number(row['difference'])} [{number(row['low'])}, {number(row['high'])}]"
        sheet.text(_LEFT - 8, at + 3.5, row["method"], _NAME[kind], "end")
        sheet.segment((x(row["low"]), at), (x(row["high"]), at), f"curve line-{_COLOUR[kind]}", tip)
        sheet.dot((x(row["difference"]), at), f"fill-{_COLOUR[kind]}", tip, 3.5)
    return tips_as_titles(str(sheet))


def _spread(wanted: Mapping[str, float], low: float, high: float) -> dict[str, float]:
    """Return positions of labels close to the wanted ones, at least one line of text apart."""
    names = sorted(wanted, key=lambda name: wanted[name])
    gap = min(_LABEL, (high - low) / max(1, len(names) - 1))
    places: dict[str, float] = {}
    for name in names:
        places[name] = max(wanted[name], low if not places else max(places.values()) + gap)
    for i, name in enumerate(reversed(names)):
        places[name] = min(places[name], high - i * gap)
    return places
