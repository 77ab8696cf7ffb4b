"""Which entries close an order: the study's state, the views and the simulated runner all agree, also at the third death."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.order_closing import OpenOrders
from shoestring.core.ledger.views import BetweenStops
from shoestring.core.space.space import Space
from shoestring.runners.simulated.simulated_runner import assign_workers

SPACE = Space({"x": {"float": [0.0, 1.0]}})
DEATH = StateLoss(trial=0, resumable_step=0, seconds=1.0, why="killed", death=True)


def order(number: int, trial: int, until: int = 4) -> Order:
    return Order(number=number, trial=trial, config={"x": 0.5}, until=until)


def receipt(number: int, trial: int, step: int, **more: Any) -> Receipt:
    return Receipt(**{"order": number, "trial": trial, "step": step, "value": 1.0, **more})


def make_ledger(entries: Iterable[Entry]) -> Ledger:
    definition = StudyDefinition(
        space=SPACE, budget=Budget("100 epochs"), policy="asha", settings={}, seed=1, max_steps=9, workers=2
    )
    return Ledger([definition, order(0, 0), order(1, 1), *entries])


CASES: dict[str, tuple[list[Entry], set[int]]] = {
    "no entry": ([], {0, 1}),
    "its last step": ([receipt(1, 1, step) for step in range(1, 5)], {0}),
    "not its last step": ([receipt(1, 1, 1)], {0, 1}),
    "a failure": ([receipt(1, 1, 1, value=None, status="failed", text="broken")], {0}),
    "the budget limit": ([receipt(1, 1, 1, value=None, status="interrupted")], {0}),
    "divergence": ([receipt(1, 1, 1, value=None, status="diverged")], {0}),
    "its own end": ([receipt(1, 1, 1), Note(topic="ended", facts={"order": 1, "trial": 1, "step": 1})], {0}),
    "given up": ([Note(topic="released", facts={"order": 1})], {0}),
    "two deaths": ([DEATH, DEATH], {0, 1}),
    "the third death": ([DEATH, DEATH, DEATH], {1}),
    "two deaths, a step, two deaths": ([DEATH, DEATH, receipt(0, 0, 1), DEATH, DEATH], {0, 1}),
    "a step that is trained again is no progress": (
        [receipt(0, 0, 1), DEATH, receipt(0, 0, 1), DEATH, receipt(0, 0, 1), DEATH],
        {1},
    ),
    "losses without a death": ([StateLoss(trial=0, resumable_step=0) for _ in range(3)], {0, 1}),
    "the third death of another order": ([DEATH, DEATH, DEATH, order(2, 0), DEATH, DEATH], {1, 2}),
    "three deaths twice": ([DEATH, DEATH, DEATH, order(2, 0), DEATH, DEATH, DEATH], {1}),
}


@pytest.mark.parametrize("name", CASES)
def test_an_order_is_closed_by_its_last_entry_and_by_the_third_death(name: str) -> None:
    entries, expected = CASES[name]
    ledger = make_ledger(entries)
    open_orders = OpenOrders()
    for entry in ledger.entries():
        open_orders.absorb(entry)
    assert set(ledger.open_orders) == expected
    assert set(open_orders.by_number) == expected


@pytest.mark.parametrize("name", CASES)
def test_a_simulated_worker_is_free_when_its_order_is_closed(name: str) -> None:
    entries, expected = CASES[name]
    assert set(assign_workers(make_ledger(entries), 3)) == expected


def test_the_third_death_is_when_a_trial_is_no_longer_between_stops() -> None:
    view = BetweenStops((4,))
    assert view_of(make_ledger([DEATH, DEATH]), view) == ({0, 1}, set())
    assert view_of(make_ledger([DEATH, DEATH, DEATH]), view) == ({1}, set())
    assert view_of(make_ledger([Note(topic="released", facts={"order": 0})]), view) == ({0, 1}, {0})


def view_of(ledger: Ledger, view: BetweenStops) -> tuple[set[int], set[int]]:
    """Return the trials between stops, and those of them that are idle."""
    found = ledger.view(view)
    return set(found.since), found.idle
