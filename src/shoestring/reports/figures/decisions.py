"""Draw single decisions: which decisions are shown, their candidates, and the map of a stopping rule.

`predicted_curves` draws what was predicted at a decision, and what happened afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import groupby

import numpy as np

from shoestring.core.deciding.prediction import STOPPING_ACTIONS, CandidateScores, Regions
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Indices
from shoestring.reports.facts import format_config
from shoestring.reports.figures.drawing import (
    MAX_TABLE_ROWS,
    Figure,
    PlotAxis,
    Sheet,
    plot_area,
    segment_tip,
    show_number,
)
from shoestring.reports.figures.history import PastPrediction, Segment, StudyHistory

# Numbers in `why` that only a model gives. An order without any of them was placed by a design, a race or the user.
_MODEL_NUMBERS = ("mu", "forecast", "asymptote", "information", "stages", "ei", "mean", "statistic", "expected_share")
MAX_CHOICES = 6  # of one figure: page.css has rules for six
ACTION_COLOURS = (1, 5, 2)  # numbers of the classes `fill-N`, in the order of STOPPING_ACTIONS

_MAX_DOTS = 300
_SMALLEST_SHARE = 1e-3  # of the largest improvement: smaller improvements are drawn on the lower edge
_MAX_COLUMNS = 150  # a map with more steps shows every second, third, … of them


def pick_decisions(ledger: Ledger) -> list[int]:
    """Return three orders that rest on a model: the first that continued the best trial, the middle one and the last."""
    by_model = [order.number for order in ledger.orders if _is_by_model(order)]
    if not by_model:
        return []
    best = ledger.best
    first_order = best.step_orders[0] if best is not None else 0
    continued = [n for n in by_model if best is not None and ledger.orders[n].trial == best.number and n > first_order]
    return sorted({*continued[:1], by_model[len(by_model) // 2], by_model[-1]})


def _is_by_model(order: Order) -> bool:
    """Return whether a model chose at this order; with `chosen_at`, its configuration was chosen at an earlier one."""
    return "chosen_at" not in order.why and any(name in order.why for name in _MODEL_NUMBERS)


def draw_each(
    history: StudyHistory, draw: Callable[[StudyHistory, Segment, PastPrediction], Figure | None]
) -> Figure | None:
    """Return the figure of the first decision that has one, with the figures of the other decisions as choices."""
    figures = []
    for number, prediction in sorted(history.predictions.items()):
        segment = history.segments[number]
        if (figure := draw(history, segment, prediction)) is not None:
            figures.append(replace(figure, choice=f"order {number}"))
    return replace(figures[0], others=figures[1:]) if figures else None


# candidates -----------------------------------------------------------------------------------------------------------


def draw_candidates(history: StudyHistory) -> Figure | None:
    """Draw the candidates of a cost-aware decision: expected improvement against predicted cost, and the Pareto front."""
    return draw_each(history, _draw_candidates)


def _draw_candidates(history: StudyHistory, segment: Segment, past: PastPrediction) -> Figure | None:
    scores = past.prediction.candidate_scores
    if scores is None or not scores.gain.max() > 0.0 or np.ptp(scores.cost) <= 1e-9 * scores.cost.max():
        return None  # no improvement is expected, or all candidates cost the same
    unit = history.budget.unit
    sheet = Sheet(height=360, label="expected improvement against predicted cost of all candidates")
    left, right, bottom, top = plot_area(sheet)
    least, most = max(float(scores.gain.min()), _SMALLEST_SHARE * float(scores.gain.max())), float(scores.gain.max())
    x = PlotAxis(float(scores.cost.min()), float(scores.cost.max()), left, right, log=True)
    y = PlotAxis(least, most, bottom, top, log=True)
    sheet.axes(x, y, f"predicted cost ({unit})", "expected improvement")
    if scores.least is not None and scores.least > least:
        line = (left, y(scores.least)), (right, y(scores.least))
        sheet.segment(*line, "guide", "candidates above this line have enough expected improvement")

    def place(one: int) -> tuple[float, float]:
        return x(float(scores.cost[one])), y(float(scores.gain[one]))

    front = scores.front[np.argsort(scores.cost[scores.front], kind="stable")]
    for one in _thin_candidates(scores):
        sheet.dot(place(one), "dot fill-s2", _candidate_tip(scores, one, unit), 2.0)
    sheet.line([place(int(one)) for one in front], "curve shade-5")
    for one in front[:_MAX_DOTS].tolist():
        sheet.dot(place(one), "dot fill-s5", _candidate_tip(scores, one, unit), 2.5)
    if scores.runner_up is not None:
        sheet.dot(
            place(scores.runner_up), "fill-3", f"runner-up\n{_candidate_tip(scores, scores.runner_up, unit)}", 5.0
        )
    sheet.dot(place(scores.chosen), "dot best", segment_tip(history, segment), 6.0)
    for number, (name, style) in enumerate((("chosen", "fill-0"), ("runner-up", "fill-3"), ("Pareto front", "fill-1"))):
        sheet.text(right - 230 + 75 * number, 14, f"● {name}", f"label {style}")
    columns = ("", f"predicted cost ({unit})", "expected improvement", "configuration")
    sentence = _describe_choice(segment, scores)
    return Figure(
        "candidates", "The candidates of a decision", sentence, str(sheet), columns, _list_candidates(scores, front)
    )


def _describe_choice(segment: Segment, scores: CandidateScores) -> str:
    gain, cost, at = scores.gain, scores.cost, scores.chosen
    top = int(np.argmax(gain))
    head = (
        f"Order {segment.order.number} was chosen from {len(gain)} candidates, {len(scores.front)} of them Pareto-optimal "
        "(predicted cost against expected improvement)."
    )
    on_edge = np.count_nonzero(gain < _SMALLEST_SHARE * gain[top])
    edge = f" {on_edge} with almost no expected improvement are drawn on the lower edge." if on_edge else ""
    if at == top:
        return f"{head} It has the largest expected improvement.{edge}"
    share, price = gain[at] / gain[top], cost[at] / cost[top]
    return (
        f"{head} It has {share:.0%} of the largest expected improvement at {price:.0%} of that candidate's cost.{edge}"
    )


def _thin_candidates(scores: CandidateScores) -> list[int]:
    """Return the candidates that are not on the front; if they are too many, an even selection of them."""
    others = np.setdiff1d(np.arange(len(scores.gain)), scores.front)
    room = max(0, _MAX_DOTS - len(scores.front))
    some: Indices = others if len(others) <= room else others[np.linspace(0, len(others) - 1, room).astype(int)]
    return [int(one) for one in some]


def _candidate_tip(scores: CandidateScores, one: int, unit: str) -> str:
    gain, cost = show_number(float(scores.gain[one])), show_number(float(scores.cost[one]))
    return f"expected improvement {gain}, predicted cost {cost} {unit}\n{format_config(scores.config(one))}"


def _list_candidates(scores: CandidateScores, front: Indices) -> list[list[str]]:
    roles = {scores.chosen: "chosen"}
    if scores.runner_up is not None:
        roles[scores.runner_up] = "runner-up"
    roles |= {one: roles.get(one, "Pareto front") for one in front.tolist()}
    return [
        [
            role,
            show_number(float(scores.cost[one])),
            show_number(float(scores.gain[one])),
            format_config(scores.config(one)),
        ]
        for one, role in list(roles.items())[:MAX_TABLE_ROWS]
    ]


# the map of a stopping rule -------------------------------------------------------------------------------------------


def draw_regions(history: StudyHistory) -> Figure | None:
    """Draw the plan of a stopping rule as a map of steps and mean values, with the path of the trial on it."""
    return draw_each(history, _draw_regions)


def _draw_regions(history: StudyHistory, segment: Segment, past: PastPrediction) -> Figure | None:
    regions = past.prediction.regions
    if regions is None or not (regions.action >= 0).any():
        return None
    sheet = Sheet(height=340, label="action of the stopping rule by step and by the mean of the trial's values")
    left, right, bottom, top = plot_area(sheet)
    low, high = _range_of_regions(regions)
    x = PlotAxis(float(regions.steps[0]) - 0.5, float(regions.steps[-1]) + 0.5, left, right)
    y = PlotAxis(low, high, bottom, top)
    every = -(-len(regions.steps) // _MAX_COLUMNS)
    for place in range(0, len(regions.steps), every):
        step = float(regions.steps[place])
        start, end = x(step - 0.5), x(step - 0.5 + every)
        for action, lower, upper in _list_stretches(regions, place):
            tip = f"step {step:g}: {STOPPING_ACTIONS[action]}\nmean from {show_number(lower)} to {show_number(upper)}"
            style = f"region fill-{ACTION_COLOURS[action]}"
            sheet.box(start, y(upper), end - start, y(lower) - y(upper), style, tip)
    sheet.axes(x, y, "step", f"mean value since step {regions.steps[0] - 1}")
    path = [(x(float(step)), y(float(mean))) for step, mean in zip(regions.steps, regions.means, strict=False)]
    sheet.line(path, "join")
    sheet.dot(path[-1], "dot best", segment_tip(history, segment), 6.0)
    for number, name in enumerate(STOPPING_ACTIONS):
        sheet.text(right - 330 + 90 * number, 14, f"■ {name}", f"label fill-{ACTION_COLOURS[number]}")
    columns = ("step", *(f"{name}: mean from, to" for name in STOPPING_ACTIONS))
    rows = [_list_means(regions, place) for place in range(len(regions.steps))][:MAX_TABLE_ROWS]
    return Figure(
        "regions", "Where a trial would be stopped", _describe_map(segment, regions), str(sheet), columns, rows
    )


def _range_of_regions(regions: Regions) -> tuple[float, float]:
    """Return the range of means that the map covers or the trial had."""
    covered = np.flatnonzero((regions.action >= 0).any(axis=0))
    low, high = float(regions.edges[covered[0]]), float(regions.edges[covered[-1] + 1])
    return min(low, float(regions.means.min())), max(high, float(regions.means.max()))


def _list_stretches(regions: Regions, place: int) -> list[tuple[int, float, float]]:
    """Return (action, from, to) for each stretch of neighbouring cells with the same action."""
    found = []
    for action, cells in groupby(range(regions.action.shape[1]), key=lambda cell: int(regions.action[place, cell])):
        some = list(cells)
        if action >= 0:
            found.append((action, float(regions.edges[some[0]]), float(regions.edges[some[-1] + 1])))
    return found


def _list_means(regions: Regions, place: int) -> list[str]:
    ranges: dict[int, str] = {}
    for action, lower, upper in _list_stretches(regions, place):
        text = f"{show_number(lower)} – {show_number(upper)}"
        ranges[action] = f"{ranges[action]}, {text}" if action in ranges else text
    return [str(int(regions.steps[place])), *(ranges.get(action, "") for action in range(len(STOPPING_ACTIONS)))]


def _describe_map(segment: Segment, regions: Regions) -> str:
    at, first = len(regions.means), regions.steps[0] - 1
    return (
        f"Before order {segment.order.number}, trial {regions.trial} had reached step {regions.steps[at - 1]}; its mean "
        f"value since step {first} was {show_number(float(regions.means[-1]))}. Its futures were simulated at step {first}. "
        "The colours show the action for a trial that gets there. Where there is no colour, too few simulated curves pass, "
        "and the trial continues."
    )
