"""One figure for each family of policies, of what it alone goes by, read from the reasons in its orders.

tells                            policies               figure
ei, predicted_cost, ei_max       cost-aware             improvement against price: what was given up to save
statistic, decision              BO-BOS                 the map of decisions: go on, give up, trust
midpoint, growth, log_condition  BOIL                   how curves are weighed, and how well the model is conditioned
query                            tuning while training  hyperparameters round by round, and where was validated
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from shoestring.core.deciding.prediction import VERDICTS
from shoestring.reports.figures.configs import varying
from shoestring.reports.figures.drawing import MOST_TABLE_ROWS, Figure, PlotAxis, Sheet, plot_area, show_number, why_tip
from shoestring.reports.figures.history import Segment, Story

_FEWEST = 3
_LEAST = 1e-6  # of the largest improvement: what is still drawn in its place
_MOST_LINES = 6  # hyperparameters in one figure: as many colours as there are
_AXIS = (-6.0, 6.0)  # on which BOIL's logistic weight lives, from the first step to the last


def _telling(story: Story, *names: str) -> list[Segment]:
    """Orders whose reasons have all these numbers."""
    return [s for s in story.segments if all(isinstance(s.order.why.get(name), int | float) for name in names)]


def _of(segment: Segment, name: str) -> float:
    return float(segment.order.why[name])  # type: ignore[arg-type]


def draw_improvement(story: Story) -> Figure | None:
    """Cost-aware: expected improvement of what was chosen against its price, and the largest there was."""
    told = [s for s in _telling(story, "ei", "ei_max", "predicted_cost") if _of(s, "ei") > 0 < _of(s, "predicted_cost")]
    if len(told) < _FEWEST:
        return None
    sheet = Sheet(height=340, label="expected improvement against predicted cost")
    left, right, bottom, top = plot_area(sheet)
    costs, gains = [_of(s, "predicted_cost") for s in told], [_of(s, n) for s in told for n in ("ei", "ei_max")]
    lowest = max(min(gains), _LEAST * max(gains))  # below that nothing is expected, whatever the exponent
    x, y = (
        PlotAxis(min(costs), max(costs), left, right, log=True),
        PlotAxis(lowest, max(gains), bottom, top, log=True),
    )
    sheet.axes(x, y, f"predicted cost ({story.budget.unit})", "expected improvement")
    for number, segment in enumerate(told):
        place, ei, most = x(_of(segment, "predicted_cost")), _of(segment, "ei"), _of(segment, "ei_max")
        sheet.segment((place, y(ei)), (place, y(most)), "guide")
        shade = 1 + 4 * number // max(1, len(told) - 1)
        sheet.dot((place, y(ei)), f"dot fill-s{shade}", why_tip(segment, story.budget), 3.5)
    shares = [_of(s, "ei") / _of(s, "ei_max") for s in told]
    cheaper = sum(share < 1 - 1e-9 for share in shares)
    kept = f", at {median(share for share in shares if share < 1 - 1e-9):.0%} of its improvement" if cheaper else ""
    sentence = (
        f"Of {len(told)} choices {cheaper} were cheaper configs than the most promising one{kept} (in the middle). The dashed "
        "line of a choice ends at the most promising one; later choices have a stronger colour. Hopeless ones stand on the lower "
        "edge."
    )
    rows = [
        [s.order.number, *(show_number(_of(s, name)) for name in ("predicted_cost", "ei", "ei_max")), f"{share:.0%}"]
        for s, share in zip(told, shares, strict=True)
    ]
    columns = ("order", f"predicted cost ({story.budget.unit})", "expected improvement", "largest there was", "share")
    title = "Improvement and its price"
    return Figure("improvement", title, sentence, str(sheet), columns, rows[:MOST_TABLE_ROWS])


def draw_decisions(story: Story) -> Figure | None:
    """BO-BOS: where runs stood when it was decided whether to go on."""
    marks: list[tuple[float, float, int, Segment]] = []
    for segment in story.segments:
        for prefix, step in (("", float(segment.from_step)), ("gave_up_", segment.order.why.get("gave_up_at"))):
            statistic, decision = (segment.order.why.get(f"{prefix}{name}") for name in ("statistic", "decision"))
            if isinstance(statistic, float) and isinstance(decision, int) and isinstance(step, int | float):
                marks.append((float(step), statistic, decision, segment))
    if len(marks) < _FEWEST:
        return None
    sheet = Sheet(height=340, label="decisions to go on or to give up")
    left, right, bottom, top = plot_area(sheet)
    heights = [mark[1] for mark in marks]
    x = PlotAxis(0.0, max(mark[0] for mark in marks), left, right)
    y = PlotAxis(min(heights), max(heights), bottom, top)
    sheet.axes(x, y, "step at which it was decided", "mean error so far")
    for step, statistic, decision, segment in marks:
        sheet.dot((x(step), y(statistic)), f"fill-{VERDICT_COLOURS[decision]}", why_tip(segment, story.budget), 3.5)
    counts = [sum(mark[2] == decision for mark in marks) for decision in range(3)]
    for number, name in enumerate(VERDICTS):
        sheet.text(left + 120 + 110 * number, 14, f"● {name}", f"label fill-{VERDICT_COLOURS[number]}")
    said = ", ".join(f"{name} {count}" for name, count in zip(VERDICTS, counts, strict=True))
    sentence = f"Where runs stood when their future was weighed: {said}. A low error late is worth going on with."
    rows = [[s.order.number, s.order.trial, f"{step:g}", show_number(v), VERDICTS[d]] for step, v, d, s in marks]
    columns = ("order", "trial", "step", "mean error so far", "decision")
    return Figure("decisions", "Go on or give up", sentence, str(sheet), columns, rows[:MOST_TABLE_ROWS])


VERDICT_COLOURS = (1, 5, 2)  # of a page's classes, in the order of VERDICTS


def draw_compression(story: Story) -> Figure | None:
    """BOIL: the weight of each step in a curve's score, and the condition of the model."""
    told = _telling(story, "midpoint", "growth", "log_condition", "added")
    if len(told) < _FEWEST:
        return None
    sheet = Sheet(height=300, label="weights of steps in a score, and the condition of the covariance")
    left, right, bottom, top = plot_area(sheet)
    middle = (left + right) / 2
    x, y = PlotAxis(1.0, float(story.ledger.max_steps), left, middle - 40), PlotAxis(0.0, 1.0, bottom, top)
    sheet.axes(x, y, "step   |   order", "weight of a step (left), condition, ln (right)")
    for number, segment in enumerate(told):
        is_last = segment is told[-1]
        shade = "best" if is_last else f"shade-{1 + 4 * number // len(told)}"
        points = [(x(1 + (story.ledger.max_steps - 1) * i / 40), y(_weight(segment, i / 40))) for i in range(41)]
        if is_last or number % max(1, len(told) // 8) == 0:
            sheet.line(points, f"curve {shade}", why_tip(segment, story.budget))
    conditions = [_of(s, "log_condition") for s in told]
    right_x = PlotAxis(float(told[0].order.number), float(told[-1].order.number), middle + 30, right)
    right_y = PlotAxis(min(0.0, *conditions), max(conditions), bottom, top)
    for tick in right_y.ticks():
        sheet.text(middle + 24, right_y(tick) + 4, show_number(tick), anchor="end")
    for tick in right_x.ticks(4):
        sheet.text(right_x(tick), bottom + 17, show_number(tick), anchor="middle")
    sheet.segment((middle + 30, bottom), (right, bottom), "axis")
    sheet.line([(right_x(s.order.number), right_y(c)) for s, c in zip(told, conditions, strict=True)], "curve line-1")
    sentence = (
        f"Left: how much each step counts in a curve's score, as it was learned (last in colour). Right: ln of the "
        f"covariance's condition, {max(conditions):.3g} at most. {_of(told[-1], 'added'):g} points were added from inside curves."
    )
    names = ("midpoint", "growth", "log_condition", "added")
    rows = [[s.order.number, *(show_number(_of(s, name)) for name in names)] for s in told]
    columns = ("order", "midpoint (-6 to 6)", "growth", "condition (ln)", "points added")
    return Figure("compression", "From curves to scores", sentence, str(sheet), columns, rows[:MOST_TABLE_ROWS])


def _weight(segment: Segment, share: float) -> float:
    v = _AXIS[0] + (_AXIS[1] - _AXIS[0]) * share
    return 1.0 / (1.0 + math.exp(-_of(segment, "growth") * (v - _of(segment, "midpoint"))))


def draw_schedule(story: Story) -> Figure | None:
    """Tuned while training: hyperparameters by round, and the rounds that were validated."""
    told = [s for s in story.segments if "query" in s.order.why]
    parameters = list(varying(story.ledger.space).items())[:_MOST_LINES]
    if len(told) < _FEWEST or not parameters:
        return None
    sheet = Sheet(height=320, label="hyperparameters round by round")
    left, right, bottom, top = plot_area(sheet)
    x = PlotAxis(0.0, float(max(1, len(told) - 1)), left, right - 110)  # names stand on the right
    y = PlotAxis(0.0, 1.0, bottom - 26, top)
    sheet.axes(x, y, "round", "place in its range (0 to 1)")
    for number, (name, parameter) in enumerate(parameters):
        points = [
            (x(i), y(_place(parameter, s.order.config, name))) for i, s in enumerate(told) if name in s.order.config
        ]
        sheet.line(points, f"curve line-{number}")
        sheet.text(right, top + 12 + 14 * number, name, f"label fill-{number}", "end")
    validated = [s.order.validate != "none" for s in told]
    for i, segment in enumerate(told):
        style = "dot best" if validated[i] else "dot frozen"
        sheet.dot((x(i), bottom + 4), style, why_tip(segment, story.budget), 2.5 if validated[i] else 1.2)
    sentence = (
        f"{sum(validated)} of {len(told)} rounds were validated (large dots below); the lines are the hyperparameters that each "
        "round was trained with."
    )
    rows = [
        [
            i,
            "yes" if validated[i] else "no",
            str(s.order.why["query"]),
            *(_cell(s.order.config.get(n)) for n, _ in parameters),
        ]
        for i, s in enumerate(told[:MOST_TABLE_ROWS])
    ]
    columns: Sequence[str] = ("round", "validated", "rule", *(name for name, _ in parameters))
    return Figure("schedule", "What was changed, and when it was checked", sentence, str(sheet), columns, rows)


def _place(parameter: Any, config: Mapping[str, Any], name: str) -> float:
    return float(parameter.to_unit(config[name]))


def _cell(value: Any) -> str:
    return show_number(value) if isinstance(value, float) else str(value)
