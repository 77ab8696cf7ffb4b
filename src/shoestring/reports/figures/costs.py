"""Where the money went: by kind, against the best value, against what was predicted, and trial by trial.

Who worked on what, when: one lane a worker, one bar an order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from shoestring.core.ledger.budget import show_seconds
from shoestring.reports.facts import say_config, state_of
from shoestring.reports.figures.drawing import (
    LEFT,
    MOST_TABLE_ROWS,
    RIGHT,
    Figure,
    PlotAxis,
    Sheet,
    money_scale,
    plot_area,
    show_number,
    thin,
    value_scale,
    why_tip,
)
from shoestring.reports.figures.history import KINDS, NewBest, Segment, Story

_BAR_HEIGHT = 34.0
_EARLY = 0.02
_MOST_DOTS = 300  # on a line: more would touch each other


def draw_money(story: Story) -> Figure:
    """One bar: all seconds by what they went into."""
    seconds = {kind: amount for kind, amount in story.seconds.items() if amount > 0}
    total = math.fsum(seconds.values())
    rows_of_legend = math.ceil(len(seconds) / 4)
    sheet = Sheet(height=_BAR_HEIGHT + 30 + 20 * rows_of_legend, label="seconds by what they went into")
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
    spent = story.budget.show(story.ledger.spent)
    sentence = f"{spent} of {story.budget.show(story.budget.total)} spent; "
    sentence += (
        f"{useful / total:.0%} of the time went into training and validation." if total else "no time was spent."
    )
    rows = [[KINDS[kind], show_seconds(amount), f"{amount / total:.1%}"] for kind, amount in seconds.items()]
    return Figure("money", "Where the money went", sentence, str(sheet), ("kind", "time", "share"), rows)


def draw_best(story: Story) -> Figure | None:
    """The best value so far, against what had been spent."""
    if not story.bests:
        return None
    sheet = Sheet(label="best value against money")
    left, right, bottom, top = plot_area(sheet)
    x = money_scale(story.budget, max(story.ledger.spent, story.budget.total), left, right)
    y = value_scale(*range_of_bests([story]), bottom, top)
    sheet.axes(x, y, f"spent ({story.budget.unit})", "best value")
    points = [(x(spent), y(value)) for spent, value in staircase(story.bests, story.ledger.spent)]
    sheet.line(thin(points, 4 * _MOST_DOTS), "curve best")
    for best in [*story.bests[: -1 : math.ceil(len(story.bests) / _MOST_DOTS)], story.bests[-1]]:
        config = say_config(story.trials[best.trial].config)
        tip = f"{best.value:.6g} after {story.budget.show(best.spent)}\ntrial {best.trial}, step {best.step}\n{config}"
        sheet.dot((x(best.spent), y(best.value)), "dot best", tip)
    last = story.bests[-1]
    share = last.spent / story.ledger.spent if story.ledger.spent else 1.0
    sentence = f"The best value, {last.value:.6g}, came after {share:.0%} of what was spent."
    rows = [[story.budget.show(b.spent), f"{b.value:.6g}", b.trial, b.step] for b in story.bests]
    return Figure(
        "best",
        "What it bought",
        sentence,
        str(sheet),
        ("spent", "best value", "trial", "step"),
        rows[-MOST_TABLE_ROWS:],
    )


def range_of_bests(stories: Sequence[Story]) -> tuple[float, float]:
    """The range of the best values, without those of the first 2 % of the money: a first guess may be anything."""
    kept = []
    for story in stories:
        early = _EARLY * story.ledger.spent
        kept += [best.value for best in story.bests if best.spent >= early] or [story.bests[-1].value]
        kept += [best.value for best in story.bests if best.spent < early][-1:]
    return min(kept), max(kept)


def staircase(bests: list[NewBest], until: float) -> list[tuple[float, float]]:
    points = [(bests[0].spent, bests[0].value)]
    for before, best in pairwise(bests):
        points += [(best.spent, before.value), (best.spent, best.value)]
    return [*points, (max(until, bests[-1].spent), bests[-1].value)]


def draw_predicted(story: Story) -> Figure | None:
    """What orders were expected to cost, against what they cost: time and money only, epochs are exact."""
    known = [s for s in story.segments if s.order.expected_cost and s.cost > 0 and s.status in ("ok", "diverged")]
    if story.budget.unit == "epochs" or len(known) < 3:
        return None
    sheet = Sheet(label="expected cost against paid cost")
    left, right, bottom, top = plot_area(sheet)
    pairs = [(float(s.order.expected_cost or 0.0), s.cost) for s in known]
    low, high = min(map(min, pairs)), max(map(max, pairs))
    x, y = PlotAxis(low, high, left, right, log=True), PlotAxis(low, high, bottom, top, log=True)
    sheet.axes(x, y, f"expected ({story.budget.unit})", "paid")
    sheet.segment((x(low), y(low)), (x(high), y(high)), "guide")
    for segment, (expected, paid) in zip(known, pairs, strict=True):
        sheet.dot((x(expected), y(paid)), "dot", why_tip(segment, story.budget))
    within = sum(expected / 2 <= paid <= expected * 2 for expected, paid in pairs) / len(pairs)
    sentence = f"{within:.0%} of the orders cost between half and twice what was expected."
    rows = [[s.order.number, show_number(e), show_number(p)] for s, (e, p) in zip(known, pairs, strict=True)]
    columns = ("order", f"expected ({story.budget.unit})", "paid")
    return Figure("predicted", "Predicted and paid", sentence, str(sheet), columns, rows[:MOST_TABLE_ROWS])


def draw_front(story: Story) -> Figure | None:
    """Each trial's best value against its seconds; on the front nothing is both better and cheaper."""
    known = [trial for trial in story.trials if trial.best_value is not None and trial.seconds > 0]
    if len(known) < 3:
        return None
    sheet = Sheet(label="value against cost, trial by trial")
    left, right, bottom, top = plot_area(sheet)
    values = [float(trial.best_value or 0.0) for trial in known]
    low, high = clip_range(values, is_max=story.is_max)
    x = PlotAxis(min(t.seconds for t in known), max(t.seconds for t in known), left, right, log=True)
    y = value_scale(low, high, bottom, top)
    sheet.axes(x, y, "seconds of the trial", "its best value", lambda s: show_seconds(s))
    front, best = [], math.inf
    for trial in sorted(known, key=lambda t: (t.seconds, t.best_loss)):
        if trial.best_loss < best:
            best = trial.best_loss
            front.append(trial)
    sheet.line([(x(t.seconds), y(float(t.best_value or 0.0))) for t in front], "guide")
    for trial in known:
        on_front = "best" if trial in front else ""
        tip = f"trial {trial.number}: {trial.best_value:.6g} for {show_seconds(trial.seconds)}\n{say_config(trial.config)}"
        sheet.dot((x(trial.seconds), y(float(trial.best_value or 0.0))), f"dot {on_front}", tip)
    sentence = f"{len(front)} of {len(known)} trials have no other that is both better and cheaper."
    rows = [
        [t.number, show_seconds(t.seconds), f"{t.best_value:.6g}", state_of(t), say_config(t.config)] for t in front
    ]
    columns = ("trial", "seconds", "best value", "state", "config")
    return Figure("front", "Cost and quality", sentence, str(sheet), columns, rows)


