"""Draw where the budget went: by kind of cost, against the best value, against predicted costs, by trial, by worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from shoestring.core.ledger.budget import show_seconds
from shoestring.reports.facts import format_config, state_of
from shoestring.reports.figures.drawing import (
    LEFT,
    MAX_TABLE_ROWS,
    RIGHT,
    Figure,
    PlotAxis,
    Sheet,
    budget_axis,
    plot_area,
    segment_tip,
    show_number,
    thin,
    value_axis,
)
from shoestring.reports.figures.history import KINDS, NewBest, Segment, StudyHistory

_BAR_HEIGHT = 34.0
_EARLY_SHARE = 0.02  # of the budget that was spent
_MAX_DOTS = 300  # on one line: more dots would overlap
_ROW_HEIGHT, _GAP = 22.0, 6.0  # of the timeline
_MAX_ROWS = 64
_SMALLEST = 1e-300  # on a log axis: the logs of smaller numbers are imprecise, and 0 has none
_DECADES = 100.0  # the ratio of values from which an axis is logarithmic


def draw_budget(history: StudyHistory) -> Figure:
    """Draw one bar: all seconds, divided by what they were spent on."""
    seconds = {kind: amount for kind, amount in history.seconds.items() if amount > 0}
    total = math.fsum(seconds.values())
    rows_of_legend = math.ceil(len(seconds) / 4)
    sheet = Sheet(height=_BAR_HEIGHT + 30 + 20 * rows_of_legend, label="seconds by what they were spent on")
    x = 0.0
    for kind, amount in seconds.items():
        width = amount / total * sheet.width
        share = f"{KINDS[kind]}: {show_seconds(amount)}, {amount / total:.1%} of the time"
        sheet.box(x, 4, width, _BAR_HEIGHT, f"kind {kind}", share)
        x += width
    for number, kind in enumerate(seconds):
        column, row = number % 4, number // 4
        left, top = column * 180.0, _BAR_HEIGHT + 18 + 20 * row
        sheet.box(left, top, 11, 11, f"kind {kind}")
        sheet.text(left + 17, top + 10, f"{KINDS[kind]} {seconds[kind] / total:.1%}")
    useful = seconds.get("train", 0.0) + seconds.get("validate", 0.0)
    spent = history.budget.show(history.ledger.spent)
    sentence = f"{spent} of {history.budget.show(history.budget.total)} spent; "
    sentence += f"{useful / total:.0%} of the time was training and validation." if total else "no time was spent."
    rows = [[KINDS[kind], show_seconds(amount), f"{amount / total:.1%}"] for kind, amount in seconds.items()]
    return Figure("budget", "Where the budget went", sentence, str(sheet), ("kind", "time", "share"), rows)


def draw_best(history: StudyHistory) -> Figure | None:
    """Draw the best value so far against the budget spent."""
    if not history.bests:
        return None
    sheet = Sheet(label="best value against the budget spent")
    left, right, bottom, top = plot_area(sheet)
    x = budget_axis(max(history.ledger.spent, history.budget.total), left, right)
    low, high, log = range_of_bests([history])
    y = value_axis(low, high, bottom, top, log=log)
    sheet.axes(x, y, f"spent ({history.budget.unit})", f"best {history.metric}")
    points = [(x(spent), y(value)) for spent, value in make_staircase(history.bests, history.ledger.spent)]
    sheet.line(thin(points, 4 * _MAX_DOTS), "curve best")
    for best in [*history.bests[: -1 : math.ceil(len(history.bests) / _MAX_DOTS)], history.bests[-1]]:
        config = format_config(history.trials[best.trial].config)
        tip = (
            f"{best.value:.6g} after {history.budget.show(best.spent)}\ntrial {best.trial}, step {best.step}\n{config}"
        )
        sheet.dot((x(best.spent), y(best.value)), "dot best", tip)
    last = history.bests[-1]
    share = last.spent / history.ledger.spent if history.ledger.spent else 1.0
    sentence = f"The best {history.metric}, {last.value:.6g}, was found after {share:.0%} of the spent budget."
    rows = [[history.budget.show(b.spent), f"{b.value:.6g}", b.trial, b.step] for b in history.bests]
    columns = ("spent", f"best {history.metric}", "trial", "step")
    return Figure("best", "The best value so far", sentence, str(sheet), columns, rows[-MAX_TABLE_ROWS:])


def range_of_bests(histories: Sequence[StudyHistory]) -> tuple[float, float, bool]:
    """Return the range of the best values, and whether its axis is logarithmic.

    Of the values in the first 2% of the budget only the last counts: others may be far off.
    """
    values = []
    for history in histories:
        early = _EARLY_SHARE * history.ledger.spent
        values += [best.value for best in history.bests if best.spent >= early] or [history.bests[-1].value]
        values += [best.value for best in history.bests if best.spent < early][-1:]
    return min(values), max(values), spans_decades(values, is_max=histories[0].is_max)


def make_staircase(bests: list[NewBest], until: float) -> list[tuple[float, float]]:
    """Return the points of a line that is level between two new bests, up to the amount `until`."""
    points = [(bests[0].spent, bests[0].value)]
    for before, best in pairwise(bests):
        points += [(best.spent, before.value), (best.spent, best.value)]
    return [*points, (max(until, bests[-1].spent), bests[-1].value)]


def draw_predicted(history: StudyHistory) -> Figure | None:
    """Draw the cost of each order against its expected cost; return None for epochs, where both are the same."""
    known = [s for s in history.segments if s.order.expected_cost and s.cost > 0 and s.status in ("ok", "diverged")]
    if history.budget.unit == "epochs" or len(known) < 3:
        return None
    sheet = Sheet(label="actual cost against expected cost")
    left, right, bottom, top = plot_area(sheet)
    pairs = [(float(s.order.expected_cost or 0.0), s.cost) for s in known]
    low, high = min(map(min, pairs)), max(map(max, pairs))
    x, y = PlotAxis(low, high, left, right, log=True), PlotAxis(low, high, bottom, top, log=True)
    sheet.axes(x, y, f"expected ({history.budget.unit})", "actual")
    sheet.segment((x(low), y(low)), (x(high), y(high)), "guide")
    for segment, (expected, actual) in zip(known, pairs, strict=True):
        sheet.dot((x(expected), y(actual)), "dot", segment_tip(history, segment))
    within = sum(expected / 2 <= actual <= expected * 2 for expected, actual in pairs) / len(pairs)
    sentence = f"{within:.0%} of the actual costs are between half and twice the expected cost."
    rows = [[s.order.number, show_number(e), show_number(p)] for s, (e, p) in zip(known, pairs, strict=True)]
    columns = ("order", f"expected ({history.budget.unit})", "actual")
    return Figure("predicted", "Expected and actual cost", sentence, str(sheet), columns, rows[:MAX_TABLE_ROWS])


def draw_front(history: StudyHistory) -> Figure | None:
    """Draw each trial's best value against its seconds, and the Pareto front of the two."""
    known = [trial for trial in history.trials if trial.best_value is not None and trial.seconds > 0]
    if len(known) < 3:
        return None
    sheet = Sheet(label="value against cost, trial by trial")
    left, right, bottom, top = plot_area(sheet)
    values = [float(trial.best_value or 0.0) for trial in known]
    low, high, log = choose_range(values, is_max=history.is_max)
    x = PlotAxis(min(t.seconds for t in known), max(t.seconds for t in known), left, right, log=True)
    y = value_axis(low, high, bottom, top, log=log)
    sheet.axes(x, y, "seconds of the trial", f"best {history.metric}", lambda s: show_seconds(s))
    front, best = [], math.inf
    for trial in sorted(known, key=lambda t: (t.seconds, t.best_loss)):
        if trial.best_loss < best:
            best = trial.best_loss
            front.append(trial)
    sheet.line([(x(t.seconds), y(float(t.best_value or 0.0))) for t in front], "guide")
    for trial in known:
        on_front = "best" if trial in front else ""
        tip = f"trial {trial.number}: {trial.best_value:.6g} for {show_seconds(trial.seconds)}\n{format_config(trial.config)}"
        sheet.dot((x(trial.seconds), y(float(trial.best_value or 0.0))), f"dot {on_front}", tip)
    are = "is" if len(front) == 1 else "are"
    sentence = f"{len(front)} of {len(known)} trials {are} Pareto-optimal (cost against value), shown in orange."
    rows = [
        [t.number, show_seconds(t.seconds), f"{t.best_value:.6g}", state_of(t), format_config(t.config)] for t in front
    ]
    columns = ("trial", "seconds", f"best {history.metric}", "state", "configuration")
    return Figure("front", "Cost and value", sentence, str(sheet), columns, rows)


