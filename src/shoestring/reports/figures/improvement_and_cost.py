"""What a cost-aware decision could have bought: expected improvement against predicted cost, and the front of the two."""

from __future__ import annotations

import numpy as np

from shoestring.core.deciding.prediction import Offers
from shoestring.core.values.arrays import Indices
from shoestring.reports.facts import say_config
from shoestring.reports.figures.decisions import draw_each
from shoestring.reports.figures.drawing import MOST_TABLE_ROWS, Figure, PlotAxis, Sheet, plot_area, show_number, why_tip
from shoestring.reports.figures.history import Recalled, Segment, Story

_MOST_DOTS = 300
_LEAST = 1e-3  # of the largest improvement: what promises less stands on the lower edge


def draw_offers(story: Story) -> Figure | None:
    return draw_each(story, _draw)


def _draw(story: Story, segment: Segment, recalled: Recalled) -> Figure | None:
    offers = recalled.believed.offers
    if offers is None or not offers.gain.max() > 0.0 or np.ptp(offers.cost) <= 1e-9 * offers.cost.max():
        return None  # nothing is promised, or all cost the same
    unit = story.budget.unit
    sheet = Sheet(height=360, label="expected improvement against predicted cost of all candidates")
    left, right, bottom, top = plot_area(sheet)
    least, most = max(float(offers.gain.min()), _LEAST * float(offers.gain.max())), float(offers.gain.max())
    x = PlotAxis(float(offers.cost.min()), float(offers.cost.max()), left, right, log=True)
    y = PlotAxis(least, most, bottom, top, log=True)
    sheet.axes(x, y, f"predicted cost ({unit})", "expected improvement")
    if offers.least is not None and offers.least > least:
        sheet.segment((left, y(offers.least)), (right, y(offers.least)), "guide", "promises enough from here on")

    def place(one: int) -> tuple[float, float]:
        return x(float(offers.cost[one])), y(float(offers.gain[one]))

    front = offers.front[np.argsort(offers.cost[offers.front], kind="stable")]
    for one in _thin(offers):
        sheet.dot(place(one), "dot fill-s2", _tip(offers, one, unit), 2.0)
    sheet.line([place(int(one)) for one in front], "curve shade-5")
    for one in front[:_MOST_DOTS].tolist():
        sheet.dot(place(one), "dot fill-s5", _tip(offers, one, unit), 2.5)
    if offers.runner_up is not None:
        sheet.dot(place(offers.runner_up), "fill-3", f"runner-up\n{_tip(offers, offers.runner_up, unit)}", 5.0)
    sheet.dot(place(offers.chosen), "dot best", why_tip(segment, story.budget), 6.0)
    for number, (name, style) in enumerate((("bought", "fill-0"), ("runner-up", "fill-3"), ("front", "fill-1"))):
        sheet.text(right - 190 + 75 * number, 14, f"● {name}", f"label {style}")
    columns = ("", f"predicted cost ({unit})", "expected improvement", "config")
    title = "What could have been bought"
    return Figure("offers", title, _say(segment, offers), str(sheet), columns, _rows(offers, front))


def _say(segment: Segment, offers: Offers) -> str:
    gain, cost, at = offers.gain, offers.cost, offers.chosen
    top = int(np.argmax(gain))
    head = (
        f"Before order {segment.order.number}: {len(gain)} candidates, {len(offers.front)} of them on the front, where "
    )
    head += "nothing promises more for less. "
    hopeless = np.count_nonzero(gain < _LEAST * gain[top])
    edge = f" {hopeless} promise next to nothing and stand on the lower edge." if hopeless else ""
    if at == top:
        return f"{head}The one that promises most was bought.{edge}"
    share, price = gain[at] / gain[top], cost[at] / cost[top]
    return f"{head}The one bought promises {share:.0%} of the largest improvement for {price:.0%} of its price.{edge}"


def _thin(offers: Offers) -> list[int]:
    """Candidates beside the front, evenly over all that there are."""
    others = np.setdiff1d(np.arange(len(offers.gain)), offers.front)
    room = max(0, _MOST_DOTS - len(offers.front))
    kept: Indices = others if len(others) <= room else others[np.linspace(0, len(others) - 1, room).astype(int)]
    return [int(one) for one in kept]


def _tip(offers: Offers, one: int, unit: str) -> str:
    gain, cost = show_number(float(offers.gain[one])), show_number(float(offers.cost[one]))
    return f"improvement {gain} for {cost} {unit}\n{say_config(offers.config(one))}"


def _rows(offers: Offers, front: Indices) -> list[list[str]]:
    listed = {offers.chosen: "bought"}
    if offers.runner_up is not None:
        listed[offers.runner_up] = "runner-up"
    listed |= {one: listed.get(one, "front") for one in front.tolist()}
    return [
        [
            role,
            show_number(float(offers.cost[one])),
            show_number(float(offers.gain[one])),
            say_config(offers.config(one)),
        ]
        for one, role in list(listed.items())[:MOST_TABLE_ROWS]
    ]
