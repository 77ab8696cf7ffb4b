"""Draw the predicted end of each trial and the best value that it reached, for every policy that predicts where a trial ends."""

from __future__ import annotations

import math
from typing import NamedTuple

from shoestring.reports.figures.costs import clip_range
from shoestring.reports.figures.drawing import (
    MAX_TABLE_ROWS,
    Figure,
    PlotAxis,
    Sheet,
    budget_axis,
    plot_area,
    segment_tip,
    show_number,
)
from shoestring.reports.figures.history import Segment, StudyHistory

# names in `why`: the value at which a trial is expected to end, and its standard deviation if the policy reports it
FORECAST_NAMES = (("mu", "sigma"), ("forecast", "forecast_std"), ("asymptote", ""))
_MIN_FORECASTS = 5


class Forecast(NamedTuple):
    segment: Segment
    predicted: float
    std: float  # nan: not reported
    actual: float  # the best value of the trial at the end of the study


def read_forecasts(history: StudyHistory) -> list[Forecast]:
    """Return the forecasts of orders after which the trial was trained and has a value."""
    found = []
    for segment in history.segments:
        why, trial = segment.order.why, history.trials[segment.order.trial]
        for name, std_name in FORECAST_NAMES:
            predicted = _number(why.get(name))
            if predicted is not None and trial.best_value is not None and trial.steps > segment.from_step:
                std = _number(why.get(std_name))
                found.append(Forecast(segment, predicted, math.nan if std is None else std, trial.best_value))
                break
    return found


def draw_forecasts(history: StudyHistory) -> Figure | None:
    """Draw the predicted end of each trial and the best value that it reached."""
    forecasts = read_forecasts(history)
    if len(forecasts) < _MIN_FORECASTS:
        return None
    sheet = Sheet(label="predicted and actual values")
    left, right, bottom, top = plot_area(sheet)
    low, high = clip_range([v for f in forecasts for v in (f.predicted, f.actual)], is_max=history.is_max)
    x, y = budget_axis(history.ledger.spent, left, right), PlotAxis(low, high, bottom, top)
    sheet.axes(x, y, f"spent at the time of the prediction ({history.budget.unit})", history.metric)
    for f in forecasts:
        place = x(f.segment.spent_before)
        if not math.isnan(f.std):
            ends = (place, y(f.predicted - 2 * f.std)), (place, y(f.predicted + 2 * f.std))
            sheet.segment(*ends, "curve shade-2")
        tip = segment_tip(history, f.segment)
        sheet.segment((place, y(f.predicted)), (place, y(f.actual)), "guide")
        sheet.dot((place, y(f.predicted)), "dot", f"predicted {f.predicted:.4g}\n{tip}", radius=2.5)
        sheet.dot((place, y(f.actual)), "dot best", f"actual {f.actual:.6g}\n{tip}", radius=2.5)
    with_std = [f for f in forecasts if not math.isnan(f.std)]
    inside = sum(abs(f.actual - f.predicted) <= 2 * f.std for f in with_std)
    coverage = f" {inside} of {len(with_std)} ended within two standard deviations." if with_std else ""
    sentence = (
        f"The value at which each trial was predicted to end (blue), and the best value that it reached (orange).{coverage}"
        " A trial that was paused early could not get there."
    )
    rows = [
        [f.segment.order.number, f.segment.order.trial, f"{f.predicted:.6g}", _show(f.std), f"{f.actual:.6g}"]
        for f in forecasts[:MAX_TABLE_ROWS]
    ]
    columns = ("order", "trial", "predicted", "standard deviation", "actual")
    return Figure("forecasts", "Predicted and actual values", sentence, str(sheet), columns, rows)


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _show(number: float) -> str:
    return "–" if math.isnan(number) else show_number(number)
