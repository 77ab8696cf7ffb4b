"""From a decision to an order: what is allowed, what can be paid, what is reserved."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Entry, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError, SpaceError

X = {"x": 0.5}


def new_ledger(budget: str, **more: Any) -> Ledger:
    fields = {"max_steps": 9, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **fields)])


def train_steps(ledger: Ledger, steps: int, seconds: float = 1.0, trial: int | None = None) -> Ledger:
    """Return the ledger with a (new) trial trained for `steps` steps, each at that cost."""
    number = len(ledger.trials) if trial is None else trial
    first = 0 if trial is None else ledger.trials[trial].steps
    order = place_order(ledger, Train(trial=number, config=X, until=first + steps))
    assert order is not None
    ledger = ledger.append(order)
    for step in range(first + 1, order.until + 1):
        paid = Receipt(
            order=order.number, trial=number, step=step, value=1.0, cost=Cost(train=seconds), saved_step=step
        )
        ledger = ledger.append(paid)
    return ledger


@pytest.mark.parametrize(
    ("budget", "price", "validate", "until", "reserve"),
    [
        ("9 epochs", 0.0, "each", 9, 9.0),
        ("4 epochs", 0.0, "each", 4, 4.0),
        ("4 epochs", 1.0, "each", 2, 4.0),
        ("4 epochs", 1.0, "last", 3, 4.0),
        ("4 epochs", 1.0, "none", 4, 4.0),
        ("5 epochs", 0.25, "each", 4, 5.0),
        ("1 epochs", 0.0, "each", 1, 1.0),
    ],
)
def test_epoch_orders_are_shortened_to_what_can_be_paid(
    budget: str, price: float, validate: Any, until: int, reserve: float
) -> None:
    ledger = new_ledger(budget, prices=Prices(price))
    order = place_order(ledger, Train(trial=0, config=X, until=9, validate=validate))
    assert order is not None
    assert (order.until, order.reserve) == (until, reserve)
    total = ledger.budget.total
    assert ledger.append(order).left == total - reserve


def test_no_order_is_placed_when_nothing_is_left() -> None:
    assert place_order(train_steps(new_ledger("3 epochs"), 3), Train(trial=1, config=X, until=1)) is None
    assert place_order(new_ledger("1 epochs", prices=Prices(0.5)), Train(trial=0, config=X, until=1)) is None
    assert place_order(train_steps(new_ledger("3s"), 3), Train(trial=1, config=X, until=1)) is None


def test_a_price_of_a_third_never_exceeds_the_budget() -> None:
    ledger = new_ledger("10 epochs", prices=Prices(1 / 3))
    while (order := place_order(ledger, Train(trial=len(ledger.trials), config=X, until=1))) is not None:
        ledger = ledger.append(order)
        assert ledger.spent + ledger.reserved <= 10
        assert ledger.state.committed <= 10
    assert len(ledger.orders) == 7


def test_no_order_goes_beyond_the_full_training() -> None:
    order = place_order(new_ledger("100 epochs"), Train(trial=0, config=X, until=50))
    assert order is not None
    assert order.until == 9


def test_open_orders_keep_their_reserves() -> None:
    ledger = new_ledger("5 epochs")
    first = place_order(ledger, Train(trial=0, config=X, until=3))
    assert first is not None
    ledger = ledger.append(first)
    second = place_order(ledger, Train(trial=1, config=X, until=9))
    assert second is not None
    assert second.until == 2
    assert place_order(ledger.append(second), Train(trial=2, config=X, until=1)) is None


# time and dollars ----------------------------------------------------------------------------------------------------


def test_nothing_is_reserved_before_a_price_is_known() -> None:
    order = place_order(new_ledger("10s"), Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (9, 0.0, None)


def test_the_reserve_is_the_90_percent_quantile_of_the_trial_or_of_all() -> None:
    ledger = new_ledger("1000s")
    for seconds in (1.0,) * 8 + (5.0, 50.0):
        ledger = train_steps(ledger, 1, seconds)
    new = place_order(ledger, Train(trial=10, config=X, until=3))
    own = place_order(ledger, Train(trial=9, config=X, until=3))
    assert new is not None
    assert own is not None
    assert (new.reserve, own.reserve) == (15.0, 100.0)
    assert new.expected_cost == pytest.approx(3 * 6.3)
    assert own.expected_cost == 100.0


def test_time_orders_are_shortened_to_what_can_be_paid() -> None:
    ledger = train_steps(new_ledger("10s"), 2, seconds=2.0)  # 6 s left
    order = place_order(ledger, Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve) == (5, 6.0)
    slowly_decided = place_order(ledger, Train(trial=0, config=X, until=9), thinking_s=1.0)
    assert slowly_decided is not None
    assert slowly_decided.until == 4
    assert place_order(ledger, Train(trial=0, config=X, until=9), thinking_s=5.0) is None


def test_dollars_are_seconds_times_the_rate() -> None:
    ledger = train_steps(new_ledger("$10 at 3600/h"), 2, seconds=2.0)
    order = place_order(ledger, Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (5, 6.0, 6.0)
    shared = train_steps(new_ledger("$10 at 3600/h per machine", workers=2), 2, seconds=2.0)
    assert shared.spent == 2.0


def test_the_policy_may_set_the_reserve() -> None:
    ledger = new_ledger("10s")
    order = place_order(ledger, Train(trial=0, config=X, until=4, reserve=8.0))
    assert order is not None
    assert (order.until, order.reserve) == (4, 8.0)
    shorter = place_order(ledger, Train(trial=0, config=X, until=4, reserve=20.0))
    assert shorter is not None
    assert (shorter.until, shorter.reserve) == (2, 10.0)
    for reserve in (-1.0, math.nan, math.inf):
        with pytest.raises(DecisionError, match=r"reserve=.*0 or more"):
            place_order(ledger, Train(trial=0, config=X, until=4, reserve=reserve))


def test_steps_are_priced_from_the_resumable_step() -> None:
    ledger = train_steps(new_ledger("10s"), 4).append(
        StateLoss(trial=0, resumable_step=1)
    )  # 6 s left, 3 steps to repeat
    order = place_order(ledger, Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (7, 6.0, 6.0)
    tight = train_steps(ledger, 1, seconds=3.0, trial=None)  # 3 s left: they would pay for repeated steps only
    assert place_order(tight, Train(trial=0, config=X, until=9)) is None
    epochs = place_order(
        train_steps(new_ledger("10 epochs"), 4).append(StateLoss(trial=0, resumable_step=1)),
        Train(trial=0, config=X, until=9),
    )
    assert epochs is not None
    assert (epochs.until, epochs.reserve) == (9, 5.0)


# the resume check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("budget", "until", "check_start_s", "check"),
    [
        ("100 epochs", 3, 0.0, True),
        ("100 epochs", 3, None, False),
        ("99 epochs", 3, 0.0, False),  # above 1 % of the budget
        ("100 epochs", 1, 0.0, False),  # nothing to compare
        ("1000s", 3, 0.0, False),  # no price is known yet
    ],
)
def test_the_resume_check_is_ordered_only_if_it_is_cheap(
    budget: str, until: int, check_start_s: float | None, check: bool
) -> None:
    order = place_order(new_ledger(budget), Train(trial=0, config=X, until=until), check_start_s=check_start_s)
    assert order is not None
    assert order.check is check
    assert order.reserve == (0 if "s" in budget[-1] and "epochs" not in budget else until + check)


def test_the_resume_check_is_ordered_once() -> None:
    ledger = new_ledger("200 epochs")
    first = place_order(ledger, Train(trial=0, config=X, until=3), check_start_s=0.0)
    assert first is not None
    second = place_order(ledger.append(first), Train(trial=1, config=X, until=3), check_start_s=0.0)
    assert second is not None
    assert (first.check, second.check) == (True, False)


def test_the_resume_check_never_exceeds_the_budget() -> None:
    ledger = new_ledger("100 epochs", max_steps=100)
    whole = place_order(ledger, Train(trial=0, config=X, until=100), check_start_s=0.0)
    assert whole is not None
    assert (whole.until, whole.check) == (100, False)
    nearly = place_order(ledger, Train(trial=0, config=X, until=98), check_start_s=0.0)
    assert nearly is not None
    assert nearly.check
    assert ledger.append(nearly).reserved == 99


# refused decisions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Train(trial=2, config=X, until=1), ["trial=2", "unknown", "next new one is 1"]),
        (Train(trial=-1, config=X, until=1), ["trial=-1", "unknown"]),
        (Train(trial=1, config=X, until=0), ["until=0", "1 or more"]),
        (Train(trial=1, config=X, until=1.5), ["until=1.5"]),  # type: ignore[arg-type]
        (Train(trial=0, config=X, until=3), ["until=3", "trains nothing", "step 3"]),
        (Train(trial=1, config=X, until=1, validate="often"), ["'often'", "'each', 'last' or 'none'"]),  # type: ignore[arg-type]
    ],
)
def test_decisions_that_break_a_rule_are_refused(decision: Train, words: list[str]) -> None:
    with pytest.raises(DecisionError) as caught:
        place_order(train_steps(new_ledger("100 epochs"), 3), decision)
    for word in words:
        assert word in str(caught.value)


def test_a_trial_has_one_open_order_at_most() -> None:
    ledger = new_ledger("100 epochs")
    order = place_order(ledger, Train(trial=0, config=X, until=3))
    assert order is not None
    with pytest.raises(DecisionError, match="still being trained by order 0"):
        place_order(ledger.append(order), Train(trial=0, config=X, until=5))


def test_a_decision_beyond_the_limit_of_the_trial_is_refused() -> None:
    from shoestring.core.ledger.entries import Note

    ended: Entry = Note(topic="ended", facts={"order": 0, "trial": 0, "step": 3})
    ledger = train_steps(new_ledger("100 epochs"), 3).append(ended)
    with pytest.raises(DecisionError, match="beyond its end at step 3"):
        place_order(ledger, Train(trial=0, config=X, until=5))


def test_a_config_outside_the_space_is_refused() -> None:
    with pytest.raises(SpaceError, match="x = 7"):
        place_order(new_ledger("9 epochs"), Train(trial=0, config={"x": 7}, until=1))


def test_the_price_of_a_step() -> None:
    assert new_ledger("9 epochs", prices=Prices(0.5)).step_price() == 1.5
    assert math.isnan(new_ledger("9s").step_price())
    ledger = train_steps(train_steps(new_ledger("99s"), 2, 1.0), 2, 4.0)
    assert (ledger.step_price(), ledger.step_price(1), ledger.step_price(2)) == (2.5, 4.0, 2.5)
