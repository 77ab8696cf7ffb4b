"""Rewards of rounds; and when a run waits, ends or takes a queued config."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.decision import Finish, Train, Wait
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Direction, Note, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.space import Space
from shoestring.policies.online.online_run import RunView, find_next_queued, order_round, wait_or_finish
from shoestring.runners.runner import write_incomplete_receipt, write_receipt

SPACE = Space({"x": {"float": [0, 1]}})


def begin(rounds: int = 100, direction: Direction = "max") -> Ledger:
    definition = StudyDefinition(
        space=SPACE,
        budget=Budget("100 epochs"),
        policy="ce_gp_ucb",
        settings={},
        seed=0,
        direction=direction,
        max_steps=rounds,
    )
    return Ledger([definition])


def play(ledger: Ledger, x: float, value: float | None, unordered: bool = False) -> Ledger:
    """Add one round. It is ordered without validation if `value` is None, or if it is `unordered`."""
    query = value is not None and not unordered
    order = place_order(ledger, order_round(ledger, ledger.view(RunView()), {"x": x}, query, {}))
    assert order is not None
    return ledger.append(order).append(write_receipt(order, order.until, value, Cost(), at=0.0, saved_step=order.until))


def rewards(view: RunView, *values: float | None, direction: Direction = "max") -> list[float | None]:
    ledger = begin(direction=direction)
    for value in values:
        ledger = play(ledger, 0.5, value)
    return ledger.view(view).rewards


def test_the_first_validation_is_a_baseline() -> None:
    assert rewards(RunView(unit=1.0), 0.5, 0.75, 0.625) == [None, 0.25, -0.125]


def test_gains_of_a_study_that_minimises() -> None:
    assert rewards(RunView(unit=1.0), 0.5, 0.75, direction="min") == [None, -0.25]


def test_a_gain_over_skipped_rounds_is_their_mean() -> None:
    assert rewards(RunView(unit=0.5), 1.0, None, None, 2.5) == [None, None, None, 1.0]


def test_gains_are_clipped_and_values_are_not() -> None:
    assert rewards(RunView(unit=0.01, clip=2.0), 0.0, 1.0, 0.0) == [None, 2.0, -2.0]
    assert rewards(RunView(reward="value"), 3.0, None, 4.0) == [3.0, None, 4.0]
    assert rewards(RunView(reward="value"), 3.0, direction="min") == [-3.0]


def test_the_default_unit_is_the_size_of_recent_gains() -> None:
    found = rewards(RunView(), 0.0, 1.0, 2.0, 3.0)
    assert found == [None, 1.0, 1.0, 1.0]
    shrinking = rewards(RunView(), *[1.0 - 0.5**k for k in range(40)])
    last = shrinking[-1]
    assert last is not None
    assert 0.01 < last < 1.0  # gains shrink to 1e-12, but rewards do not
    assert rewards(RunView(), 0.0, 100.0, 101.0, 102.0, 103.0)[-1] == 1.0  # a huge first gain has no lasting effect
    assert rewards(RunView(), 1.0, 1.0) == [None, 0.0]


def test_values_of_rounds_ordered_without_validation_are_not_used() -> None:
    ledger = play(play(begin(), 0.1, 1.0), 0.2, 5.0, unordered=True)
    assert ledger.view(RunView(unit=1.0)).rewards == [None, None]
    assert ledger.view(RunView(unit=1.0)).value == 1.0


def test_repeated_steps_are_not_new_rounds() -> None:
    ledger = play(play(play(begin(), 0.1, 1.0), 0.2, 2.0), 0.3, 3.0)
    ledger = ledger.append(StateLoss(trial=0, resumable_step=1))
    order = place_order(ledger, Train(trial=0, config={"x": 0.4}, until=4, validate="last"))
    assert order is not None
    ledger = ledger.append(order)
    for step, value in ((2, None), (3, None), (4, 4.0)):
        ledger = ledger.append(write_receipt(order, step, value, Cost(), at=0.0, saved_step=step))
    state = ledger.view(RunView(unit=1.0))
    assert [config["x"] for config in state.configs] == [0.1, 0.2, 0.3, 0.4]
    assert state.rewards == [None, 1.0, 1.0, 1.0]


@examples(34, thorough=100)
@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=12), st.sampled_from([None, 1e-9])
)
def test_rewards_are_always_finite(values: list[float | None], unit: float | None) -> None:
    for view in (RunView(unit=unit), RunView(unit=unit, clip=2.0), RunView(reward="value", unit=unit)):
        found = [reward for reward in rewards(view, *values) if reward is not None]
        assert all(math.isfinite(reward) for reward in found)
        assert view.clip is None or all(abs(reward) <= view.clip for reward in found)


def test_a_run_waits_for_an_open_order_and_ends_after_a_failure_or_its_last_round() -> None:
    ledger = begin(rounds=2)
    assert wait_or_finish(ledger) is None
    order = place_order(ledger, Train(trial=0, config={"x": 0.5}, until=1, validate="last"))
    assert order is not None
    ledger = ledger.append(order)
    assert wait_or_finish(ledger) == Wait()
    failed = ledger.append(write_incomplete_receipt(order, 1, "failed", "boom", Cost(), at=0.0, saved_step=0))
    ending = wait_or_finish(failed)
    assert isinstance(ending, Finish)
    assert "round 1" in ending.why
    diverged = ledger.fork(2).append(write_receipt(order, 1, math.nan, Cost(), at=0.0))
    ending = wait_or_finish(diverged)
    assert isinstance(ending, Finish)
    assert "round 1" in ending.why
    complete = play(play(begin(rounds=2), 0.5, 1.0), 0.5, 1.0)
    assert isinstance(wait_or_finish(complete), Finish)


def test_each_queued_config_is_used_once() -> None:
    ledger = begin()
    for x in (0.25, 0.75):
        ledger = ledger.append(Note(topic="enqueue", facts={"config": {"x": x}}))
    used = []
    for _ in range(2):
        config = find_next_queued(ledger, ledger.view(RunView()))
        assert config is not None
        used.append(config["x"])
        ledger = play(ledger, config["x"], 1.0)
    assert used == [0.25, 0.75]
    assert find_next_queued(ledger, ledger.view(RunView())) is None
