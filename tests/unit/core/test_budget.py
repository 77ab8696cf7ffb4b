"""Budgets as users write them."""

from __future__ import annotations

import pytest

from shoestring.core.ledger.budget import Budget, Prices, parse_duration_s, show_seconds
from shoestring.errors import BudgetError


@pytest.mark.parametrize(
    ("text", "unit", "total"),
    [
        ("400 epochs", "epochs", 400),
        ("1 epoch", "epochs", 1),
        ("25 steps", "epochs", 25),
        ("1e3 epochs", "epochs", 1000),
        (" 12 Epochs ", "epochs", 12),
        ("20 trials", "epochs", 20),
        ("1 trial", "epochs", 1),
        ("20 calls", "epochs", 20),
        ("2h", "seconds", 7200),
        ("1h 30m", "seconds", 5400),
        ("1h30m", "seconds", 5400),
        ("90 s", "seconds", 90),
        ("1.5 hours", "seconds", 5400),
        (".5 min", "seconds", 30),
        ("2 days", "seconds", 172800),
        ("$20 at 2.50/h", "dollars", 20),
        ("$ 0.5 at $3 / h", "dollars", 0.5),
    ],
)
def test_a_text_becomes_an_amount_with_its_unit(text: str, unit: str, total: float) -> None:
    budget = Budget(text)
    assert (budget.unit, budget.total) == (unit, total)


def test_equal_amounts_are_equal_budgets() -> None:
    assert Budget("2h") == Budget("7200s") == Budget("1h 60m")
    assert Budget("$20 at 2.50/h") == Budget("$20.0 at 2.5/h")
    assert Budget("$20 at 2.50/h") != Budget("$20 at 2.50/h per machine")
    assert Budget("60 epochs") != Budget("60 s")
    assert Budget("9 trials") == Budget("9 calls") != Budget("9 epochs")
    assert Budget(str(Budget("9 calls"))) == Budget("9 trials")
    assert Budget(Budget("9 epochs")) == Budget("9 epochs")
    assert repr(Budget("2h")) == "Budget('7200.0s')"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty", "400 epochs"]),
        ("400", ["'400'", "the unit is missing", 'write "400 epochs", "400s" or "$400 at 2.50/h"']),
        ("0 epochs", ["'0 epochs'", "above 0"]),
        ("0s", ["above 0"]),
        ("-5s", ["'-5s'", "cannot be read"]),
        ("1.5 epochs", ["'1.5 epochs'", "whole number"]),
        ("1.5 trials", ["'1.5 trials'", "whole number of trials"]),
        ("1e400s", ["finite"]),
        ("$20", ["'$20'", "rate", "$20 at 2.50/h"]),
        ("$20 at 0/h", ["0/h", "above 0"]),
        ("$20 at 1e400/h", ["inf/h", "finite"]),
        ("2 fortnights", ["'2 fortnights'", "cannot be read"]),
        ("2h later", ["'2h later'"]),
    ],
)
def test_errors_name_the_text_the_rule_and_a_remedy(text: str, words: list[str]) -> None:
    with pytest.raises(BudgetError) as caught:
        Budget(text)
    for word in words:
        assert word in str(caught.value)


def test_a_rate_per_machine_is_shared_by_its_workers() -> None:
    each, shared = Budget("$20 at 3600/h"), Budget("$20 at 3600/h per machine")
    assert (each.per_second(1), each.per_second(4)) == (1.0, 1.0)
    assert (shared.per_second(1), shared.per_second(4)) == (1.0, 0.25)
    assert Budget("2h").per_second(4) == 1.0
    assert Budget("5 epochs").per_second(4) == 0.0


def test_amounts_are_shown_with_their_unit() -> None:
    assert Budget("5 epochs").show(1) == "1 epoch"
    assert Budget("5 epochs").show(2.5) == "2.5 epochs"
    assert Budget("$5 at 1/h").show(3.2) == "$3.20"
    shown = [Budget("$5 at 1/h").show(amount) for amount in (0.0, 0.01, 0.0031, 0.00042, 1.234e-7, 1e-300)]
    assert shown == ["$0.00", "$0.01", "$0.0031", "$0.00042", "$0.00000012", "$0.00000000"]
    assert Budget("2h").show(3720) == "1h 02m"
    assert [show_seconds(s) for s in (0.0, 0.25, 1, 59.96, 61, 3599.6)] == [
        "0 ms",
        "250 ms",
        "1.0 s",
        "1m 00s",
        "1m 01s",
        "1h 00m",
    ]


@pytest.mark.parametrize("text", ["", "5", "1h and more", "h"])
def test_durations_that_cannot_be_read_are_errors(text: str) -> None:
    with pytest.raises(BudgetError, match="deadline"):
        parse_duration_s(text, "deadline")


@pytest.mark.parametrize("price", [-0.1, float("nan"), float("inf"), "1", None])
def test_prices_out_of_range_are_refused(price: float) -> None:
    with pytest.raises(BudgetError) as caught:
        Prices(price)
    rule = "must be a finite number, 0 or more"
    assert str(caught.value) == f"the price of a validation pass, {price!r} epochs, {rule}"


def test_a_budget_in_trials_is_for_trials_of_one_step() -> None:
    budget = Budget("20 trials")
    assert (budget.show(1), budget.show(7), str(budget)) == ("1 trial", "7 trials", "20 trials")
    budget.require_fit(1, 0.0)
    with pytest.raises(BudgetError, match=r"'20 trials' .* has 5 steps: write \"100 epochs\", .* 20 full trainings"):
        budget.require_fit(5, 0.0)
    with pytest.raises(BudgetError, match=r"each also pays 0.5 epochs for its validation: write \"20 epochs\""):
        budget.require_fit(1, 0.5)
    Budget("20 epochs").require_fit(5, 0.5)
