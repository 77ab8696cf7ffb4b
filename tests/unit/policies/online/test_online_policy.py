"""What all online policies share: the walls on validation, the user's and the budget's."""

from __future__ import annotations

import pytest

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Opened
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.online.bandit_policies import UCB1
from shoestring.policies.online.online_run import RunView, order_round
from shoestring.runners.runner import write_receipt


def begin(budget: str, rounds: int = 100, prices: Prices | None = None) -> Ledger:
    opened = Opened(
        space=Space({"x": {"float": [0, 1]}}),
        budget=Budget(budget),
        policy="ucb1",
        settings={},
        seed=0,
        direction="max",
        max_steps=rounds,
        prices=prices or Prices(),
    )
    return Ledger([opened])


def why_not_validate(ledger: Ledger, at_most: str | None) -> str:
    return UCB1(validate_at_most=at_most).why_not_validate(ledger)


@pytest.mark.parametrize("text", ["20", "lots", "-5%", "0 passes", "", "5 epochs"])
def test_a_cap_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(PolicyError, match="write '20%', '30 passes' or '10m'"):
        UCB1(validate_at_most=text)


def run_capped(ledger: Ledger, at_most: str | None, train_s: float, validate_s: float, rounds: int) -> Ledger:
    for _ in range(rounds):
        query = not why_not_validate(ledger, at_most)
        order = ledger.accept(order_round(ledger, ledger.view(RunView()), {"x": 0.5}, query, {}))
        assert order is not None
        cost, value = (Cost(train=train_s, validate=validate_s), 1.0) if query else (Cost(train=train_s), None)
        ledger = ledger.append(order).append(write_receipt(order, order.until, value, cost, at=0.0, saved=order.until))
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


@pytest.mark.parametrize("budget", ["100 epochs", "2h"])
def test_a_share_of_passes_that_nobody_prices_is_one_of_the_rounds(budget: str) -> None:
    """A generator's validation takes no time of its own, and an epoch budget may list no price: the cap must bind yet."""
    ledger = run_capped(begin(budget), "20%", 1.0, 0.0, 60)
    assert ledger.books.validations == 12


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
    assert why_not_validate(run_capped(begin("3 epochs", prices=Prices(1.0)), None, 0.0, 0.0, 1), None) == "budget"
