"""Rewards of rounds, credited as documented; and the walls on validation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoestring.core.decision import Finish, Train, Wait
from shoestring.core.entries import Cost, Direction, Lost, Note, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget, Prices
from shoestring.core.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.online.rounds import (
    Rounds,
    check_cap,
    order_round,
    queued_config,
    waiting_or_over,
    why_not_validate,
)
from shoestring.runners.runner import receipt, unfinished

SPACE = Space({"x": {"float": [0, 1]}})


def begin(
    budget: str = "100 epochs", rounds: int = 100, direction: Direction = "max", prices: Prices | None = None
) -> Ledger:
    opened = Opened(
        space=SPACE,
        budget=Budget(budget),
        policy="ce_gp_ucb",
        settings={},
        seed=0,
        direction=direction,
        max_steps=rounds,
        prices=prices or Prices(),
    )
    return Ledger([opened])


def play(ledger: Ledger, x: float, value: float | None, cost: Cost | None = None, free: bool = False) -> Ledger:
    """One round; a value of None is a round without validation, and so is a `free` value that nobody paid for."""
    query = value is not None and not free
    order = ledger.accept(order_round(ledger, ledger.view(Rounds()), {"x": x}, query, {}))
    assert order is not None
    return ledger.append(order).append(receipt(order, order.until, value, cost or Cost(), at=0.0, saved=order.until))


def rewards(view: Rounds, *values: float | None, direction: Direction = "max") -> list[float | None]:
    ledger = begin(direction=direction)
    for value in values:
        ledger = play(ledger, 0.5, value)
    return ledger.view(view).rewards


def test_the_first_validation_is_a_baseline_and_later_ones_give_their_gain() -> None:
    assert rewards(Rounds(unit=1.0), 0.5, 0.75, 0.625) == [None, 0.25, -0.125]


def test_smaller_is_better_when_the_study_says_so() -> None:
    assert rewards(Rounds(unit=1.0), 0.5, 0.75, direction="min") == [None, -0.25]


def test_a_gain_over_skipped_rounds_is_their_mean_credited_to_the_validated_round() -> None:
    assert rewards(Rounds(unit=0.5), 1.0, None, None, 2.5) == [None, None, None, 1.0]


def test_gains_are_clipped_and_values_taken_as_they_are() -> None:
    assert rewards(Rounds(unit=0.01, clip=2.0), 0.0, 1.0, 0.0) == [None, 2.0, -2.0]
    assert rewards(Rounds(reward="value"), 3.0, None, 4.0) == [3.0, None, 4.0]
    assert rewards(Rounds(reward="value"), 3.0, direction="min") == [-3.0]


def test_without_a_unit_gains_are_measured_by_recent_ones() -> None:
    found = rewards(Rounds(), 0.0, 1.0, 2.0, 3.0)
    assert found == [None, 1.0, 1.0, 1.0]
    shrinking = rewards(Rounds(), *[1.0 - 0.5**k for k in range(40)])
    last = shrinking[-1]
    assert last is not None
    assert 0.01 < last < 1.0  # gains have shrunk to 1e-12, their rewards have not
    assert rewards(Rounds(), 0.0, 100.0, 101.0, 102.0, 103.0)[-1] == 1.0  # a huge first gain is soon forgotten
    assert rewards(Rounds(), 1.0, 1.0) == [None, 0.0]


def test_a_value_that_was_not_bought_is_not_looked_at() -> None:
    ledger = play(play(begin(), 0.1, 1.0), 0.2, 5.0, free=True)
    assert ledger.view(Rounds(unit=1.0)).rewards == [None, None]
    assert ledger.view(Rounds(unit=1.0)).value == 1.0


def test_steps_run_again_are_no_rounds_and_keep_their_configs() -> None:
    ledger = play(play(play(begin(), 0.1, 1.0), 0.2, 2.0), 0.3, 3.0)
    ledger = ledger.append(Lost(trial=0, held=1))
    order = ledger.accept(Train(trial=0, config={"x": 0.4}, until=4, validate="last"))
    assert order is not None
    ledger = ledger.append(order)
    for step, value in ((2, None), (3, None), (4, 4.0)):
        ledger = ledger.append(receipt(order, step, value, Cost(), at=0.0, saved=step))
    state = ledger.view(Rounds(unit=1.0))
    assert [config["x"] for config in state.configs] == [0.1, 0.2, 0.3, 0.4]
    assert state.rewards == [None, 1.0, 1.0, 1.0]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), max_size=12), st.sampled_from([None, 1e-9])
)
def test_rewards_are_always_finite(values: list[float | None], unit: float | None) -> None:
    for view in (Rounds(unit=unit), Rounds(unit=unit, clip=2.0), Rounds(reward="value", unit=unit)):
        found = [reward for reward in rewards(view, *values) if reward is not None]
        assert all(math.isfinite(reward) for reward in found)
        assert view.clip is None or all(abs(reward) <= view.clip for reward in found)


def test_waiting_and_ending() -> None:
    ledger = begin(rounds=2)
    assert waiting_or_over(ledger) is None
    order = ledger.accept(Train(trial=0, config={"x": 0.5}, until=1, validate="last"))
    assert order is not None
    ledger = ledger.append(order)
    assert waiting_or_over(ledger) == Wait()
    failed = ledger.append(unfinished(order, 1, "failed", "boom", Cost(), at=0.0, saved=0))
    over = waiting_or_over(failed)
    assert isinstance(over, Finish)
    assert "failed in round 1" in over.why
    diverged = ledger.fork(2).append(receipt(order, 1, math.nan, Cost(), at=0.0))
    over = waiting_or_over(diverged)
    assert isinstance(over, Finish)
    assert "diverged in round 1" in over.why
    done = play(play(begin(rounds=2), 0.5, 1.0), 0.5, 1.0)
    assert isinstance(waiting_or_over(done), Finish)


def test_queued_configs_are_used_once_each() -> None:
    ledger = begin()
    for x in (0.25, 0.75):
        ledger = ledger.append(Note(topic="enqueue", facts={"config": {"x": x}}))
    key = ledger.space.key
    assert queued_config(ledger, set()) == {"x": 0.25}
    assert queued_config(ledger, {key({"x": 0.25})}) == {"x": 0.75}
    assert queued_config(ledger, {key({"x": 0.25}), key({"x": 0.75})}) is None


# walls -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["20", "lots", "-5%", "0 passes", "", "5 epochs"])
def test_a_cap_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="write '20%', '30 passes' or '10m'"):
        check_cap(object(), text)


def run_capped(ledger: Ledger, at_most: str | None, train_s: float, validate_s: float, rounds: int) -> Ledger:
    for _ in range(rounds):
        allowed = not why_not_validate(ledger, at_most)
        cost = Cost(train=train_s, validate=validate_s if allowed else 0.0)
        ledger = play(ledger, 0.5, 1.0 if allowed else None, cost)
    return ledger


@pytest.mark.parametrize("validate_s", [0.1, 1.0, 7.0])
def test_a_share_of_the_training_time_holds(validate_s: float) -> None:
    ledger = run_capped(begin("2h"), "20%", 2.0, validate_s, 60)
    books = ledger.books
    assert books.by_kind["validate"] <= max(
        0.2 * books.by_kind["train"] + 1e-9, validate_s
    )  # the first is always bought
    assert books.by_kind["validate"] + validate_s > 0.2 * (books.by_kind["train"] - 2.0) or books.validations == 60


def test_a_share_uses_the_price_list_of_an_epoch_budget() -> None:
    ledger = run_capped(begin("100 epochs", rounds=60, prices=Prices(0.5)), "25%", 0.0, 0.0, 60)
    assert ledger.books.validations == 30
    assert ledger.spent == 75.0


def test_passes_and_durations() -> None:
    assert run_capped(begin("2h"), "7 passes", 1.0, 1.0, 30).books.validations == 7
    assert run_capped(begin("2h"), "10s", 1.0, 3.0, 30).books.validations == 3


def test_validation_never_uses_up_what_training_needs() -> None:
    ledger = run_capped(begin("110 epochs", rounds=100, prices=Prices(0.5)), None, 0.0, 0.0, 100)
    assert (ledger.trials[0].steps, ledger.books.validations, ledger.spent) == (100, 20, 110.0)
    timed = run_capped(begin("150s", rounds=100), None, 1.0, 1.0, 100)
    assert (timed.trials[0].steps, timed.books.validations) == (100, 50)


def test_a_budget_that_cannot_pay_all_rounds_is_spent_on_both() -> None:
    ledger = run_capped(begin("15 epochs", rounds=100, prices=Prices(0.5)), None, 0.0, 0.0, 10)
    assert (ledger.trials[0].steps, ledger.books.validations) == (10, 10)
    assert why_not_validate(play(begin("3 epochs", prices=Prices(1.0)), 0.5, 1.0), None) == "budget"
