"""The story of a study with what its policy believed at some decisions: asked again of the ledger as it was then."""

from __future__ import annotations

from collections.abc import Sequence

from shoestring import policies
from shoestring.core.deciding.prediction import Believed, Believing
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import PolicyError, StudyError
from shoestring.reports.figures.decisions import MOST_CHOICES, pick_decisions
from shoestring.reports.figures.history import Story, gather
from shoestring.study.blas import OneThread


def recall(name: str, ledger: Ledger, decisions: Sequence[int] = ()) -> Story:
    """`decisions`: numbers of orders, each of which must rest on a belief; none: a few telling ones, if there are any."""
    if len(set(decisions)) > MOST_CHOICES:
        raise StudyError(f"{len(set(decisions))} decisions are asked for: choose {MOST_CHOICES} at most")
    story = gather(name, ledger, believe_at, decisions or pick_decisions(ledger))
    for number in decisions:
        if not 0 <= number < len(ledger.orders):
            last = len(ledger.orders) - 1
            raise StudyError(f"decision {number}: there is no such order in {name!r}. Its orders are 0 to {last}")
        if number not in story.recalled:
            others = ", ".join(map(str, pick_decisions(ledger)))
            advice = f"try {others}" if others else "no order of this study does: leave it out"
            raise StudyError(f"decision {number}: this order of {ledger.books.policy} rests on no belief; {advice}")
    return story


def believe_at(ledger: Ledger, order: Order) -> Believed | None:
    """`ledger`: as it was before the order. None: this policy has no belief, this order rests on none, or nobody knows."""
    try:
        policy = policies.restore(ledger.books.policy, ledger.books.settings)
    except PolicyError:  # one that was passed as an object: a report can do without it
        return None
    with OneThread():  # as when it decided: threads only wait for one another on matrices this small
        return policy.believe(ledger, order) if isinstance(policy, Believing) else None