def clip_range(values: list[float], *, is_max: bool) -> tuple[float, float]:
    """Return the range to draw. Bad values far outside the middle half are drawn on its edge; good values never are."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return 0.0, 1.0
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    room = 3.0 * (high - low) or abs(high) * 0.05 or 1.0
    if is_max:
        return max(ordered[0], low - room), ordered[-1]
    return ordered[0], min(ordered[-1], high + room)


def choose_range(values: list[float], *, is_max: bool) -> tuple[float, float, bool]:
    """Return the range to draw, as `clip_range` does, and whether its axis is logarithmic."""
    finite = [value for value in values if math.isfinite(value)]
    if not spans_decades(finite, is_max=is_max):
        return *clip_range(finite, is_max=is_max), False
    low, high = clip_range([math.log(value) for value in finite], is_max=is_max)
    return math.exp(low), math.exp(high), True


def spans_decades(values: Sequence[float], *, is_max: bool) -> bool:
    """Return whether the values are positive and a linear axis would show most of them as one line.

    The best value is compared with the quartile of the bad values, because accuracies from 0.001 to 0.9 belong on a linear axis.
    """
    ordered = sorted(values)
    if not ordered or ordered[0] < _SMALLEST:
        return False
    bad = 3 * (len(ordered) - 1) // 4
    small, large = (ordered[-1 - bad], ordered[-1]) if is_max else (ordered[0], ordered[bad])
    return large >= _DECADES * small


def draw_timeline(history: StudyHistory) -> Figure | None:
    """Draw one row for each worker and one bar for each order."""
    done = [segment for segment in history.segments if segment.ended_s > segment.began_s]
    if not done:
        return None
    row_of = _assign_rows(done)
    names = sorted(set(row_of.values()), key=lambda name: (len(name), name))[:_MAX_ROWS]
    end = max(segment.ended_s for segment in done)
    sheet = Sheet(height=len(names) * (_ROW_HEIGHT + _GAP) + 44, label="training by worker and time")
    x = PlotAxis(0.0, end, LEFT, sheet.width - RIGHT)
    bottom = len(names) * (_ROW_HEIGHT + _GAP) + 6
    for tick in x.ticks():
        sheet.segment((x(tick), 2), (x(tick), bottom), "grid")
        sheet.text(x(tick), bottom + 15, show_seconds(tick), anchor="middle")
    for number, name in enumerate(names):
        sheet.text(LEFT - 6, number * (_ROW_HEIGHT + _GAP) + 20, name, anchor="end")
    busy = 0.0
    best = history.ledger.best
    for segment in done:
        row = row_of[id(segment)]
        busy += segment.ended_s - segment.began_s
        if row not in names:
            continue
        top = names.index(row) * (_ROW_HEIGHT + _GAP) + 4
        style = "best" if best is not None and segment.order.trial == best.number else segment.status
        left = x(segment.began_s)
        sheet.box(
            left, top, max(0.8, x(segment.ended_s) - left), _ROW_HEIGHT, f"bar {style}", segment_tip(history, segment)
        )
    sheet.text((LEFT + sheet.width) / 2, sheet.height - 4, "time of the study", "name", "middle")
    share = busy / (end * max(1, history.ledger.workers))
    sentence = f"The study took {show_seconds(end)}; workers were busy {min(1.0, share):.0%} of the time."
    rows = [
        [s.order.number, row_of[id(s)], s.order.trial, s.order.until, show_seconds(s.began_s), show_seconds(s.seconds)]
        for s in done[:MAX_TABLE_ROWS]
    ]
    columns = ("order", "worker", "trial", "to step", "started at", "took")
    return Figure("timeline", "What each worker trained", sentence, str(sheet), columns, rows)


def _assign_rows(segments: list[Segment]) -> dict[int, str]:
    """Return the row of each segment: its worker, or the first row that is free if no worker is named."""
    row_of: dict[int, str] = {}
    free_at: dict[str, float] = {}
    for segment in segments:
        name = segment.worker
        if not name:
            free = (known for known, at in free_at.items() if at <= segment.began_s + 1e-9)
            name = next(free, None) or str(len(free_at) + 1)
        free_at[name] = max(free_at.get(name, 0.0), segment.ended_s)
        row_of[id(segment)] = name
    return row_of
