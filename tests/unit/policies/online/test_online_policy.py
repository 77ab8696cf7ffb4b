"""The two limits on validation that all online policies share: the user's and the budget's."""

from __future__ import annotations

import pytest

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.online.bandit_policies import UCB1
from shoestring.policies.online.online_run import RunView, order_round
from shoestring.runners.runner import write_receipt


def begin(budget: str, rounds: int = 100, prices: Prices | None = None) -> Ledger:
    definition = StudyDefinition(
        space=Space({"x": {"float": [0, 1]}}),
        budget=Budget(budget),
        policy="ucb1",
        settings={},
        seed=0,
        direction="max",
        max_steps=rounds,
        prices=prices or Prices(),
    )
    return Ledger([definition])


def find_validation_limit(ledger: Ledger, at_most: str | None) -> str:
    return UCB1(validate_at_most=at_most).find_validation_limit(ledger)


@pytest.mark.parametrize("text", ["20", "lots", "-5%", "0 passes", "", "5 epochs"])
def test_limits_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="validate_at_most"):
        UCB1(validate_at_most=text)


def run_limited(ledger: Ledger, at_most: str | None, train_s: float, validate_s: float, rounds: int) -> Ledger:
    for _ in range(rounds):
        query = not find_validation_limit(ledger, at_most)
        order = place_order(ledger, order_round(ledger, ledger.view(RunView()), {"x": 0.5}, query, {}))
        assert order is not None
        cost, value = (Cost(train=train_s, validate=validate_s), 1.0) if query else (Cost(train=train_s), None)
        ledger = ledger.append(order).append(
            write_receipt(order, order.until, value, cost, at=0.0, saved_step=order.until)
        )
    return ledger


@pytest.mark.parametrize("validate_s", [0.1, 1.0, 7.0])
def test_a_share_limits_validation_to_that_share_of_the_training_time(validate_s: float) -> None:
    ledger = run_limited(begin("2h"), "20%", 2.0, validate_s, 60)
    state = ledger.state
    allowed_s = max(0.2 * state.by_kind["train"] + 1e-9, validate_s)  # the first pass is always allowed
    assert state.by_kind["validate"] <= allowed_s
    assert state.by_kind["validate"] + validate_s > 0.2 * (state.by_kind["train"] - 2.0) or state.validations == 60


def test_a_share_uses_the_prices_of_an_epoch_budget() -> None:
    ledger = run_limited(begin("100 epochs", rounds=60, prices=Prices(0.5)), "25%", 0.0, 0.0, 60)
    assert ledger.state.validations == 30
    assert ledger.spent == 75.0


@pytest.mark.parametrize("budget", ["100 epochs", "2h"])
def test_a_share_of_passes_without_a_price_is_a_share_of_the_rounds(budget: str) -> None:
    """Validation in a generator takes no measured time, and an epoch budget may list no price: the limit holds all the same."""
    ledger = run_limited(begin(budget), "20%", 1.0, 0.0, 60)
    assert ledger.state.validations == 12


def test_a_limit_may_be_a_number_of_passes_or_a_duration() -> None:
    assert run_limited(begin("2h"), "7 passes", 1.0, 1.0, 30).state.validations == 7
    assert run_limited(begin("2h"), "10s", 1.0, 3.0, 30).state.validations == 3


def test_validation_leaves_enough_for_the_remaining_rounds() -> None:
    ledger = run_limited(begin("110 epochs", rounds=100, prices=Prices(0.5)), None, 0.0, 0.0, 100)
    assert (ledger.trials[0].steps, ledger.state.validations, ledger.spent) == (100, 20, 110.0)
    timed = run_limited(begin("150s", rounds=100), None, 1.0, 1.0, 100)
    assert (timed.trials[0].steps, timed.state.validations) == (100, 50)


def test_a_budget_too_small_for_all_rounds_is_spent_on_training_and_validation() -> None:
    ledger = run_limited(begin("15 epochs", rounds=100, prices=Prices(0.5)), None, 0.0, 0.0, 10)
    assert (ledger.trials[0].steps, ledger.state.validations) == (10, 10)
    assert (
        find_validation_limit(run_limited(begin("3 epochs", prices=Prices(1.0)), None, 0.0, 0.0, 1), None) == "budget"
    )
