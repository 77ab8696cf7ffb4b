"""What the policy believed when it bought, and what came of it: for every policy that says where a run will end.

Two figures. Forecasts: each order's belief about the end of its run, with two standard deviations where it has them, beside the
best value that the run reached. Chances: how often runs beat the best so far, by the chance that they were given.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shoestring.reports.figures.costs import clip_range
from shoestring.reports.figures.drawing import (
    MOST_TABLE_ROWS,
    Figure,
    PlotAxis,
    Sheet,
    money_scale,
    plot_area,
    show_number,
    why_tip,
)
from shoestring.reports.figures.history import Segment, Story

# of `why`: the value that a run is expected to end at, and its standard deviation if the policy tells it
BELIEFS = (("mu", "sigma"), ("forecast", "forecast_std"), ("expected_end", ""), ("asymptote", ""))
_CHANCE = "chance_to_beat_best"
_FEWEST, _GROUPS = 5, 5


class Forecast(NamedTuple):
    segment: Segment
    value: float
    spread: float  # nan: not told
    came: float  # the best value of the trial in the end


def read_forecasts(story: Story) -> list[Forecast]:
    """Of orders whose trial was trained on after them and has a value."""
    found = []
    for segment in story.segments:
        why, trial = segment.order.why, story.trials[segment.order.trial]
        for name, spread in BELIEFS:
            value = _number(why.get(name))
            if value is not None and trial.best_value is not None and trial.steps > segment.from_step:
                deviation = _number(why.get(spread))
                told = math.nan if deviation is None else deviation
                found.append(Forecast(segment, value, told, trial.best_value))
                break
    return found


def draw_forecasts(story: Story) -> Figure | None:
    forecasts = read_forecasts(story)
    if len(forecasts) < _FEWEST:
        return None
    sheet = Sheet(label="what was believed and what came")
    left, right, bottom, top = plot_area(sheet)
    low, high = clip_range([v for f in forecasts for v in (f.value, f.came)], is_max=story.is_max)
    x, y = money_scale(story.budget, story.ledger.spent, left, right), PlotAxis(low, high, bottom, top)
    sheet.axes(x, y, f"spent when it was ordered ({story.budget.unit})", "value")
    for f in forecasts:
        place = x(f.segment.spent_before)
        if not math.isnan(f.spread):
            sheet.segment((place, y(f.value - 2 * f.spread)), (place, y(f.value + 2 * f.spread)), "curve shade-2")
        tip = why_tip(f.segment, story.budget)
        sheet.segment((place, y(f.value)), (place, y(f.came)), "guide")
        sheet.dot((place, y(f.value)), "dot", f"believed {f.value:.4g}\n{tip}", radius=2.5)
        sheet.dot((place, y(f.came)), "dot best", f"came {f.came:.6g}\n{tip}", radius=2.5)
    told = [f for f in forecasts if not math.isnan(f.spread)]
    inside = sum(abs(f.came - f.value) <= 2 * f.spread for f in told)
    borne_out = f" {inside} of {len(told)} ended within two standard deviations." if told else ""
    sentence = (
        f"Where a run was believed to end when it was bought (blue), and what it reached in the end (orange).{borne_out}"
        " A run that was frozen early had no chance to get there."
    )
    rows = [
        [f.segment.order.number, f.segment.order.trial, f"{f.value:.6g}", _show(f.spread), f"{f.came:.6g}"]
        for f in forecasts[:MOST_TABLE_ROWS]
    ]
    columns = ("order", "trial", "believed", "standard deviation", "came")
    return Figure("forecasts", "What was believed, and what came", sentence, str(sheet), columns, rows)


def draw_chances(story: Story) -> Figure | None:
    """Reliability of the chances to beat the best value so far."""
    pairs = _chances(story)
    if len(pairs) < _FEWEST * 2:
        return None
    pairs.sort(key=lambda pair: pair[0])
    groups = [pairs[i * len(pairs) // _GROUPS : (i + 1) * len(pairs) // _GROUPS] for i in range(_GROUPS)]
    rows = [
        (sum(chance for chance, _ in group) / len(group), sum(came for _, came in group) / len(group), len(group))
        for group in groups
        if group
    ]
    sheet = Sheet(height=320, label="chance that was given against how often it came")
    left, right, bottom, top = plot_area(sheet)
    x, y = PlotAxis(0.0, 1.0, left, right), PlotAxis(0.0, 1.0, bottom, top)
    sheet.axes(x, y, "chance to beat the best that the policy gave", "share that did")
    sheet.segment((x(0.0), y(0.0)), (x(1.0), y(1.0)), "guide")
    sheet.line([(x(given), y(came)) for given, came, _ in rows], "curve")
    for given, came, count in rows:
        sheet.dot(
            (x(given), y(came)), "dot best", f"{count} orders: given {given:.0%}, came {came:.0%}", 3 + count**0.5 / 3
        )
    given, came = (sum(pair[i] for pair in pairs) / len(pairs) for i in (0, 1))
    sentence = (
        f"Of {len(pairs)} orders {came:.0%} led to a new best of their run's making; the policy expected {given:.0%}. "
        "On the dashed line chances are what they say."
    )
    shown = [[f"{given:.1%}", f"{came:.1%}", count] for given, came, count in rows]
    return Figure("chances", "Were the chances right?", sentence, str(sheet), ("given", "came", "orders"), shown)


def _chances(story: Story) -> list[tuple[float, bool]]:
    """(chance given, whether the trial then beat what was the best) of every order that told a chance."""
    pairs = []
    for segment in story.segments:
        chance = _number(segment.order.why.get(_CHANCE))
        before = [best for best in story.bests if best.spent <= segment.spent_before]
        if chance is None or not before:
            continue
        later = (best for best in story.bests[len(before) :] if best.trial == segment.order.trial)
        pairs.append((chance, any(True for _ in later)))
    return pairs


def _number(value: object) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None  # type: ignore[arg-type]


def _show(number: float) -> str:
    return "–" if math.isnan(number) else show_number(number)
