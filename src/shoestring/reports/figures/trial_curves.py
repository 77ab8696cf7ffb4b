"""Draw all learning curves: how far each trial was trained, where it was paused, and what it cost."""

from __future__ import annotations

import math

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.ledger.state import Trial
from shoestring.core.values.text import count
from shoestring.reports.facts import format_config, rank_trials, state_of
from shoestring.reports.figures.costs import choose_range
from shoestring.reports.figures.drawing import (
    MAX_TABLE_ROWS,
    Figure,
    PlotAxis,
    Point,
    Sheet,
    plot_area,
    segment_tip,
    thin,
    value_axis,
)
from shoestring.reports.figures.history import Segment, StudyHistory

_MAX_POINTS = 20_000  # in the whole figure: more cannot be seen, and would make the page slow to open
_SHADES = 5  # colours for the cost of a segment


def draw_curves(history: StudyHistory, most_points: int = _MAX_POINTS) -> Figure | None:
    """Draw all learning curves, with about `most_points` points in all."""
    longest = max((trial.steps for trial in history.trials), default=0)
    values = [v for trial in history.trials for v in trial.values if v is not None and math.isfinite(v)]
    if longest < 2 or not values:
        return None
    sheet = Sheet(height=380, label="all learning curves")
    left, right, bottom, top = plot_area(sheet)
    low, high, log = choose_range(values, is_max=history.is_max)
    x, y = PlotAxis(1.0, float(longest), left, right), value_axis(low, high, bottom, top, log=log)
    sheet.axes(x, y, "step", history.metric)
    shades = _Shades([segment.seconds for segment in history.segments])
    most = max(8, most_points // max(1, len(history.segments)))
    segments_of = history.segments_of_trials()
    best = history.ledger.best
    for trial in sorted(history.trials, key=lambda t: t is best):  # the best one last, so that it is on top
        for segment in segments_of.get(trial.number, ()):
            points = _points(trial, segment, x, y)
            shade = "best" if trial is best else f"shade-{shades(segment.seconds)}"
            if points:
                sheet.line(thin(points, most), f"curve {shade}", segment_tip(history, segment))
        _mark_end(sheet, trial, x, y, is_best=trial is best)
    clipped = sum(not y.low <= value <= y.high for value in values)
    outside = (
        f" {count(clipped, 'value')} outside the range {'is' if clipped == 1 else 'are'} drawn on the edge."
        if clipped
        else ""
    )
    paused = sum(state_of(trial) == "paused" for trial in history.trials)
    steps = sum(trial.steps for trial in history.trials)
    full = steps / (len(history.trials) * history.ledger.max_steps)
    sentence = (
        f"{count(len(history.trials), 'trial')}, {paused} of them paused before the end; "
        f"{full:.0%} of all possible steps were trained. "
        f"Lines in a stronger colour cost more; the best trial is orange.{outside}"
    )
    rows = [
        [
            t.number,
            state_of(t),
            t.steps,
            "–" if t.best_value is None else f"{t.best_value:.6g}",
            t.best_step or "–",
            show_seconds(t.seconds),
            format_config(t.config),
        ]
        for t in rank_trials(history.ledger)[:MAX_TABLE_ROWS]
    ]
    columns = ("trial", "state", "steps", f"best {history.metric}", "at step", "seconds", "configuration")
    return Figure("curves", "All learning curves", sentence, str(sheet), columns, rows)


def _points(trial: Trial, segment: Segment, x: PlotAxis, y: PlotAxis) -> list[Point]:
    """Return the points of a segment, joined to the segment before it."""
    first = max(1, segment.from_step)
    known = [(step, trial.values[step - 1]) for step in range(first, segment.to_step + 1)]
    return [(x(step), y(value)) for step, value in known if value is not None and math.isfinite(value)]


def _mark_end(sheet: Sheet, trial: Trial, x: PlotAxis, y: PlotAxis, *, is_best: bool) -> None:
    last = next((s for s in range(trial.steps, 0, -1) if _is_number(trial.values[s - 1])), None)
    if last is None:
        return
    value = trial.values[last - 1]
    assert value is not None
    state = state_of(trial)
    tip = f"trial {trial.number}: {state} after step {trial.steps}\n{format_config(trial.config)}"
    if trial.failure:
        tip += f"\n{trial.failure.splitlines()[-1]}"
    sheet.dot((x(last), y(value)), f"dot {'best' if is_best else state}", tip, radius=3.5 if is_best else 2.5)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


class _Shades:
    """Map seconds to a shade from 1 (cheap) to 5 (expensive), by rank among all segments."""

    def __init__(self, seconds: list[float]) -> None:
        ordered = sorted(seconds) or [0.0]
        self._edges = [ordered[min(len(ordered) - 1, len(ordered) * i // _SHADES)] for i in range(1, _SHADES)]

    def __call__(self, seconds: float) -> int:
        return 1 + sum(seconds > edge for edge in self._edges)
