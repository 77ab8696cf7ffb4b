"""What was to be done with a run, here and later: the plan of a stopping rule as a map, and the way that the run took on it."""

from __future__ import annotations

from itertools import groupby

import numpy as np

from shoestring.core.deciding.prediction import VERDICTS, Regions
from shoestring.reports.figures.decisions import draw_each
from shoestring.reports.figures.drawing import MOST_TABLE_ROWS, Figure, PlotAxis, Sheet, plot_area, show_number, why_tip
from shoestring.reports.figures.history import Recalled, Segment, Story
from shoestring.reports.figures.policy_figures import VERDICT_COLOURS

_MOST_COLUMNS = 150  # of boxes: a map of more steps shows every second, third, … of them


def draw_regions(story: Story) -> Figure | None:
    return draw_each(story, _draw)


def _draw(story: Story, segment: Segment, recalled: Recalled) -> Figure | None:
    regions = recalled.believed.regions
    if regions is None or not (regions.verdict >= 0).any():
        return None
    sheet = Sheet(height=340, label="what was to be done with the run, by step and by the mean of its values")
    left, right, bottom, top = plot_area(sheet)
    low, high = _range(regions)
    x = PlotAxis(float(regions.steps[0]) - 0.5, float(regions.steps[-1]) + 0.5, left, right)
    y = PlotAxis(low, high, bottom, top)
    every = -(-len(regions.steps) // _MOST_COLUMNS)
    for place in range(0, len(regions.steps), every):
        step = float(regions.steps[place])
        start, end = x(step - 0.5), x(step - 0.5 + every)
        for verdict, lower, upper in _stretches(regions, place):
            tip = f"step {step:g}: {VERDICTS[verdict]}\nmean from {show_number(lower)} to {show_number(upper)}"
            style = f"region fill-{VERDICT_COLOURS[verdict]}"
            sheet.box(start, y(upper), end - start, y(lower) - y(upper), style, tip)
    sheet.axes(x, y, "step", f"mean value since step {regions.steps[0] - 1}")
    way = [(x(float(step)), y(float(mean))) for step, mean in zip(regions.steps, regions.means, strict=False)]
    sheet.line(way, "join")
    sheet.dot(way[-1], "dot best", why_tip(segment, story.budget), 6.0)
    for number, name in enumerate(VERDICTS):
        sheet.text(right - 330 + 90 * number, 14, f"■ {name}", f"label fill-{VERDICT_COLOURS[number]}")
    columns = ("step", *(f"{name}: mean from, to" for name in VERDICTS))
    rows = [_row(regions, place) for place in range(len(regions.steps))][:MOST_TABLE_ROWS]
    return Figure("regions", "Where a run would be given up", _say(segment, regions), str(sheet), columns, rows)


def _range(regions: Regions) -> tuple[float, float]:
    """Of what the map tells something about, and of the run."""
    told = np.flatnonzero((regions.verdict >= 0).any(axis=0))
    low, high = float(regions.edges[told[0]]), float(regions.edges[told[-1] + 1])
    return min(low, float(regions.means.min())), max(high, float(regions.means.max()))


def _stretches(regions: Regions, place: int) -> list[tuple[int, float, float]]:
    """(verdict, from, to) of neighbouring cells with the same verdict."""
    found = []
    for verdict, cells in groupby(range(regions.verdict.shape[1]), key=lambda cell: int(regions.verdict[place, cell])):
        some = list(cells)
        if verdict >= 0:
            found.append((verdict, float(regions.edges[some[0]]), float(regions.edges[some[-1] + 1])))
    return found


def _row(regions: Regions, place: int) -> list[str]:
    told: dict[int, str] = {}
    for verdict, lower, upper in _stretches(regions, place):
        said = f"{show_number(lower)} – {show_number(upper)}"
        told[verdict] = f"{told[verdict]}, {said}" if verdict in told else said
    return [str(int(regions.steps[place])), *(told.get(verdict, "") for verdict in range(len(VERDICTS)))]


def _say(segment: Segment, regions: Regions) -> str:
    at = len(regions.means)
    return (
        f"Before order {segment.order.number}: trial {regions.trial} had come to step {regions.steps[at - 1]}, with a mean of "
        f"{show_number(float(regions.means[-1]))} since step {regions.steps[0] - 1}, where its futures were simulated. The "
        "colours say what the plan does with a run that comes there; where too few futures pass there is none, and it goes on."
    )
