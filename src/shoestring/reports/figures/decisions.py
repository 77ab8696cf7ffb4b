"""Decisions that are looked at again: which ones, and one figure that shows one of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shoestring.core.ledger.ledger import Ledger
from shoestring.reports.figures.drawing import Figure
from shoestring.reports.figures.history import Recalled, Segment, Story

# Of `why`: numbers that only a belief gives. An order without any of them was placed by a design, a race or the user.
_SIGNS = ("mu", "expected_end", "forecast", "asymptote", "information", "stages", "ei", "mean", "statistic")
MOST_CHOICES = 6  # of one figure: as many as the page's style has rules for


def pick_decisions(ledger: Ledger) -> list[int]:
    """Of the orders that rest on a belief: the first that went on with the best trial, the one in the middle, the last."""
    told = [order.number for order in ledger.orders if any(sign in order.why for sign in _SIGNS)]
    if not told:
        return []
    best = ledger.best
    opened = best.step_orders[0] if best is not None else 0
    went_on = [n for n in told if best is not None and ledger.orders[n].trial == best.number and n > opened]
    return sorted({*went_on[:1], told[len(told) // 2], told[-1]})


def draw_each(story: Story, draw: Callable[[Story, Segment, Recalled], Figure | None]) -> Figure | None:
    """The figure of the first decision that has one, since most came after it, and those of the others to choose from."""
    figures = []
    for number, recalled in sorted(story.recalled.items()):
        segment = story.segments[number]
        if (figure := draw(story, segment, recalled)) is not None:
            figures.append(replace(figure, choice=f"order {number}"))
    return replace(figures[0], others=figures[1:]) if figures else None
