"""The ledger itself: appending, proposing, forks, randomness. Its views, state and prices have tests of their own."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Note, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError, StaleLedger, StudyError

OPENED = StudyDefinition(
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


def test_a_ledger_begins_with_an_opened_entry() -> None:
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
    copied = third.entries()
    copied.clear()
    assert len(third.entries()) == 3


def test_two_proposals_on_one_ledger_have_entries_of_their_own() -> None:
    base = Ledger([OPENED]).append(order(0))
    left, right = base.propose(order(1)), base.propose(Note(topic="released", facts={"order": 0}))
    assert left.entries()[:2] == right.entries()[:2] == base.entries()
    assert (left.entries()[2].kind, right.entries()[2].kind) == ("order", "note")
    assert list(right.open_orders) == []
    assert list(left.open_orders) == [0, 1]
    assert left.append(order(2)).orders[-1].number == 2


def test_append_consumes_the_ledger() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    ledger.append(order(1))
    assert ledger.is_consumed
    for use in (
        lambda: ledger.state,
        lambda: ledger.trials,
        lambda: ledger.spent,
        lambda: ledger.best,
        lambda: ledger.losses_at(1),
        lambda: ledger.append(order(1)),
        lambda: ledger.propose(order(1)),
    ):
        with pytest.raises(StaleLedger):
            use()


def test_the_message_of_a_consumed_ledger_names_what_to_use_instead() -> None:
    ledger = Ledger([OPENED])
    ledger.append(order(0))
    with pytest.raises(StaleLedger, match=r"ledger of 1 entries: use the ledger that `append` returned, or `fork\(\)`"):
        _ = ledger.spent


def test_the_entries_of_a_consumed_ledger_can_be_read() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    ledger.append(order(1))
    assert (len(ledger), ledger.entries(), ledger.definition) == (2, [OPENED, order(0)], OPENED)
    assert len(ledger.fork().trials) == 1


def test_an_entry_that_breaks_a_rule_does_not_consume_the_ledger() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    with pytest.raises(DecisionError):
        ledger.append(order(5))
    assert len(ledger.append(order(1)).trials) == 2


def test_a_fork_is_the_ledger_as_it_was() -> None:
    ledger = Ledger([OPENED])
    for number in range(4):
        ledger = ledger.append(order(number))
    for count in range(1, 6):
        assert len(ledger.fork(count).trials) == count - 1
    assert len(ledger.fork(99)) == 5
    assert ledger.fork(3).append(order(2)).entries() == ledger.entries()[:4]


def test_the_generator_of_a_decision_depends_on_the_number_of_orders() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    first = ledger.decision_rng().random()
    assert ledger.decision_rng().random() == first
    with_note = ledger.append(Note(topic="enqueue", facts={"config": {"x": 0.1}}))
    assert with_note.decision_rng().random() == first
    assert with_note.append(order(1)).decision_rng().random() != first
    assert ledger.rng("pool", 1).random() == with_note.rng("pool", 1).random() != ledger.rng("pool", 2).random()


def test_appending_does_not_absorb_old_entries_again() -> None:
    """Each of 2000 entries is absorbed once."""
    n_absorbed = 0

    class Counting:
        def start(self, definition: StudyDefinition) -> int:
            return 0

        def absorb(self, state: int, entry: object) -> int:
            nonlocal n_absorbed
            n_absorbed += 1
            return state + 1

    view = Counting()
    ledger = Ledger([OPENED])
    for number in range(2000):
        ledger = ledger.append(order(number))
        assert ledger.view(view) == number + 1
    assert n_absorbed == 2000


def test_a_ledger_can_be_pickled() -> None:
    plain: dict[str, Any] = {"why": {}, "memo": {}}
    ledger = Ledger([OPENED, order(0, **plain)]).append(order(1, **plain))
    restored = Ledger.restore(OPENED, ledger.state, 3, lambda: ledger.entries())  # functions cannot be pickled
    for original in (ledger, restored):
        again = pickle.loads(pickle.dumps(original))
        assert again.entries()[1:] == ledger.entries()[1:]
        assert (len(again), again.reserved) == (3, ledger.reserved)


def test_appending_a_proposed_entry_returns_the_proposed_ledger() -> None:
    ledger = Ledger(
        [StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget("9 epochs"), policy="p", settings={}, seed=0)]
    )
    first = Order(number=0, trial=0, config={"x": 0.1}, until=1)
    proposed = ledger.propose(first)
    assert len(ledger) == 1
    assert ledger.propose(first) is proposed
    assert ledger.append(first) is proposed
    assert ledger.is_consumed
    assert proposed.orders == [first]


def test_a_proposal_that_is_never_appended_changes_nothing() -> None:
    ledger = Ledger([OPENED]).append(order(0))
    proposed = ledger.propose(order(1))
    assert len(ledger.trials) == 1
    other = Order(number=1, trial=1, config={"x": 0.2}, until=1)
    assert list(ledger.append(other).orders) == [order(0), other]
    assert list(proposed.orders) == [order(0), order(1)]
