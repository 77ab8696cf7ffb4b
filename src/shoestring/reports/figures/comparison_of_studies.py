"""Several studies in one picture: the best value against money, by policy, with intervals where a policy has several seeds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from shoestring.core.ledger.budget import Budget
from shoestring.core.values.arrays import Floats
from shoestring.reports.figures.costs import range_of_bests, staircase
from shoestring.reports.figures.drawing import Figure, PlotAxis, Sheet, money_scale, plot_area, value_scale
from shoestring.reports.figures.history import Story

_COLOURS = 6
_GRID = 120  # places along the money axis where means are taken
_ENOUGH = 3  # studies of one policy for a mean and an interval
_REPEATS = 500


def draw_comparison(stories: Sequence[Story], *, title: str = "Side by side", caution: str = "") -> Figure | None:
    """`caution`: what the reader must know, such as how much of a replay is missing."""
    with_value = [story for story in stories if story.bests]
    units = Counter(story.budget.unit for story in with_value)
    known = [story for story in with_value if story.budget.unit == units.most_common(1)[0][0]]  # coins do not compare
    if len(known) < 2:
        return None
    budget = known[0].budget
    sheet = Sheet(height=340, label="best value against money, by policy")
    left, right, bottom, top = plot_area(sheet)
    x = money_scale(budget, max(story.ledger.spent for story in known), left, right)
    y = value_scale(*range_of_bests(known), bottom, top)
    sheet.axes(x, y, f"spent ({budget.unit})", "best value")
    groups: dict[str, list[Story]] = {}
    for story in known:
        groups.setdefault(story.books.policy, []).append(story)
    rows = []
    for number, (policy, members) in enumerate(groups.items()):
        colour = number % _COLOURS
        if len(members) >= _ENOUGH:
            _draw_mean(sheet, members, x, y, colour)
        else:
            for story in members:
                points = [(x(spent), y(value)) for spent, value in staircase(story.bests, story.ledger.spent)]
                sheet.line(points, f"curve line-{colour}", f"{story.name} ({policy}): {story.bests[-1].value:.6g}")
        sheet.text(right - 6, top + 14 + 16 * number, f"{policy} ({len(members)})", f"label fill-{colour}", "end")
        rows.append(_row(policy, members, budget))
    best_policy = min(groups, key=lambda name: np.mean([member.books.best_loss for member in groups[name]]))
    many = f"Bands are 95 % intervals of the mean where a policy has {_ENOUGH} studies or more."
    left_out = (
        f" {len(stories) - len(known)} without a value or with another coin are left out."
        if len(stories) > len(known)
        else ""
    )
    said = f"{best_policy} ends best in the mean of {len(known)} runs.{left_out}"
    has_bands = any(len(members) >= _ENOUGH for members in groups.values())
    sentence = " ".join(filter(None, (said, many if has_bands else "", caution)))
    columns = ("policy", "studies", "mean of the best values", "from", "to", "mean spent")
    return Figure("comparison", title, sentence, str(sheet), columns, rows)


def _draw_mean(sheet: Sheet, members: Sequence[Story], x: PlotAxis, y: PlotAxis, colour: int) -> None:
    begin = max(story.bests[0].spent for story in members)
    end = min(story.ledger.spent for story in members)
    places = np.linspace(begin, max(begin, end), _GRID)
    curves = np.array([values_at(story, places) for story in members])
    mean = curves.mean(axis=0)
    low, high = interval(curves)
    band = [(x(float(p)), y(float(v))) for p, v in zip(places, low, strict=True)]
    band += [(x(float(p)), y(float(v))) for p, v in zip(places[::-1], high[::-1], strict=True)]
    sheet.line(band, f"band fill-{colour}")
    tip = f"{members[0].books.policy}: mean of {len(members)}, {mean[-1]:.6g}"
    sheet.line([(x(float(p)), y(float(v))) for p, v in zip(places, mean, strict=True)], f"curve line-{colour}", tip)


def values_at(story: Story, places: Floats) -> Floats:
    """The best value so far at each amount of money; the first one before it came."""
    spent = np.array([best.spent for best in story.bests])
    values = np.array([best.value for best in story.bests])
    return values[np.maximum(0, np.searchsorted(spent, places, side="right") - 1)]


def interval(curves: Floats) -> tuple[Floats, Floats]:
    """95 % bootstrap interval of the mean over studies, at each place; curves: (studies, places)."""
    rng = np.random.default_rng(0)
    rows = rng.integers(len(curves), size=(_REPEATS, len(curves)))
    low, high = np.quantile(curves[rows].mean(axis=1), (0.025, 0.975), axis=0)
    return low, high


def _row(policy: str, members: Sequence[Story], budget: Budget) -> list[str]:
    ends = np.array([[story.bests[-1].value] for story in members])
    low, high = (float(end[0]) for end in interval(ends)) if len(members) > 1 else (float("nan"), float("nan"))
    spent = budget.show(float(np.mean([story.ledger.spent for story in members])))
    shown = [f"{low:.6g}", f"{high:.6g}"] if len(members) > 1 else ["–", "–"]
    return [policy, str(len(members)), f"{ends.mean():.6g}", *shown, spent]
