"""From a decision to an order: what is allowed, what fits, what is reserved."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Cost, Entry, Lost, Opened, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError, SpaceError

X = {"x": 0.5}


def begun(budget: str, **more: Any) -> Ledger:
    told = {"max_steps": 9, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([Opened(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **told)])


def bought(ledger: Ledger, steps: int, seconds: float = 1.0, trial: int | None = None) -> Ledger:
    """With a (new) trial trained by `steps`, each at that price."""
    number = len(ledger.trials) if trial is None else trial
    first = 0 if trial is None else ledger.trials[trial].steps
    order = ledger.accept(Train(trial=number, config=X, until=first + steps))
    assert order is not None
    ledger = ledger.append(order)
    for step in range(first + 1, order.until + 1):
        paid = Receipt(order=order.number, trial=number, step=step, value=1.0, cost=Cost(train=seconds), saved=step)
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
    ledger = begun(budget, prices=Prices(price))
    order = ledger.accept(Train(trial=0, config=X, until=9, validate=validate))
    assert order is not None
    assert (order.until, order.reserve) == (until, reserve)
    assert ledger.append(order).left == ledger.budget.total - reserve


def test_nothing_fits_into_nothing() -> None:
    assert bought(begun("3 epochs"), 3).accept(Train(trial=1, config=X, until=1)) is None
    assert begun("1 epochs", prices=Prices(0.5)).accept(Train(trial=0, config=X, until=1)) is None
    assert bought(begun("3s"), 3).accept(Train(trial=1, config=X, until=1)) is None


def test_a_price_in_thirds_never_passes_the_wall() -> None:
    ledger = begun("10 epochs", prices=Prices(1 / 3))
    while (order := ledger.accept(Train(trial=len(ledger.trials), config=X, until=1))) is not None:
        ledger = ledger.append(order)
        assert ledger.spent + ledger.reserved <= 10
        assert ledger.books.committed <= 10
    assert len(ledger.orders) == 7


def test_no_order_goes_beyond_the_longest_training() -> None:
    order = begun("100 epochs").accept(Train(trial=0, config=X, until=50))
    assert order is not None
    assert order.until == 9


def test_open_orders_hold_their_money() -> None:
    ledger = begun("5 epochs")
    first = ledger.accept(Train(trial=0, config=X, until=3))
    assert first is not None
    ledger = ledger.append(first)
    second = ledger.accept(Train(trial=1, config=X, until=9))
    assert second is not None
    assert second.until == 2
    assert ledger.append(second).accept(Train(trial=2, config=X, until=1)) is None


# time and money ------------------------------------------------------------------------------------------------------


def test_before_any_price_is_known_nothing_is_reserved() -> None:
    order = begun("10s").accept(Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (9, 0.0, None)


def test_the_reserve_is_the_90_percent_quantile_of_own_steps_else_of_all() -> None:
    ledger = begun("1000s")
    for seconds in (1.0,) * 8 + (5.0, 50.0):
        ledger = bought(ledger, 1, seconds)
    new = ledger.accept(Train(trial=10, config=X, until=3))
    own = ledger.accept(Train(trial=9, config=X, until=3))
    assert new is not None
    assert own is not None
    assert (new.reserve, own.reserve) == (15.0, 100.0)
    assert new.expected_cost == pytest.approx(3 * 6.3)
    assert own.expected_cost == 100.0


def test_time_orders_are_shortened_to_what_can_be_paid() -> None:
    ledger = bought(begun("10s"), 2, seconds=2.0)  # 6 s left
    order = ledger.accept(Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve) == (5, 6.0)
    thinking = ledger.accept(Train(trial=0, config=X, until=9), thinking_s=1.0)
    assert thinking is not None
    assert thinking.until == 4
    assert ledger.accept(Train(trial=0, config=X, until=9), thinking_s=5.0) is None


def test_dollars_are_seconds_at_their_rate() -> None:
    ledger = bought(begun("$10 at 3600/h"), 2, seconds=2.0)
    order = ledger.accept(Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (5, 6.0, 6.0)
    shared = bought(begun("$10 at 3600/h per machine", workers=2), 2, seconds=2.0)
    assert shared.spent == 2.0


def test_the_policy_may_name_its_own_reserve() -> None:
    ledger = begun("10s")
    order = ledger.accept(Train(trial=0, config=X, until=4, reserve=8.0))
    assert order is not None
    assert (order.until, order.reserve) == (4, 8.0)
    shorter = ledger.accept(Train(trial=0, config=X, until=4, reserve=20.0))
    assert shorter is not None
    assert (shorter.until, shorter.reserve) == (2, 10.0)
    for reserve in (-1.0, math.nan, math.inf):
        with pytest.raises(DecisionError, match=r"reserve=.*0 or more"):
            ledger.accept(Train(trial=0, config=X, until=4, reserve=reserve))


def test_a_lost_state_is_priced_from_what_is_held() -> None:
    ledger = bought(begun("10s"), 4).append(Lost(trial=0, held=1))  # 6 s left, 3 steps to repeat
    order = ledger.accept(Train(trial=0, config=X, until=9))
    assert order is not None
    assert (order.until, order.reserve, order.expected_cost) == (7, 6.0, 6.0)
    tight = bought(ledger, 1, seconds=3.0, trial=None)  # 3 s left: only repeats would fit
    assert tight.accept(Train(trial=0, config=X, until=9)) is None
    epochs = bought(begun("10 epochs"), 4).append(Lost(trial=0, held=1)).accept(Train(trial=0, config=X, until=9))
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
def test_the_resume_check_is_ordered_where_it_is_cheap(
    budget: str, until: int, check_start_s: float | None, check: bool
) -> None:
    order = begun(budget).accept(Train(trial=0, config=X, until=until), check_start_s=check_start_s)
    assert order is not None
    assert order.check is check
    assert order.reserve == (0 if "s" in budget[-1] and "epochs" not in budget else until + check)


def test_the_resume_check_is_ordered_once() -> None:
    ledger = begun("200 epochs")
    first = ledger.accept(Train(trial=0, config=X, until=3), check_start_s=0.0)
    assert first is not None
    second = ledger.append(first).accept(Train(trial=1, config=X, until=3), check_start_s=0.0)
    assert second is not None
    assert (first.check, second.check) == (True, False)


def test_the_resume_check_never_passes_the_wall() -> None:
    ledger = begun("100 epochs", max_steps=100)
    whole = ledger.accept(Train(trial=0, config=X, until=100), check_start_s=0.0)
    assert whole is not None
    assert (whole.until, whole.check) == (100, False)
    nearly = ledger.accept(Train(trial=0, config=X, until=98), check_start_s=0.0)
    assert nearly is not None
    assert nearly.check
    assert ledger.append(nearly).reserved == 99


# what a policy may not do --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (Train(trial=2, config=X, until=1), ["trial=2", "unknown", "next new one is 1"]),
        (Train(trial=-1, config=X, until=1), ["trial=-1", "unknown"]),
        (Train(trial=1, config=X, until=0), ["until=0", "1 or more"]),
        (Train(trial=1, config=X, until=1.5), ["until=1.5"]),  # type: ignore[arg-type]
        (Train(trial=0, config=X, until=3), ["until=3", "buys nothing", "3 steps"]),
        (Train(trial=1, config=X, until=1, validate="often"), ["'often'", "'each', 'last' or 'none'"]),  # type: ignore[arg-type]
    ],
)
def test_decisions_that_no_ledger_can_take(decision: Train, said: list[str]) -> None:
    with pytest.raises(DecisionError) as caught:
        bought(begun("100 epochs"), 3).accept(decision)
    for words in said:
        assert words in str(caught.value)


def test_one_order_a_trial_at_a_time() -> None:
    ledger = begun("100 epochs")
    order = ledger.accept(Train(trial=0, config=X, until=3))
    assert order is not None
    with pytest.raises(DecisionError, match="still being trained by order 0"):
        ledger.append(order).accept(Train(trial=0, config=X, until=5))


def test_beyond_the_end_of_the_code() -> None:
    from shoestring.core.ledger.entries import Note

    ended: Entry = Note(topic="ended", facts={"order": 0, "trial": 0, "step": 3})
    ledger = bought(begun("100 epochs"), 3).append(ended)
    with pytest.raises(DecisionError, match="beyond its end at step 3"):
        ledger.accept(Train(trial=0, config=X, until=5))


def test_a_config_outside_the_space_is_refused() -> None:
    with pytest.raises(SpaceError, match="x = 7"):
        begun("9 epochs").accept(Train(trial=0, config={"x": 7}, until=1))


def test_the_price_of_a_step() -> None:
    assert begun("9 epochs", prices=Prices(0.5)).step_price() == 1.5
    assert math.isnan(begun("9s").step_price())
    ledger = bought(bought(begun("99s"), 2, 1.0), 2, 4.0)
    assert (ledger.step_price(), ledger.step_price(1), ledger.step_price(2)) == (2.5, 4.0, 2.5)
