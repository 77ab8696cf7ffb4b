"""A decision as its policy saw it: the curves so far, what was expected of them, and what came.

Beliefs about whole curves, or about the end of a run, are a panel each; those about the ends of several configs that were not
begun stand side by side in one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoestring.core.deciding.prediction import BEST_BY_THEN, LEVELS, BelievedCurve
from shoestring.core.values.arrays import Floats
from shoestring.core.values.strict_json import dumps
from shoestring.reports.facts import say_config
from shoestring.reports.figures.costs import clip_range
from shoestring.reports.figures.decisions import draw_each
from shoestring.reports.figures.drawing import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    Figure,
    PlotAxis,
    Point,
    Sheet,
    draw_frame,
    show_number,
    thin,
    why_tip,
)
from shoestring.reports.figures.history import Recalled, Segment, Story

_IN_A_ROW = 3
_PANEL_HEIGHT, _GAP = 150.0, 40.0
_MOST_POINTS = 60  # of a line or an edge
_TABLE_STEPS = 4  # of each curve
_IN_RANGE = {True: slice(1, 4), False: slice(0, 5)}  # quantiles that must be seen whole: of a curve, of an end


@dataclass(frozen=True)
class ExpectedOf:
    """One curve of a belief, with what is known of its trial."""

    curve: BelievedCurve
    role: str
    seen: Sequence[tuple[int, float]]  # (step, value) before the decision
    came: Sequence[tuple[int, float]]  # after it: as told of, so the best so far where the belief is about that
    tip: str

    def at(self, step: int) -> Floats | None:
        """Quantiles (5,) for this step, of the next one that is told of; None: of this step nothing was expected."""
        place = int(np.searchsorted(self.curve.steps, step))
        is_told = 1 < len(self.curve.steps) > place or step in self.curve.steps
        return self.curve.quantiles[:, place] if is_told else None


def draw_expected(story: Story) -> Figure | None:
    return draw_each(story, _draw)


def _draw(story: Story, segment: Segment, recalled: Recalled) -> Figure | None:
    told = [_tell(story, segment, recalled, place) for place in range(len(recalled.believed.curves))]
    if not told:
        return None
    ends_only = all(len(one.curve.steps) == 1 and not one.seen for one in told)
    side_by_side = ends_only and len(told) > 1
    if side_by_side:
        told = [replace(one, came=one.came[-1:]) for one in told]
    y_range = _range(story, told, recalled)
    sheet = _draw_ends(told, y_range, recalled) if side_by_side else _draw_panels(story, told, y_range, recalled)
    return Figure(
        "expected",
        "What was expected, and what came",
        _say(segment, recalled, told, side_by_side=side_by_side),
        str(sheet),
        ("trial", "", "step", *(f"{level:.0%}" for level in LEVELS), "came"),
        [row for one in told for row in _rows(one)],
    )


def _tell(story: Story, segment: Segment, recalled: Recalled, place: int) -> ExpectedOf:
    believed, why = recalled.believed, segment.order.why
    curve = believed.curves[place]
    number = segment.order.trial if place == 0 else curve.trial
    role = "" if place else "bought"
    if place and "runner_up" in why and why["runner_up"] == (dumps(curve.config) if number is None else number):
        role = "runner-up"
    if number is not None and why.get("gave_up") == number:
        role = "given up"
    name = "a config not begun" if number is None else f"trial {number}"
    tip = why_tip(segment, story.budget) if place == 0 else f"{name}\n{say_config(curve.config)}"
    if number is None:
        return ExpectedOf(curve, role, (), (), tip)
    trial, had = story.trials[number], recalled.had.get(number, 0)
    known = [(s, float(v)) for s, v in enumerate(trial.values, 1) if v is not None and math.isfinite(v)]
    came = [(step, value) for step, value in known if step > had]
    if believed.about == BEST_BY_THEN:
        best = np.maximum.accumulate if story.is_max else np.minimum.accumulate
        came = list(zip([s for s, _ in came], best([v for _, v in came]).tolist(), strict=True)) if came else []
    seen = [(step, value) for step, value in known if step <= had]
    return ExpectedOf(replace(curve, trial=number), role, seen, came, tip)


def _range(story: Story, told: Sequence[ExpectedOf], recalled: Recalled) -> tuple[float, float]:
    """Of all that was seen, came and is expected, of curves with a chance of one half: wider beliefs end at the edge."""
    values = [value for one in told for part in (one.seen, one.came) for _, value in part]
    values += [float(v) for one in told for v in one.curve.quantiles[_IN_RANGE[len(one.curve.steps) > 1]].ravel()]
    low, high = clip_range(values, is_max=story.is_max)
    now = [one.seen[-1][1] for one in told if one.seen] + ([] if recalled.best is None else [recalled.best])
    low, high = min([low, *now]), max([high, *now])  # where things stood is never on the edge
    room = 0.05 * (high - low)
    return low - room, high + room


# panels --------------------------------------------------------------------------------------------------------------


def _draw_panels(story: Story, told: Sequence[ExpectedOf], y_range: tuple[float, float], recalled: Recalled) -> Sheet:
    columns = min(_IN_A_ROW, len(told))
    rows = math.ceil(len(told) / columns)
    sheet = Sheet(height=rows * (_PANEL_HEIGHT + _GAP) + 8, label="curves so far, what was expected of them, what came")
    width = (sheet.width - LEFT - RIGHT - (columns - 1) * 18) / columns
    for place, one in enumerate(told):
        left = LEFT + place % columns * (width + 18)
        top = TOP + place // columns * (_PANEL_HEIGHT + _GAP)
        x = PlotAxis(1.0, float(max(2, story.ledger.max_steps)), left, left + width)
        y = PlotAxis(*y_range, top + _PANEL_HEIGHT - 16, top + 6)
        draw_frame(sheet, x, y, with_numbers=place % columns == 0)
        name = "a config not begun" if one.curve.trial is None else f"trial {one.curve.trial}"
        sheet.text(left, top, f"{name}{', ' * bool(one.role)}{one.role}", "name")
        if recalled.best is not None:
            sheet.segment((x.start, y(recalled.best)), (x.end, y(recalled.best)), "guide", "the best value so far")
        _draw_belief(sheet, one, x, y)
        _draw_line(sheet, one.came, x, y, "curve after", f"what came\n{one.tip}")
        _draw_line(sheet, one.seen, x, y, "curve best" if place == 0 else "curve shade-5", one.tip)
    sheet.text(4, 12, "value", "name")
    sheet.text((LEFT + sheet.width) / 2, sheet.height - 2, "step", "name", "middle")
    return sheet


def _draw_belief(sheet: Sheet, one: ExpectedOf, x: PlotAxis, y: PlotAxis) -> None:
    curve = one.curve
    if len(curve.steps) == 1:
        _draw_interval(sheet, x(float(curve.steps[0])), curve.quantiles[:, 0], y, one.tip)
        return
    some = np.unique(np.linspace(0, len(curve.steps) - 1, _MOST_POINTS).astype(int))
    places = [x(float(step)) for step in curve.steps[some]]
    edges = [[y(float(value)) for value in row] for row in curve.quantiles[:, some]]
    end = f"expected at step {curve.steps[-1]}: {_say_quantiles(curve.quantiles[:, -1])}"
    for low, high in ((0, 4), (1, 3)):
        band = [*zip(places, edges[low], strict=True), *zip(places[::-1], edges[high][::-1], strict=True)]
        sheet.line(band, "band", f"{end}\n{one.tip}")
    sheet.line(zip(places, edges[2], strict=True), "guide")


def _draw_interval(sheet: Sheet, place: float, quantiles: Floats, y: PlotAxis, tip: str) -> None:
    ends = [y(float(value)) for value in quantiles]
    told = f"expected at the end: {_say_quantiles(quantiles)}\n{tip}"
    sheet.segment((place, ends[0]), (place, ends[4]), "curve shade-3", told)
    sheet.box(place - 4, min(ends[1], ends[3]), 8, abs(ends[1] - ends[3]), "bar", told)
    sheet.dot((place, ends[2]), "dot after", told)


def _draw_line(
    sheet: Sheet, points: Sequence[tuple[int, float]], x: PlotAxis, y: PlotAxis, style: str, tip: str
) -> None:
    drawn: list[Point] = [(x(step), y(value)) for step, value in points]
    if len(drawn) == 1:
        sheet.dot(drawn[0], f"dot {style.removeprefix('curve ')}", tip, radius=2.0)
    elif drawn:
        sheet.line(thin(drawn, _MOST_POINTS), style, tip)


def _draw_ends(told: Sequence[ExpectedOf], y_range: tuple[float, float], recalled: Recalled) -> Sheet:
    """One interval for each config; what was bought is followed by what came."""
    sheet = Sheet(height=300, label="what was expected of each config")
    x = PlotAxis(-0.5, len(told) - 0.5, LEFT, sheet.width - RIGHT)
    y = PlotAxis(*y_range, sheet.height - BOTTOM, TOP)
    for tick in y.ticks():
        sheet.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
        sheet.text(x.start - 6, y(tick) + 4, show_number(tick), anchor="end")
    sheet.segment((x.start, y.start), (x.end, y.start), "axis")
    sheet.text(4, 14, "value of a full training", "name")
    if recalled.best is not None:
        sheet.segment((x.start, y(recalled.best)), (x.end, y(recalled.best)), "guide", "the best value so far")
    for place, one in enumerate(told):
        _draw_interval(sheet, x(place), one.curve.quantiles[:, 0], y, one.tip)
        sheet.text(x(place), y.start + 17, one.role or f"other {place}", anchor="middle")
        if one.came:
            value = one.came[-1][1]
            sheet.dot((x(place) + 12, y(value)), "dot best", f"came {value:.6g}\n{one.tip}", radius=4.0)
    return sheet


# words and numbers ---------------------------------------------------------------------------------------------------


def _say(segment: Segment, recalled: Recalled, told: Sequence[ExpectedOf], *, side_by_side: bool) -> str:
    order = segment.order
    head = f"When order {order.number} bought trial {order.trial} up to step {order.until}"
    if side_by_side:
        came = " The orange dot is what came of the one bought." if told[0].came else ""
        return (
            f"{head}: what was expected of a full training of the config bought, the runner-up and others; the bar holds half "
            f"of the chances, the line nine in ten, the dashed line is the best so far.{came}"
        )
    lengths = {len(one.curve.steps) > 1 for one in told}
    about = recalled.believed.about if True in lengths else "the value expected at the end"
    drawn = f"{head}: the values so far (orange: what was bought), and {about}"
    bands = "half of the chances are in the dark band, nine in ten in the light one"
    bars = "half of the chances are in the bar at the last step, nine in ten on the line"
    bands = "; ".join(words for words, is_band in ((bands, True), (bars, False)) if is_band in lengths)
    known = [(q, value) for one in told for step, value in one.came if (q := one.at(step)) is not None]
    inside = sum(q[0] <= value <= q[-1] for q, value in known)
    came = f" What came later is drawn thin; {inside} of {len(known)} lie where nine in ten should." if known else ""
    return f"{drawn}: {bands}.{came}"


def _say_quantiles(quantiles: Floats) -> str:
    return f"{show_number(float(quantiles[2]))} ({show_number(float(quantiles[0]))} to {show_number(float(quantiles[-1]))})"


def _rows(one: ExpectedOf) -> list[list[Any]]:
    curve, came = one.curve, dict(one.came)
    rows: list[list[Any]] = []
    for place in np.unique(np.linspace(0, len(curve.steps) - 1, _TABLE_STEPS).astype(int)):
        step = int(curve.steps[place])
        shown = [show_number(float(value)) for value in curve.quantiles[:, place]]
        name = "–" if curve.trial is None else curve.trial
        rows.append([name, one.role, step, *shown, show_number(came[step]) if step in came else "–"])
    return rows
