"""Draw a decision as its policy saw it: the curves so far, what was predicted for them, and what happened afterwards.

Each prediction of a whole curve, or of the end of a trial that has begun, has a panel of its own. Predictions of the ends of
several configurations that were not started are side by side in one panel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoestring.core.deciding.prediction import BEST_VALUE_BY_STEP, LEVELS, CurvePrediction
from shoestring.core.values.arrays import Floats
from shoestring.core.values.strict_json import dumps
from shoestring.reports.facts import format_config
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
    segment_tip,
    show_number,
    thin,
)
from shoestring.reports.figures.history import PastPrediction, Segment, StudyHistory

_PANELS_PER_ROW = 3
_PANEL_HEIGHT, _GAP = 150.0, 40.0
_MAX_POINTS = 60  # of a line or an edge
_TABLE_STEPS = 4  # of each curve
# The quantiles that must fit into the picture, for a whole curve (True) and for the end of a trial (False).
_SHOWN_QUANTILES = {True: slice(1, 4), False: slice(0, 5)}


@dataclass(frozen=True)
class PanelCurve:
    """One predicted curve, with what is known of its trial."""

    curve: CurvePrediction
    role: str
    seen: Sequence[tuple[int, float]]  # (step, value) before the decision
    later: Sequence[tuple[int, float]]  # the same after it; best values so far, if these were predicted
    tip: str

    @property
    def name(self) -> str:
        return "a new configuration" if self.curve.trial is None else f"trial {self.curve.trial}"

    def quantiles_at(self, step: int) -> Floats | None:
        """Return the quantiles (5,) of the next predicted step; None if nothing was predicted for `step`."""
        place = int(np.searchsorted(self.curve.steps, step))
        is_predicted = 1 < len(self.curve.steps) > place or step in self.curve.steps
        return self.curve.quantiles[:, place] if is_predicted else None


def draw_expected(history: StudyHistory) -> Figure | None:
    """Draw the predictions of a few decisions, one at a time."""
    return draw_each(history, _draw)


def _draw(history: StudyHistory, segment: Segment, past: PastPrediction) -> Figure | None:
    curves = [_collect(history, segment, past, place) for place in range(len(past.prediction.curves))]
    if not curves:
        return None
    ends_only = all(len(one.curve.steps) == 1 and not one.seen for one in curves)
    side_by_side = ends_only and len(curves) > 1
    if side_by_side:
        curves = [replace(one, later=[p for p in one.later if p[0] <= one.curve.steps[-1]][-1:]) for one in curves]
    y_range = _value_range(history, curves, past)
    what = _name_value(history, curves)
    sheet = _draw_ends(curves, y_range, past, what) if side_by_side else _draw_panels(history, curves, y_range, past)
    return Figure(
        "expected",
        "A decision: predicted and actual values",
        _describe(segment, past, curves, what if side_by_side else ""),
        str(sheet),
        ("trial", "", "step", *(f"{level:.0%}" for level in LEVELS), "actual"),
        [row for one in curves for row in _list_rows(one)],
    )


def _collect(history: StudyHistory, segment: Segment, past: PastPrediction, place: int) -> PanelCurve:
    prediction, why = past.prediction, segment.order.why
    curve = prediction.curves[place]
    number = segment.order.trial if place == 0 else curve.trial
    role = "" if place else "chosen"
    if place and "runner_up" in why and why["runner_up"] == (dumps(curve.config) if number is None else number):
        role = "runner-up"
    if number is not None and why.get("stopped") == number:
        role = "stopped"
    if number is None:
        return PanelCurve(curve, role, (), (), f"a new configuration\n{format_config(curve.config)}")
    tip = segment_tip(history, segment) if place == 0 else f"trial {number}\n{format_config(curve.config)}"
    trial, steps_then = history.trials[number], past.steps_then.get(number, 0)
    known = [(s, float(v)) for s, v in enumerate(trial.values, 1) if v is not None and math.isfinite(v)]
    later = [(step, value) for step, value in known if step > steps_then]
    if prediction.quantity == BEST_VALUE_BY_STEP:
        best = np.maximum.accumulate if history.is_max else np.minimum.accumulate
        later = list(zip([s for s, _ in later], best([v for _, v in later]).tolist(), strict=True)) if later else []
    seen = [(step, value) for step, value in known if step <= steps_then]
    return PanelCurve(replace(curve, trial=number), role, seen, later, tip)


def _value_range(history: StudyHistory, curves: Sequence[PanelCurve], past: PastPrediction) -> tuple[float, float]:
    """Return the range of all values and of the middle half of each predicted curve; wider intervals end at the edge."""
    values = [value for one in curves for part in (one.seen, one.later) for _, value in part]
    values += [
        float(v) for one in curves for v in one.curve.quantiles[_SHOWN_QUANTILES[len(one.curve.steps) > 1]].ravel()
    ]
    low, high = clip_range(values, is_max=history.is_max)
    now = [one.seen[-1][1] for one in curves if one.seen] + ([] if past.best_then is None else [past.best_then])
    low, high = min([low, *now]), max([high, *now])  # the newest values are never drawn on the edge
    room = 0.05 * (high - low)
    return low - room, high + room


# panels --------------------------------------------------------------------------------------------------------------


def _draw_panels(
    history: StudyHistory, curves: Sequence[PanelCurve], y_range: tuple[float, float], past: PastPrediction
) -> Sheet:
    columns = min(_PANELS_PER_ROW, len(curves))
    rows = math.ceil(len(curves) / columns)
    height = rows * (_PANEL_HEIGHT + _GAP) + 8
    sheet = Sheet(height=height, label="curves so far, predictions for them, and later values")
    width = (sheet.width - LEFT - RIGHT - (columns - 1) * 18) / columns
    for place, one in enumerate(curves):
        left = LEFT + place % columns * (width + 18)
        top = TOP + place // columns * (_PANEL_HEIGHT + _GAP)
        x = PlotAxis(1.0, float(max(2, history.ledger.max_steps)), left, left + width)
        y = PlotAxis(*y_range, top + _PANEL_HEIGHT - 16, top + 6)
        draw_frame(sheet, x, y, with_numbers=place % columns == 0)
        sheet.text(left, top, f"{one.name}, {one.role}" if one.role else one.name, "name")
        _draw_best(sheet, past, x, y)
        _draw_prediction(sheet, one, x, y)
        _draw_line(sheet, one.later, x, y, "curve after", f"later values\n{one.tip}")
        _draw_line(sheet, one.seen, x, y, "curve best" if place == 0 else "curve shade-5", one.tip)
    sheet.text(4, 12, history.metric, "name")
    sheet.text((LEFT + sheet.width) / 2, sheet.height - 2, "step", "name", "middle")
    return sheet


def _draw_best(sheet: Sheet, past: PastPrediction, x: PlotAxis, y: PlotAxis) -> None:
    if past.best_then is not None:
        sheet.segment((x.start, y(past.best_then)), (x.end, y(past.best_then)), "guide", "the best value so far")


def _draw_prediction(sheet: Sheet, one: PanelCurve, x: PlotAxis, y: PlotAxis) -> None:
    curve = one.curve
    if len(curve.steps) == 1:
        _draw_interval(sheet, x(float(curve.steps[0])), curve.quantiles[:, 0], y, one.tip)
        return
    some = np.unique(np.linspace(0, len(curve.steps) - 1, _MAX_POINTS).astype(int))
    places = [x(float(step)) for step in curve.steps[some]]
    edges = [[y(float(value)) for value in row] for row in curve.quantiles[:, some]]
    end = f"predicted at step {curve.steps[-1]}: {_format_quantiles(curve.quantiles[:, -1])}"
    for low, high in ((0, 4), (1, 3)):
        band = [*zip(places, edges[low], strict=True), *zip(places[::-1], edges[high][::-1], strict=True)]
        sheet.line(band, "band", f"{end}\n{one.tip}")
    sheet.line(zip(places, edges[2], strict=True), "guide")


def _draw_interval(sheet: Sheet, place: float, quantiles: Floats, y: PlotAxis, tip: str) -> None:
    ends = [y(float(value)) for value in quantiles]
    tip = f"predicted at the end: {_format_quantiles(quantiles)}\n{tip}"
    sheet.segment((place, ends[0]), (place, ends[4]), "curve shade-3", tip)
    sheet.box(place - 4, min(ends[1], ends[3]), 8, abs(ends[1] - ends[3]), "bar", tip)
    sheet.dot((place, ends[2]), "dot after", tip)


def _draw_line(
    sheet: Sheet, points: Sequence[tuple[int, float]], x: PlotAxis, y: PlotAxis, style: str, tip: str
) -> None:
    drawn: list[Point] = [(x(step), y(value)) for step, value in points]
    if len(drawn) == 1:
        sheet.dot(drawn[0], f"dot {style.removeprefix('curve ')}", tip, radius=2.0)
    elif drawn:
        sheet.line(thin(drawn, _MAX_POINTS), style, tip)


def _draw_ends(curves: Sequence[PanelCurve], y_range: tuple[float, float], past: PastPrediction, what: str) -> Sheet:
    """Draw one interval for each configuration; a dot marks what the chosen one reached."""
    sheet = Sheet(height=300, label="predictions for each configuration")
    x = PlotAxis(-0.5, len(curves) - 0.5, LEFT, sheet.width - RIGHT)
    y = PlotAxis(*y_range, sheet.height - BOTTOM, TOP)
    for tick, number in y.labelled_ticks():
        sheet.segment((x.start, y(tick)), (x.end, y(tick)), "grid")
        sheet.text(x.start - 6, y(tick) + 4, number, anchor="end")
    sheet.segment((x.start, y.start), (x.end, y.start), "axis")
    sheet.text(4, 14, what, "name")
    _draw_best(sheet, past, x, y)
    for place, one in enumerate(curves):
        _draw_interval(sheet, x(place), one.curve.quantiles[:, 0], y, one.tip)
        sheet.text(x(place), y.start + 17, one.role or f"other {place}", anchor="middle")
        if one.later:
            value = one.later[-1][1]
            sheet.dot((x(place) + 12, y(value)), "dot best", f"actual {value:.6g}\n{one.tip}", radius=4.0)
    return sheet


# words and numbers ---------------------------------------------------------------------------------------------------


def _name_value(history: StudyHistory, curves: Sequence[PanelCurve]) -> str:
    """Return what is predicted where each configuration has one prediction."""
    step = max(int(one.curve.steps[-1]) for one in curves)
    return "value of a full training" if step >= history.ledger.max_steps else f"value after step {step}"


def _describe(segment: Segment, past: PastPrediction, curves: Sequence[PanelCurve], single: str) -> str:
    """Return the caption; `single` says what is predicted if each configuration has one prediction."""
    order = segment.order
    head = f"Order {order.number} trained trial {order.trial} to step {order.until}."
    if single:
        actual = " The orange dot is the value that the chosen one reached." if curves[0].later else ""
        return (
            f"{head} Shown is the predicted {single} for the chosen configuration, the runner-up and others: "
            f"the bar is the 50% interval, the line the 90% interval, the dashed line the best value so far.{actual}"
        )
    lengths = {len(one.curve.steps) > 1 for one in curves}
    about = past.prediction.quantity if True in lengths else "the value expected at the end"
    bands = "the dark band is the 50% interval, the light band the 90% interval"
    bars = "the bar at the last step is the 50% interval, the line the 90% interval"
    intervals = "; ".join(text for text, is_band in ((bands, True), (bars, False)) if is_band in lengths)
    known = [(q, value) for one in curves for step, value in one.later if (q := one.quantiles_at(step)) is not None]
    inside = sum(q[0] <= value <= q[-1] for q, value in known)
    later = f" Later values are thin lines; {inside} of {len(known)} lie in the 90% interval." if known else ""
    return f"{head} Shown are the values so far (orange: the chosen trial) and {about}: {intervals}.{later}"


def _format_quantiles(quantiles: Floats) -> str:
    low, middle, high = (show_number(float(quantiles[place])) for place in (0, 2, -1))
    return f"{middle} ({low} to {high})"


def _list_rows(one: PanelCurve) -> list[list[Any]]:
    curve, later = one.curve, dict(one.later)
    rows: list[list[Any]] = []
    for place in np.unique(np.linspace(0, len(curve.steps) - 1, _TABLE_STEPS).astype(int)):
        step = int(curve.steps[place])
        shown = [show_number(float(value)) for value in curve.quantiles[:, place]]
        name = "–" if curve.trial is None else curve.trial
        rows.append([name, one.role, step, *shown, show_number(later[step]) if step in later else "–"])
    return rows
