"""`replay`: another policy on the recorded curves of a study."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Entry, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import StudyError
from shoestring.policies.plain.random_search import RandomSearch
from shoestring.study.simulation import RecordedCurves, cost_until, replay


def grow(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger = ledger.append(entry)
    return ledger


def make_ledger(budget: str = "100 epochs") -> Ledger:
    """Return a study: trial 0 ends at step 3, its best is step 2; 1 diverges at step 1; 2 fails at step 2; 3 is not trained."""
    definition = StudyDefinition(
        space=Space({"x": Float(0, 1)}), budget=Budget(budget), policy="random_search", settings={}, seed=0, max_steps=3
    )
    cost = Cost(setup=1.0, train=2.0)
    entries: list[Entry] = [
        Order(number=0, trial=0, config={"x": 0.0}, until=3),
        *(
            Receipt(order=0, trial=0, step=s, value=v, cost=cost, saved_step=s)
            for s, v in ((1, 0.5), (2, 0.1), (3, 0.2))
        ),
        Order(number=1, trial=1, config={"x": 0.1}, until=3),
        Receipt(order=1, trial=1, step=1, value=float("nan"), cost=cost, status="diverged", saved_step=1),
        Order(number=2, trial=2, config={"x": 0.2}, until=3),
        Receipt(order=2, trial=2, step=1, value=0.7, cost=cost, saved_step=1),
        Receipt(order=2, trial=2, step=2, cost=Cost(train=9.0), status="failed", text="boom", saved_step=1),
        Order(number=3, trial=3, config={"x": 0.3}, until=3),
    ]
    return grow(Ledger([definition]), *entries)


def test_a_replay_keeps_the_scales_and_the_marks_of_the_cost() -> None:
    ledger = make_ledger()
    definition = replace(ledger.definition, space=Space({"x": Float(0, 1, cost="decreases")}))
    replayed = replay(grow(Ledger([definition]), *ledger.entries()[1:]), RandomSearch(), Budget("4 epochs"))
    assert replayed.ledger.space.cost_marks == {"x": "decreases"}


@dataclass(frozen=True)
class OneStepEach:
    name: ClassVar[str] = "one_step_each"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if len(ledger.trials) == ledger.space.size:
            return Finish("all seen")
        assert ledger.space.rows is not None
        return Train(trial=len(ledger.trials), config=ledger.space.rows[len(ledger.trials)], until=1)


def test_curves_are_known_up_to_their_last_step() -> None:
    source = RecordedCurves(make_ledger())
    assert [source.step({"x": 0.0}, s).value for s in (1, 2, 3)] == [0.5, 0.1, 0.2]  # type: ignore[union-attr]
    assert source.step({"x": 0.0}, 4) is None
    first, second = source.step({"x": 0.2}, 1), source.step({"x": 0.2}, 2)
    assert first is not None
    assert second is not None
    assert first.cost == Cost(setup=1.0, train=2.0)
    assert (second.failure, second.cost) == ("boom", Cost(train=9.0))


def test_a_step_that_was_trained_again_keeps_its_first_value() -> None:
    again = Order(number=4, trial=0, config={"x": 0.0}, until=4)
    ledger = make_ledger().fork(5)
    ledger = grow(ledger, StateLoss(trial=0, resumable_step=0))
    repeated = Receipt(order=1, trial=0, step=1, value=0.9, cost=Cost(train=50.0), saved_step=1)
    definition = ledger.definition
    longer = StudyDefinition(
        **{f: getattr(definition, f) for f in ("space", "budget", "policy", "settings", "seed")}, max_steps=9
    )
    ledger = grow(Ledger([longer, *ledger.entries(1)]), Order(**{**again.body(), "number": 1}), repeated)
    outcome = RecordedCurves(ledger).step({"x": 0.0}, 1)
    assert outcome is not None
    assert (outcome.value, outcome.cost.train) == (0.5, 2.0)


def test_the_same_policy_finds_the_best_trial_again() -> None:
    result = replay(make_ledger(), RandomSearch())
    assert (result.winner.number, result.winner_steps, result.winner_missed) == (0, 3, False)
    assert result.ledger.space.size == 3  # the trial that never began is not known
    assert result.ledger.best is not None
    assert result.ledger.best.best_loss == 0.1
    assert sorted(bool(trial.failure) for trial in result.ledger.trials) == [False, False, True]


def test_whether_the_policy_would_have_missed_the_best_step() -> None:
    result = replay(make_ledger(), OneStepEach())
    assert (result.winner_steps, result.winner_missed) == (1, True)
    comparison = replay(make_ledger(), RandomSearch(), Budget("1 epochs"))
    assert comparison.winner_missed
    assert comparison.ledger.spent == 1


def test_time_is_charged_with_setup() -> None:
    result = replay(make_ledger("100s"), OneStepEach())
    assert result.ledger.spent == 9.0


def test_the_cost_of_being_as_good() -> None:
    """In steps or in seconds, with setup and failures; a step that was trained again counts once."""
    assert cost_until(make_ledger(), 0.1) == 2.0
    assert cost_until(make_ledger("100s"), 0.1) == 6.0
    assert cost_until(make_ledger("100s"), 0.05) is None
    lost = grow(
        make_ledger("100s"),
        StateLoss(trial=2, resumable_step=0, why="gone"),
        Order(number=4, trial=2, config={"x": 0.2}, until=3),
        *(Receipt(order=4, trial=2, step=s, value=0.7 / s**9, cost=Cost(train=1.0), saved_step=s) for s in (1, 2)),
    )
    assert cost_until(lost, 0.01) == 3 * 3 + 3 + 3 + 9 + 1
    again = replay(make_ledger(), OneStepEach())
    assert (again.cost, again.real_cost) == (None, 2.0)


@pytest.mark.parametrize(
    ("values", "message"),
    [([None], "nothing to replay"), ([0.5, None, 0.2], "step 2 of trial 0 has no value.*validate every step")],
)
def test_studies_that_cannot_be_replayed(values: list[Any], message: str) -> None:
    definition = make_ledger().definition
    ledger = grow(Ledger([definition]), Order(number=0, trial=0, config={"x": 0.0}, until=len(values)))
    for step, value in enumerate(values, 1):
        ledger = ledger.append(Receipt(order=0, trial=0, step=step, value=value, saved_step=step))
    with pytest.raises(StudyError, match=message):
        replay(ledger, RandomSearch())