def clip_range(values: list[float], *, is_max: bool) -> tuple[float, float]:
    """The range to draw. Bad values far outside the middle half are put on its edge; good ones never are."""
    ordered = sorted(value for value in values if math.isfinite(value))
    if not ordered:
        return 0.0, 1.0
    low, high = ordered[len(ordered) // 4], ordered[(3 * len(ordered)) // 4]
    room = 3.0 * (high - low) or abs(high) * 0.05 or 1.0
    if is_max:
        return max(ordered[0], low - room), ordered[-1]
    return ordered[0], min(ordered[-1], high + room)


_LANE, _GAP = 22.0, 6.0
_MOST_LANES = 64


def draw_timeline(story: Story) -> Figure | None:
    done = [segment for segment in story.segments if segment.ended_s > segment.began_s]
    if not done:
        return None
    lanes = _lanes(done)
    names = sorted(set(lanes.values()), key=lambda name: (len(name), name))[:_MOST_LANES]
    end = max(segment.ended_s for segment in done)
    sheet = Sheet(height=len(names) * (_LANE + _GAP) + 44, label="orders by worker and time")
    x = PlotAxis(0.0, end, LEFT, sheet.width - RIGHT)
    bottom = len(names) * (_LANE + _GAP) + 6
    for tick in x.ticks():
        sheet.segment((x(tick), 2), (x(tick), bottom), "grid")
        sheet.text(x(tick), bottom + 15, show_seconds(tick), anchor="middle")
    for number, name in enumerate(names):
        sheet.text(LEFT - 6, number * (_LANE + _GAP) + 20, name, anchor="end")
    busy = 0.0
    best = story.ledger.best
    for segment in done:
        lane = lanes[id(segment)]
        busy += segment.ended_s - segment.began_s
        if lane not in names:
            continue
        top = names.index(lane) * (_LANE + _GAP) + 4
        style = "best" if best is not None and segment.order.trial == best.number else segment.status
        left = x(segment.began_s)
        sheet.box(left, top, max(0.8, x(segment.ended_s) - left), _LANE, f"bar {style}", why_tip(segment, story.budget))
    sheet.text((LEFT + sheet.width) / 2, sheet.height - 4, "time of the study", "name", "middle")
    share = busy / (end * max(1, story.ledger.workers))
    sentence = f"{len(done)} orders in {show_seconds(end)}; workers were busy {min(1.0, share):.0%} of the time."
    rows = [
        [s.order.number, lanes[id(s)], s.order.trial, s.order.until, show_seconds(s.began_s), show_seconds(s.seconds)]
        for s in done[:MOST_TABLE_ROWS]
    ]
    columns = ("order", "worker", "trial", "to step", "began at", "took")
    return Figure("timeline", "Who worked on what", sentence, str(sheet), columns, rows)


def _lanes(segments: list[Segment]) -> dict[int, str]:
    """The lane of each order: its worker, or where none is named the first lane that is free."""
    lanes: dict[int, str] = {}
    free_at: dict[str, float] = {}
    for segment in segments:
        name = segment.worker
        if not name:
            free = (known for known, at in free_at.items() if at <= segment.began_s + 1e-9)
            name = next(free, None) or str(len(free_at) + 1)
        free_at[name] = max(free_at.get(name, 0.0), segment.ended_s)
        lanes[id(segment)] = name
    return lanes
