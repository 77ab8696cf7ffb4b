"""The books: what is charged for what, in every unit of money."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amended, Cost, Entry, Lost, Note, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError, StudyError


def begun(budget: str = "100 epochs", **more: Any) -> Ledger:
    told = {"max_steps": 5, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([Opened(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **told)])


def order(number: int = 0, trial: int = 0, until: int = 3, **more: Any) -> Order:
    return Order(number=number, trial=trial, config={"x": 0.5}, until=until, **more)


def paid(step: int, value: float | None = 0.5, number: int = 0, trial: int = 0, **more: Any) -> Receipt:
    told: dict[str, Any] = {"saved": step, "cost": Cost(setup=1, train=2, validate=3), **more}
    return Receipt(order=number, trial=trial, step=step, value=value, **told)


def after(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger = ledger.append(entry)
    return ledger


def test_steps_and_validations_are_charged_as_they_come() -> None:
    ledger = after(begun(prices=Prices(0.25)), order())
    assert (ledger.spent, ledger.reserved, ledger.left) == (0, 3.75, 96.25)
    ledger = after(ledger, paid(1), paid(2))
    assert (ledger.spent, ledger.reserved) == (2.5, 1.25)
    ledger = after(ledger, paid(3))
    assert (ledger.spent, ledger.reserved, ledger.open_orders) == (3.75, 0, {})


@pytest.mark.parametrize(("validate", "price"), [("each", 3 * 1.5), ("last", 3.5), ("none", 3.0)])
def test_only_ordered_validations_are_charged(validate: Any, price: float) -> None:
    ledger = after(begun(prices=Prices(0.5)), order(validate=validate), paid(1), paid(2), paid(3))
    assert (ledger.spent, ledger.reserved) == (price, 0)


def test_a_failure_is_charged_closes_the_order_and_frees_the_rest() -> None:
    ledger = after(begun(prices=Prices(0.5)), order(), paid(1), paid(2, None, status="failed", text="boom", saved=1))
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, ledger.open_orders) == (2.5, 0, {})
    assert (trial.steps, trial.held, trial.failures, trial.failure) == (1, 1, 1, "boom")
    assert trial.is_stuck
    assert trial.last_loss == math.inf
    ledger = after(ledger, order(1), paid(2, 0.1, number=1))
    assert ledger.trials[0].failure == ""
    assert ledger.trials[0].last_loss == 0.1


def test_a_failure_without_words_is_still_one() -> None:
    ledger = after(begun(), order(), paid(1, None, status="failed", text=" \n"))
    assert ledger.trials[0].failure == "failed"


def test_a_diverged_step_is_charged_and_closes_the_order() -> None:
    ledger = after(begun(), order(), paid(1, math.nan, status="diverged"))
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, trial.steps, trial.held) == (1, 0, 1, 1)
    assert trial.diverged
    assert trial.losses == [math.inf]
    assert ledger.best is None


def test_steps_run_again_cost_time_but_no_epochs_and_keep_their_first_value() -> None:
    for budget, cost in (("100 epochs", 3.0), ("100s", 5 * 6.0)):
        ledger = after(begun(budget), order(until=2), paid(1, 0.5), paid(2, 0.4), Lost(trial=0, held=0))
        ledger = after(ledger, order(1), paid(1, 0.1, number=1), paid(2, 0.2, number=1), paid(3, 0.3, number=1))
        assert ledger.spent == cost
        assert ledger.trials[0].values == [0.5, 0.4, 0.3]
        assert ledger.best is not None
        assert (ledger.best.best_step, ledger.best.best_loss) == (3, 0.3)
        assert ledger.books.by_kind["repeated"] == 12.0
        assert ledger.books.receipts == 5
        assert ledger.books.ok_receipts == 3


def test_a_failure_at_a_step_run_again_stays_within_what_was_reserved() -> None:
    ledger = after(begun("4 epochs"), order(), paid(1), paid(2), paid(3), Lost(trial=0, held=0), order(1, until=4))
    assert ledger.spent + ledger.reserved == 4
    ledger = after(ledger, paid(1, None, number=1, status="failed", text="boom", saved=0))
    assert (ledger.spent, ledger.reserved) == (4, 0)


def test_what_was_saved_beyond_the_last_receipt_is_not_held() -> None:
    ledger = after(begun(), order(), paid(1), paid(2, None, status="failed", text="x", saved=4))
    assert ledger.trials[0].held == 1


def test_time_is_charged_by_kind() -> None:
    ledger = after(begun("100s"), order(thinking_s=0.5, check=True), paid(1))
    note = Note(topic="check", facts={"order": 0, "trial": 0, "step": 2, "seconds": 4.0})
    ledger = after(ledger, note, paid(2), Lost(trial=0, held=0, seconds=7.0))
    kinds = {kind: seconds for kind, seconds in ledger.books.by_kind.items() if seconds}
    assert kinds == {"setup": 2.0, "train": 4.0, "validate": 6.0, "check": 4.0, "thinking": 0.5, "lost": 7.0}
    assert ledger.spent == ledger.books.seconds == sum(kinds.values())


def test_reserves_of_time_shrink_with_what_was_charged() -> None:
    ledger = after(begun("$100 at 3600/h"), order(reserve=10.0))
    assert ledger.reserved == 10.0
    ledger = after(ledger, paid(1))
    assert (ledger.spent, ledger.reserved, ledger.left) == (6.0, 4.0, 90.0)
    assert after(ledger, paid(2)).reserved == 0.0  # it cost more than was reserved


def test_a_check_is_charged_once_and_only_if_ordered() -> None:
    note = Note(topic="check", facts={"order": 0, "trial": 0, "step": 2, "seconds": 4.0})
    with pytest.raises(DecisionError, match="did not pay for"):
        after(begun(), order(), note)
    ledger = after(begun(), order(check=True))
    assert ledger.reserved == 4
    ledger = after(ledger, paid(1), note)
    assert (ledger.spent, ledger.reserved) == (2, 2)
    with pytest.raises(DecisionError, match="did not pay for"):
        after(ledger, note)
    ledger = after(ledger, paid(2), paid(3))
    assert (ledger.spent, ledger.reserved, ledger.books.check_ordered) == (4, 0, True)


def test_a_check_that_never_came_about_is_freed_and_may_be_ordered_again() -> None:
    ledger = after(begun(), order(check=True), paid(1, None, status="failed", text="boom", saved=0))
    assert (ledger.spent, ledger.reserved, ledger.books.check_ordered) == (1, 0, False)


def test_an_end_of_its_own_closes_the_order_and_limits_the_trial() -> None:
    ended = Note(topic="ended", facts={"order": 0, "trial": 0, "step": 1, "seconds": 2.0})
    ledger = after(begun("100s"), order(), paid(1), ended)
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.open_orders, trial.limit, trial.is_stuck) == (8.0, {}, 1, True)
    assert trial.last_loss == 0.5


def test_an_end_before_the_first_step_is_a_failure_and_charged_as_one() -> None:
    ledger = after(begun(), order(), Note(topic="ended", facts={"order": 0, "trial": 0, "step": 0}))
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, trial.failures) == (1, 0, 1)
    assert "before its first step" in trial.failure


def test_a_released_order_costs_nothing() -> None:
    ledger = after(begun(), order(), paid(1), Note(topic="released", facts={"order": 0}))
    assert (ledger.spent, ledger.reserved, ledger.trials[0].held) == (1, 0, 1)
    assert after(ledger, Note(topic="released", facts={"order": 0})).spent == 1  # released twice: no harm


def test_the_best_is_the_earliest_of_equals_in_the_right_direction() -> None:
    for direction, best in (("min", 1), ("max", 0)):
        ledger = begun(direction=direction)
        for trial, value in enumerate([0.9, 0.1, 0.9, 0.1]):
            ledger = after(ledger, order(trial, trial, until=1), paid(1, value, number=trial, trial=trial))
        assert ledger.best is not None
        assert ledger.best.number == best


def test_the_best_config_is_the_one_its_step_was_trained_with() -> None:
    first = Order(number=0, trial=0, config={"x": 0.1}, until=1)
    second = Order(number=1, trial=0, config={"x": 0.9}, until=2)
    ledger = after(begun(), first, paid(1, 0.2), second, paid(2, 0.8, number=1))
    assert ledger.trials[0].config == {"x": 0.9}
    assert ledger.trials[0].best_config == {"x": 0.1}


# amendments ----------------------------------------------------------------------------------------------------------


def test_money_already_spent_keeps_the_rate_of_its_day() -> None:
    ledger = after(begun("$100 at 3600/h per machine", workers=1), order(), paid(1))
    assert ledger.spent == 6.0
    more_workers = after(ledger, Amended(workers=4))
    assert more_workers.spent == 6.0
    assert after(more_workers, paid(2)).spent == 6.0 + 6.0 / 4
    dearer = after(ledger, Amended(budget=Budget("$100 at 7200/h per machine")))
    assert dearer.spent == 6.0
    assert after(dearer, paid(2)).spent == 6.0 + 12.0


@pytest.mark.parametrize(
    ("budget", "changed", "said"),
    [
        ("100 epochs", "1 epochs", ["1 epochs", "3 epochs", "spent or ordered", "lowered to that"]),
        ("100 epochs", "2 epochs", ["spent or ordered"]),
        ("100s", "5s", ["5.0s", "6.0 s", "has spent:"]),
        ("100 epochs", "100s", ["epochs", "seconds", "keep the unit"]),
        ("$9 at 1/h", "100s", ["dollars", "keep the unit"]),
    ],
)
def test_budgets_are_not_lowered_below_what_is_committed(budget: str, changed: str, said: list[str]) -> None:
    ledger = after(begun(budget), order(), paid(1))
    with pytest.raises(StudyError) as caught:
        after(ledger, Amended(budget=Budget(changed)))
    for words in said:
        assert words in str(caught.value)


def test_budgets_may_be_lowered_to_what_is_committed() -> None:
    ledger = after(begun(), order(), paid(1), Amended(budget=Budget("3 epochs")))
    assert ledger.left == 0
    assert after(begun("100s"), order(), paid(1), Amended(budget=Budget("6s"))).left == 0


def test_another_policy_does_not_inherit_the_memo() -> None:
    ledger = after(begun(), order(memo={"theta": [1.0]}))
    assert ledger.memo == {"theta": [1.0]}
    ledger = after(ledger, Amended(policy="asha", settings={"reduction_factor": 4}))
    assert ledger.memo == {}
    assert (ledger.books.policy, ledger.books.settings) == ("asha", {"reduction_factor": 4})
    assert after(ledger, order(1, 1, memo={"x": [2.0]})).memo == {"x": [2.0]}


# what is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        paid(1, number=1),
        paid(1, trial=1),
        paid(1, trial=-1),
        paid(2),
        paid(0),
        order(),
        order(2, 1),
        order(1, 5),
        order(1, -1),
    ],
)
def test_entries_out_of_turn_are_refused(entry: Entry) -> None:
    with pytest.raises(DecisionError):
        after(begun(), order(), entry)


def test_no_step_beyond_the_order() -> None:
    with pytest.raises(DecisionError, match="not open"):
        after(begun(), order(until=1), paid(1), paid(2))


def test_a_queue_is_emptied_by_the_trial_that_takes_it() -> None:
    mine = {"x": 0.5}
    ledger = after(
        begun(), Note(topic="enqueue", facts={"config": mine}), Note(topic="enqueue", facts={"config": {"x": 1.0}})
    )
    assert list(ledger.queue) == [mine, {"x": 1.0}]
    assert list(after(ledger, order()).queue) == [{"x": 1.0}]
