"""Replay: another policy on a study's own receipts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Entry, Lost, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import StudyError
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.study.simulation import Recorded, price_of, replay


def grow(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger = ledger.append(entry)
    return ledger


def recorded(budget: str = "100 epochs") -> Ledger:
    """Trial 0 went to step 3 and won at step 2; trial 1 diverged at once; trial 2 failed at step 2; 3 never began."""
    opened = Opened(
        space=Space({"x": Float(0, 1)}), budget=Budget(budget), policy="random_search", settings={}, seed=0, max_steps=3
    )
    cost = Cost(setup=1.0, train=2.0)
    entries: list[Entry] = [
        Order(number=0, trial=0, config={"x": 0.0}, until=3),
        *(Receipt(order=0, trial=0, step=s, value=v, cost=cost, saved=s) for s, v in ((1, 0.5), (2, 0.1), (3, 0.2))),
        Order(number=1, trial=1, config={"x": 0.1}, until=3),
        Receipt(order=1, trial=1, step=1, value=float("nan"), cost=cost, status="diverged", saved=1),
        Order(number=2, trial=2, config={"x": 0.2}, until=3),
        Receipt(order=2, trial=2, step=1, value=0.7, cost=cost, saved=1),
        Receipt(order=2, trial=2, step=2, cost=Cost(train=9.0), status="failed", text="boom", saved=1),
        Order(number=3, trial=3, config={"x": 0.3}, until=3),
    ]
    return grow(Ledger([opened]), *entries)


@dataclass(frozen=True)
class OneStepEach:
    name: ClassVar[str] = "one_step_each"

    @classmethod
    def small(cls) -> OneStepEach:
        return cls()

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if len(ledger.trials) == ledger.space.size:
            return Finish("all seen")
        assert ledger.space.rows is not None
        return Train(trial=len(ledger.trials), config=ledger.space.rows[len(ledger.trials)], until=1)


def test_curves_are_known_as_far_as_they_were_bought() -> None:
    source = Recorded(recorded())
    assert [source.step({"x": 0.0}, s).value for s in (1, 2, 3)] == [0.5, 0.1, 0.2]  # type: ignore[union-attr]
    assert source.step({"x": 0.0}, 4) is None
    first, second = source.step({"x": 0.2}, 1), source.step({"x": 0.2}, 2)
    assert first is not None
    assert second is not None
    assert first.cost == Cost(setup=1.0, train=2.0)
    assert (second.failure, second.cost) == ("boom", Cost(train=9.0))


def test_a_step_run_again_keeps_its_first_word() -> None:
    again = Order(number=4, trial=0, config={"x": 0.0}, until=4)
    ledger = recorded().fork(5)
    ledger = grow(ledger, Lost(trial=0, held=0))
    repeated = Receipt(order=1, trial=0, step=1, value=0.9, cost=Cost(train=50.0), saved=1)
    opened = ledger.opened
    longer = Opened(**{f: getattr(opened, f) for f in ("space", "budget", "policy", "settings", "seed")}, max_steps=9)
    ledger = grow(Ledger([longer, *ledger.entries(1)]), Order(**{**again.body(), "number": 1}), repeated)
    told = Recorded(ledger).step({"x": 0.0}, 1)
    assert told is not None
    assert (told.value, told.cost.train) == (0.5, 2.0)


def test_the_same_policy_finds_the_winner_again() -> None:
    result = replay(recorded(), RandomSearch())
    assert (result.winner.number, result.winner_steps, result.winner_frozen) == (0, 3, False)
    assert result.ledger.space.size == 3  # the trial that never began is not known
    assert result.ledger.best is not None
    assert result.ledger.best.best_loss == 0.1
    assert sorted(bool(trial.failure) for trial in result.ledger.trials) == [False, False, True]


def test_would_it_have_frozen_the_winner() -> None:
    result = replay(recorded(), OneStepEach())
    assert (result.winner_steps, result.winner_frozen) == (1, True)
    missed = replay(recorded(), RandomSearch(), Budget("1 epochs"))
    assert missed.winner_frozen
    assert missed.ledger.spent == 1


def test_time_is_replayed_at_its_price_setup_included() -> None:
    result = replay(recorded("100s"), OneStepEach())
    assert result.ledger.spent == 9.0


def test_what_it_took_to_be_as_good() -> None:
    """In steps or in seconds, setting up and failures included; a step that was run again counts once."""
    assert price_of(recorded(), 0.1) == 2.0
    assert price_of(recorded("100s"), 0.1) == 6.0
    assert price_of(recorded("100s"), 0.05) is None
    lost = grow(
        recorded("100s"),
        Lost(trial=2, held=0, why="gone"),
        Order(number=4, trial=2, config={"x": 0.2}, until=3),
        *(Receipt(order=4, trial=2, step=s, value=0.7 / s**9, cost=Cost(train=1.0), saved=s) for s in (1, 2)),
    )
    assert price_of(lost, 0.01) == 3 * 3 + 3 + 3 + 9 + 1
    again = replay(recorded(), OneStepEach())
    assert (again.price, again.real_price) == (None, 2.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [([None], "nothing to replay"), ([0.5, None, 0.2], "step 2 of trial 0 was not validated.*validate every step")],
)
def test_studies_that_cannot_be_replayed(values: list[Any], said: str) -> None:
    opened = recorded().opened
    ledger = grow(Ledger([opened]), Order(number=0, trial=0, config={"x": 0.0}, until=len(values)))
    for step, value in enumerate(values, 1):
        ledger = ledger.append(Receipt(order=0, trial=0, step=step, value=value, saved=step))
    with pytest.raises(StudyError, match=said):
        replay(ledger, RandomSearch())
