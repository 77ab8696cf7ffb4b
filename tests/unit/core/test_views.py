"""Views are exact, carried forward, and never shared between forks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError

OPENED = StudyDefinition(
    space=Space({"x": Float(0, 1)}),
    budget=Budget("100 epochs"),
    policy="random_search",
    settings={},
    seed=0,
    direction="max",
    max_steps=5,
)


def order(number: int, trial: int, until: int, **more: Any) -> Order:
    return Order(number=number, trial=trial, config={"x": trial / 10}, until=until, **more)


def make_receipt(number: int, trial: int, step: int, value: float | None, status: str = "ok") -> Receipt:
    return Receipt(order=number, trial=trial, step=step, value=value, status=status, saved_step=step)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Counting:
    """The kinds of the absorbed entries, and (outside the state) every call of `absorb`."""

    calls: list[Entry] = field(default_factory=list, compare=False)

    def start(self, definition: StudyDefinition) -> list[str]:
        return ["opened"]

    def absorb(self, state: list[str], entry: Entry) -> list[str]:
        self.calls.append(entry)
        state.append(entry.kind)
        return state


def test_each_entry_is_absorbed_once() -> None:
    view = Counting()
    ledger = Ledger([OPENED])
    ledger.view(view)
    for i in range(10):
        ledger = ledger.append(order(i, i, 1))
        assert ledger.view(view) == ["opened"] + ["order"] * (i + 1)
        assert ledger.view(view) is ledger.view(view)
    assert len(view.calls) == 10


def test_forks_and_proposals_share_no_state() -> None:
    view = Counting()
    root = Ledger([OPENED]).append(order(0, 0, 1))
    root.view(view)
    left = root.propose(make_receipt(0, 0, 1, 0.5))
    right = root.propose(order(1, 1, 1))
    fork = left.fork(2)
    assert left.view(view) == ["opened", "order", "receipt"]
    assert right.view(view) == ["opened", "order", "order"]
    assert root.view(view) == fork.view(view) == ["opened", "order"]
    assert left.view(view) is not right.view(view)
    assert (len(left), len(right), len(root), len(fork)) == (3, 3, 2, 2)
    longer = right.append(make_receipt(0, 0, 1, 0.25))
    assert [trial.steps for trial in longer.trials] == [1, 0]
    assert [trial.steps for trial in root.trials] == [0]
    assert left.trials[0].values == [0.5]


def test_an_entry_that_breaks_a_rule_changes_nothing() -> None:
    view = Counting()
    ledger = Ledger([OPENED]).append(order(0, 0, 2))
    ledger.view(view)
    before = ledger.state.steps_due
    for wrong in (make_receipt(0, 0, 2, 0.1), make_receipt(7, 0, 1, 0.1), make_receipt(0, 3, 1, 0.1), order(5, 1, 1)):
        with pytest.raises(DecisionError):
            ledger.append(wrong)
        assert len(ledger) == len(ledger.entries()) == 2
        assert ledger.state.steps_due == before
        assert ledger.view(view) == ["opened", "order"]
    assert ledger.append(make_receipt(0, 0, 1, 0.1)).trials[0].values == [0.1]


def test_losses_at_a_step_are_ranked() -> None:
    ledger = Ledger([OPENED])
    for trial, value in enumerate([0.1, 0.7, None, 0.4]):
        validate: Any = "none" if value is None else "each"
        ledger = ledger.append(order(trial, trial, 1, validate=validate)).append(make_receipt(trial, trial, 1, value))
    ledger = ledger.append(order(4, 4, 1)).append(make_receipt(4, 4, 1, float("nan"), "diverged"))
    assert ledger.losses_at(1) == [(-0.7, 1), (-0.4, 3), (-0.1, 0)]
    assert ledger.losses_at(2) == []


def test_a_repeated_step_changes_no_ranking() -> None:
    ledger = Ledger([OPENED]).append(order(0, 0, 1, validate="none")).append(make_receipt(0, 0, 1, None))
    ledger = (
        ledger.append(StateLoss(trial=0, resumable_step=0)).append(order(1, 0, 2)).append(make_receipt(1, 0, 1, 0.9))
    )
    assert ledger.losses_at(1) == []
    assert ledger.trials[0].losses == [None]
    ledger = ledger.append(make_receipt(1, 0, 2, 0.8))
    assert ledger.losses_at(2) == [(-0.8, 0)]
