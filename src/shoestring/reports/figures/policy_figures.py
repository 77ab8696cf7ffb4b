"""One figure for each family of policies: the numbers that only this family works with, read from the `why` of its orders.

numbers in `why`                 policies               figure
ei, predicted_cost, ei_max       cost-aware             expected improvement against cost
statistic, decision              BO-BOS                 the actions of the stopping rule: continue, stop, train to the end
midpoint, growth, log_condition  BOIL                   how the steps of a curve are weighted, and the model's condition number
query                            tuning while training  hyperparameters by round, and which rounds were validated
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from shoestring.core.deciding.prediction import STOPPING_ACTIONS
from shoestring.reports.figures.configs import varying_parameters
from shoestring.reports.figures.decisions import ACTION_COLOURS
from shoestring.reports.figures.drawing import (
    MAX_TABLE_ROWS,
    Figure,
    PlotAxis,
    Sheet,
    plot_area,
    segment_tip,
    show_number,
)
from shoestring.reports.figures.history import Segment, StudyHistory

_MIN_ORDERS = 3
_SMALLEST_SHARE = 1e-6  # of the largest improvement: smaller ones are drawn on the lower edge
_MAX_LINES = 6  # hyperparameters in one figure: the style has six colours for lines
_WEIGHT_RANGE = (-6.0, 6.0)  # argument of BOIL's logistic weight, from the first step to the last


def _segments_with(history: StudyHistory, *names: str) -> list[Segment]:
    """Return the segments whose orders have all these numbers in `why`."""
    return [s for s in history.segments if all(isinstance(s.order.why.get(name), int | float) for name in names)]


def _read(segment: Segment, name: str) -> float:
    return float(segment.order.why[name])  # type: ignore[arg-type]


def draw_improvement(history: StudyHistory) -> Figure | None:
    """Draw, for cost-aware policies, the expected improvement of each choice against its cost, and the largest available."""
    known = _segments_with(history, "ei", "ei_max", "predicted_cost")
    segments = [s for s in known if _read(s, "ei") > 0 < _read(s, "predicted_cost")]
    if len(segments) < _MIN_ORDERS:
        return None
    sheet = Sheet(height=340, label="expected improvement against predicted cost")
    left, right, bottom, top = plot_area(sheet)
    costs, gains = (
        [_read(s, "predicted_cost") for s in segments],
        [_read(s, n) for s in segments for n in ("ei", "ei_max")],
    )
    lowest = max(min(gains), _SMALLEST_SHARE * max(gains))  # smaller improvements are as good as none
    x, y = (
        PlotAxis(min(costs), max(costs), left, right, log=True),
        PlotAxis(lowest, max(gains), bottom, top, log=True),
    )
    sheet.axes(x, y, f"predicted cost ({history.budget.unit})", "expected improvement")
    for number, segment in enumerate(segments):
        place, ei, most = x(_read(segment, "predicted_cost")), _read(segment, "ei"), _read(segment, "ei_max")
        sheet.segment((place, y(ei)), (place, y(most)), "guide")
        shade = 1 + 4 * number // max(1, len(segments) - 1)
        sheet.dot((place, y(ei)), f"dot fill-s{shade}", segment_tip(history, segment), 3.5)
    shares = [_read(s, "ei") / _read(s, "ei_max") for s in segments]
    smaller = [share for share in shares if share < 1 - 1e-9]
    middle = f", with a median of {median(smaller):.0%} of the largest expected improvement" if smaller else ""
    sentence = (
        f"{len(smaller)} of {len(segments)} choices were cheaper configurations than the one with the largest expected "
        f"improvement{middle}. The dashed line of a choice ends at that largest improvement. Later choices have a stronger "
        "colour. Choices with almost no improvement are drawn on the lower edge."
    )
    rows = [
        [s.order.number, *(show_number(_read(s, name)) for name in ("predicted_cost", "ei", "ei_max")), f"{share:.0%}"]
        for s, share in zip(segments, shares, strict=True)
    ]
    columns = ("order", f"predicted cost ({history.budget.unit})", "expected improvement", "largest available", "share")
    title = "Improvement and cost"
    return Figure("improvement", title, sentence, str(sheet), columns, rows[:MAX_TABLE_ROWS])


def draw_decisions(history: StudyHistory) -> Figure | None:
    """Draw, for BO-BOS, the step and the mean error of each trial at its stopping checks."""
    marks: list[tuple[float, float, int, Segment]] = []
    for segment in history.segments:
        for prefix, step in (("", float(segment.from_step)), ("stopped_", segment.order.why.get("stopped_at"))):
            statistic, decision = (segment.order.why.get(f"{prefix}{name}") for name in ("statistic", "decision"))
            if isinstance(statistic, float) and isinstance(decision, int) and isinstance(step, int | float):
                marks.append((float(step), statistic, decision, segment))
    if len(marks) < _MIN_ORDERS:
        return None
    sheet = Sheet(height=340, label="decisions to continue or to stop")
    left, right, bottom, top = plot_area(sheet)
    heights = [mark[1] for mark in marks]
    x = PlotAxis(0.0, max(mark[0] for mark in marks), left, right)
    y = PlotAxis(min(heights), max(heights), bottom, top)
    sheet.axes(x, y, "step of the decision", "mean error so far")
    for step, statistic, decision, segment in marks:
        sheet.dot((x(step), y(statistic)), f"fill-{ACTION_COLOURS[decision]}", segment_tip(history, segment), 3.5)
    counts = [sum(mark[2] == decision for mark in marks) for decision in range(3)]
    for number, name in enumerate(STOPPING_ACTIONS):
        sheet.text(left + 120 + 110 * number, 14, f"● {name}", f"label fill-{ACTION_COLOURS[number]}")
    actions = ", ".join(f"{name} {count}" for name, count in zip(STOPPING_ACTIONS, counts, strict=True))
    sentence = f"Trials by step and mean error at their stopping checks: {actions}."
    rows = [
        [s.order.number, s.order.trial, f"{step:g}", show_number(v), STOPPING_ACTIONS[d]] for step, v, d, s in marks
    ]
    columns = ("order", "trial", "step", "mean error so far", "decision")
    return Figure("decisions", "Continue or stop", sentence, str(sheet), columns, rows[:MAX_TABLE_ROWS])


def draw_compression(history: StudyHistory) -> Figure | None:
    """Draw, for BOIL, the weight of each step in a curve's score, and the condition number of the model."""
    segments = _segments_with(history, "midpoint", "growth", "log_condition", "added")
    if len(segments) < _MIN_ORDERS:
        return None
    sheet = Sheet(height=300, label="weights of steps in a score, and condition number of the covariance")
    left, right, bottom, top = plot_area(sheet)
    middle = (left + right) / 2
    x, y = PlotAxis(1.0, float(history.ledger.max_steps), left, middle - 40), PlotAxis(0.0, 1.0, bottom, top)
    sheet.axes(x, y, "step   |   order", "weight of a step (left), ln of the condition number (right)")
    for number, segment in enumerate(segments):
        is_last = segment is segments[-1]
        shade = "best" if is_last else f"shade-{1 + 4 * number // len(segments)}"
        points = [(x(1 + (history.ledger.max_steps - 1) * i / 40), y(_weight(segment, i / 40))) for i in range(41)]
        if is_last or number % max(1, len(segments) // 8) == 0:
            sheet.line(points, f"curve {shade}", segment_tip(history, segment))
    conditions = [_read(s, "log_condition") for s in segments]
    right_x = PlotAxis(float(segments[0].order.number), float(segments[-1].order.number), middle + 30, right)
    right_y = PlotAxis(min(0.0, *conditions), max(conditions), bottom, top)
    for tick, label in right_y.labelled_ticks():
        sheet.text(middle + 24, right_y(tick) + 4, label, anchor="end")
    for tick, label in right_x.labelled_ticks(4):
        sheet.text(right_x(tick), bottom + 17, label, anchor="middle")
    sheet.segment((middle + 30, bottom), (right, bottom), "axis")
    sheet.line(
        [(right_x(s.order.number), right_y(c)) for s, c in zip(segments, conditions, strict=True)], "curve line-1"
    )
    sentence = (
        "Left: the learned weight of each step in a curve's score (the last one in colour). Right: ln of the covariance's "
        f"condition number, {max(conditions):.3g} at most. {_read(segments[-1], 'added'):g} points were added from prefixes of "
        "curves."
    )
    names = ("midpoint", "growth", "log_condition", "added")
    rows = [[s.order.number, *(show_number(_read(s, name)) for name in names)] for s in segments]
    columns = ("order", "midpoint (-6 to 6)", "growth", "condition number (ln)", "points added")
    return Figure("compression", "From curves to scores", sentence, str(sheet), columns, rows[:MAX_TABLE_ROWS])


def _weight(segment: Segment, share: float) -> float:
    v = _WEIGHT_RANGE[0] + (_WEIGHT_RANGE[1] - _WEIGHT_RANGE[0]) * share
    return 1.0 / (1.0 + math.exp(-_read(segment, "growth") * (v - _read(segment, "midpoint"))))


def draw_schedule(history: StudyHistory) -> Figure | None:
    """Draw, for tuning while training, the hyperparameters by round, and which rounds were validated."""
    segments = [s for s in history.segments if "query" in s.order.why]
    parameters = list(varying_parameters(history.ledger.space).items())[:_MAX_LINES]
    if len(segments) < _MIN_ORDERS or not parameters:
        return None
    sheet = Sheet(height=320, label="hyperparameters by round")
    left, right, bottom, top = plot_area(sheet)
    x = PlotAxis(0.0, float(max(1, len(segments) - 1)), left, right - 110)  # room for the names
    y = PlotAxis(0.0, 1.0, bottom - 26, top)
    sheet.axes(x, y, "round", "position in its range (0 to 1)")
    for number, (name, parameter) in enumerate(parameters):
        points = [
            (x(i), y(_place(parameter, s.order.config, name))) for i, s in enumerate(segments) if name in s.order.config
        ]
        sheet.line(points, f"curve line-{number}")
        sheet.text(right, top + 12 + 14 * number, name, f"label fill-{number}", "end")
    validated = [s.order.validate != "none" for s in segments]
    for i, segment in enumerate(segments):
        style = "dot best" if validated[i] else "dot unvalidated"
        sheet.dot((x(i), bottom + 4), style, segment_tip(history, segment), 2.5 if validated[i] else 1.2)
    sentence = (
        f"The hyperparameters of each round. {sum(validated)} of {len(segments)} rounds were validated; these have large dots "
        "below the lines."
    )
    rows = [
        [
            i,
            "yes" if validated[i] else "no",
            str(s.order.why["query"]),
            *(_cell(s.order.config.get(n)) for n, _ in parameters),
        ]
        for i, s in enumerate(segments[:MAX_TABLE_ROWS])
    ]
    columns: Sequence[str] = ("round", "validated", "rule", *(name for name, _ in parameters))
    return Figure("schedule", "Hyperparameters and validation by round", sentence, str(sheet), columns, rows)


def _place(parameter: Any, config: Mapping[str, Any], name: str) -> float:
    return float(parameter.to_unit(config[name]))


def _cell(value: Any) -> str:
    return show_number(value) if isinstance(value, float) else str(value)
