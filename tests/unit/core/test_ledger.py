"""The ledger itself: descent, forks, randomness by number of orders. Its views and money have tests of their own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import StudyError

OPENED = Opened(
    space=Space({"x": Float(0, 1)}),
    budget=Budget("1000000 epochs"),
    policy="p",
    settings={},
    seed=5,
    max_steps=3,
    workers=2,
)


def order(number: int, **more: Any) -> Order:
    return Order(number=number, trial=number, config={"x": 0.5}, until=1, **more)


def test_a_ledger_begins_with_what_the_study_is() -> None:
    ledger = Ledger([OPENED])
    assert (ledger.space, ledger.max_steps, ledger.workers, ledger.budget) == (OPENED.space, 3, 2, OPENED.budget)
    assert (ledger.best, ledger.memo, list(ledger.trials), ledger.spent) == (None, {}, [], 0)
    wrong: list[list[Entry]] = [[], [order(0)], [Note(topic="x"), OPENED]]
    for entries in wrong:
        with pytest.raises(StudyError, match="begins with"):
            Ledger(entries)


def test_entries_are_only_added() -> None:
    first = Ledger([OPENED])
    second = first.append(order(0))
    third = second.append(order(1))
    assert (len(first), len(second), len(third)) == (1, 2, 3)
    assert second.entries() == [OPENED, order(0)]
    assert third.entries(2) == [order(1)]
    taken = third.entries()
    taken.clear()
    assert len(third.entries()) == 3


def test_a_second_successor_has_entries_of_its_own() -> None:
    base = Ledger([OPENED]).append(order(0))
    left, right = base.append(order(1)), base.append(Note(topic="released", facts={"order": 0}))
    assert left.entries()[:2] == right.entries()[:2] == base.entries()
    assert (left.entries()[2].kind, right.entries()[2].kind) == ("order", "note")
    assert left.append(order(2)).orders[-1].number == 2
    assert list(right.open_orders) == []
    assert list(left.open_orders) == [0, 1]


def test_a_fork_is_the_ledger_as_it_was() -> None:
    ledger = Ledger([OPENED])
    for number in range(4):
        ledger = ledger.append(order(number))
    for count in range(1, 6):
        assert len(ledger.fork(count).trials) == count - 1
    assert len(ledger.fork(99)) == 5
    assert ledger.fork(3).append(order(2)).entries() == ledger.entries()[:4]


def test_decisions_draw_by_the_number_of_orders() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    first = ledger.decision_rng().random()
    assert ledger.decision_rng().random() == first
    noted = ledger.append(Note(topic="enqueue", facts={"config": {"x": 0.1}}))
    assert noted.decision_rng().random() == first
    assert noted.append(order(1)).decision_rng().random() != first
    assert ledger.rng("pool", 1).random() == noted.rng("pool", 1).random() != ledger.rng("pool", 2).random()


def test_appending_does_not_fold_the_past_again() -> None:
    """2000 entries, each absorbed once: counted, not timed."""
    absorbed = 0

    class Counting:
        def start(self, opened: Opened) -> int:
            return 0

        def absorb(self, state: int, entry: object) -> int:
            nonlocal absorbed
            absorbed += 1
            return state + 1

    view = Counting()
    ledger = Ledger([OPENED])
    for number in range(2000):
        ledger = ledger.append(order(number))
        assert ledger.view(view) == number + 1
    assert absorbed == 2000


def test_a_ledger_can_be_pickled_whatever_it_was_made_of() -> None:
    plain: dict[str, Any] = {"why": {}, "memo": {}}
    ledger = Ledger([OPENED, order(0, **plain)]).append(order(1, **plain))
    late = Ledger.restored(OPENED, ledger.books, 3, lambda: ledger.entries())  # functions cannot be pickled
    for made in (ledger, late):
        again = pickle.loads(pickle.dumps(made))
        assert again.entries()[1:] == ledger.entries()[1:]
        assert (len(again), again.reserved) == (3, ledger.reserved)


def test_what_was_proposed_is_what_appending_it_gives() -> None:
    ledger = Ledger(
        [Opened(space=Space({"x": Float(0, 1)}), budget=Budget("9 epochs"), policy="p", settings={}, seed=0)]
    )
    first, other = (Order(number=0, trial=0, config={"x": x}, until=1) for x in (0.1, 0.2))
    proposed = ledger.propose(first)
    assert len(ledger) == 1
    assert ledger.append(first) is proposed
    assert ledger.append(first) is not proposed  # taken up once, it holds nothing back
    proposed = ledger.propose(first)
    assert ledger.append(other).orders == [other]
    assert proposed.orders == [first]
