"""Which entries close an order: the study's state, the views and the simulated runner all agree, also at the third death.

The state follows the open orders in accounting.py, the others follow them with `OpenOrders`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thoroughness import repetitions

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.order_closing import OpenOrders
from shoestring.core.ledger.views import BetweenStops
from shoestring.core.space.space import Space
from shoestring.runners.simulated.simulated_runner import assign_workers

SPACE = Space({"x": {"float": [0.0, 1.0]}})
UNFINISHED = ("failed", "diverged", "interrupted")
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


@settings(max_examples=repetitions(100, thorough=1000))
@given(st.data())
def test_the_state_and_open_orders_agree_after_every_entry(data: st.DataObject) -> None:
    ledger, open_orders = make_ledger([]), OpenOrders()
    for entry in ledger.entries():
        open_orders.absorb(entry)
    for _ in range(data.draw(st.integers(1, 40), label="entries")):
        kinds = [entries for entries in possible_entries(ledger) if entries]  # as many deaths as orders and receipts
        entry, before = data.draw(st.sampled_from(kinds).flatmap(st.sampled_from)), set(ledger.open_orders)
        closed, ledger = open_orders.absorb(entry), ledger.append(entry)
        now = set(ledger.open_orders)
        assert set(open_orders.by_number) == now
        assert {one.number for one in [closed] if one is not None} == before - now


def possible_entries(ledger: Ledger) -> list[list[Entry]]:
    """Return by kind the entries of two trials that the ledger accepts now."""
    trials, number = ledger.trials, len(ledger.orders)
    deaths: list[Entry] = [replace(DEATH, trial=one.number, resumable_step=one.resumable_step) for one in trials]
    orders: list[Entry] = [order(number, one.number, one.steps + 2) for one in trials if one.open_order is None]
    losses: list[Entry] = [StateLoss(trial=one.number, resumable_step=0) for one in trials]
    receipts, others = list[Entry](), list[Entry]()
    for one in (each.order for each in ledger.open_orders.values()):
        step = trials[one.trial].resumable_step + 1
        receipts.append(receipt(one.number, one.trial, step))
        others += [receipt(one.number, one.trial, step, value=None, status=status) for status in UNFINISHED]
        others.append(Note(topic="ended", facts={"order": one.number, "trial": one.trial, "step": step - 1}))
    others += [Note(topic="released", facts={"order": one}) for one in range(number)]  # among them closed orders
    return [deaths, deaths, orders, orders, receipts, losses, others]


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
