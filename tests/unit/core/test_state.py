"""The state of a study: what is charged for what, in every unit of the budget."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, Cost, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import ResumeCheck
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import DecisionError, StudyError


def new_ledger(budget: str = "100 epochs", **more: Any) -> Ledger:
    fields = {"max_steps": 5, "seed": 0, "policy": "random_search", "settings": {}, **more}
    return Ledger([StudyDefinition(space=Space({"x": Float(0, 1)}), budget=Budget(budget), **fields)])


def order(number: int = 0, trial: int = 0, until: int = 3, **more: Any) -> Order:
    return Order(number=number, trial=trial, config={"x": 0.5}, until=until, **more)


def make_receipt(step: int, value: float | None = 0.5, number: int = 0, trial: int = 0, **more: Any) -> Receipt:
    fields: dict[str, Any] = {"saved_step": step, "cost": Cost(setup=1, train=2, validate=3), **more}
    return Receipt(order=number, trial=trial, step=step, value=value, **fields)


def append_all(ledger: Ledger, *entries: Entry) -> Ledger:
    for entry in entries:
        ledger = ledger.append(entry)
    return ledger


def test_steps_and_validations_are_charged_when_they_are_reported() -> None:
    ledger = append_all(new_ledger(prices=Prices(0.25)), order())
    assert (ledger.spent, ledger.reserved, ledger.left) == (0, 3.75, 96.25)
    ledger = append_all(ledger, make_receipt(1), make_receipt(2))
    assert (ledger.spent, ledger.reserved) == (2.5, 1.25)
    ledger = append_all(ledger, make_receipt(3))
    assert (ledger.spent, ledger.reserved, ledger.open_orders) == (3.75, 0, {})


@pytest.mark.parametrize(("validate", "price"), [("each", 3 * 1.5), ("last", 3.5), ("none", 3.0)])
def test_only_ordered_validations_are_charged(validate: Any, price: float) -> None:
    ledger = append_all(
        new_ledger(prices=Prices(0.5)), order(validate=validate), make_receipt(1), make_receipt(2), make_receipt(3)
    )
    assert (ledger.spent, ledger.reserved) == (price, 0)


def test_a_failure_is_charged_and_closes_the_order() -> None:
    ledger = append_all(
        new_ledger(prices=Prices(0.5)),
        order(),
        make_receipt(1),
        make_receipt(2, None, status="failed", text="boom", saved_step=1),
    )
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, ledger.open_orders) == (2.5, 0, {})
    assert (trial.steps, trial.resumable_step, trial.failures, trial.failure) == (1, 1, 1, "boom")
    assert trial.is_ended
    assert trial.last_loss == math.inf
    ledger = append_all(ledger, order(1), make_receipt(2, 0.1, number=1))
    assert ledger.trials[0].failure == ""
    assert ledger.trials[0].last_loss == 0.1


def test_a_failure_without_text_is_a_failure() -> None:
    ledger = append_all(new_ledger(), order(), make_receipt(1, None, status="failed", text=" \n"))
    assert ledger.trials[0].failure == "failed"


def test_a_diverged_step_is_charged_and_closes_the_order() -> None:
    ledger = append_all(new_ledger(), order(), make_receipt(1, math.nan, status="diverged"))
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, trial.steps, trial.resumable_step) == (1, 0, 1, 1)
    assert trial.diverged
    assert trial.losses == [math.inf]
    assert ledger.best is None


def test_repeated_steps_cost_time_but_no_epochs_and_keep_their_first_value() -> None:
    for budget, cost in (("100 epochs", 3.0), ("100s", 5 * 6.0)):
        ledger = append_all(
            new_ledger(budget),
            order(until=2),
            make_receipt(1, 0.5),
            make_receipt(2, 0.4),
            StateLoss(trial=0, resumable_step=0),
        )
        ledger = append_all(
            ledger,
            order(1),
            make_receipt(1, 0.1, number=1),
            make_receipt(2, 0.2, number=1),
            make_receipt(3, 0.3, number=1),
        )
        assert ledger.spent == cost
        assert ledger.trials[0].values == [0.5, 0.4, 0.3]
        assert ledger.best is not None
        assert (ledger.best.best_step, ledger.best.best_loss) == (3, 0.3)
        assert ledger.state.by_kind["repeated"] == 12.0
        assert ledger.state.receipts == 5
        assert ledger.state.ok_receipts == 3


def test_a_failure_at_a_repeated_step_stays_within_the_reserve() -> None:
    ledger = append_all(
        new_ledger("4 epochs"),
        order(),
        make_receipt(1),
        make_receipt(2),
        make_receipt(3),
        StateLoss(trial=0, resumable_step=0),
        order(1, until=4),
    )
    assert ledger.spent + ledger.reserved == 4
    ledger = append_all(ledger, make_receipt(1, None, number=1, status="failed", text="boom", saved_step=0))
    assert (ledger.spent, ledger.reserved) == (4, 0)


def test_a_checkpoint_beyond_the_last_receipt_is_not_resumable() -> None:
    ledger = append_all(
        new_ledger(), order(), make_receipt(1), make_receipt(2, None, status="failed", text="x", saved_step=4)
    )
    assert ledger.trials[0].resumable_step == 1


def test_time_is_charged_by_kind() -> None:
    ledger = append_all(new_ledger("100s"), order(thinking_s=0.5, check=True), make_receipt(1))
    note = ResumeCheck(order=0, trial=0, step=2, seconds=4.0, continued=0.5, resumed=0.5, same=True).to_note()
    ledger = append_all(ledger, note, make_receipt(2), StateLoss(trial=0, resumable_step=0, seconds=7.0))
    kinds = {kind: seconds for kind, seconds in ledger.state.by_kind.items() if seconds}
    assert kinds == {"setup": 2.0, "train": 4.0, "validate": 6.0, "check": 4.0, "thinking": 0.5, "lost": 7.0}
    assert ledger.spent == ledger.state.seconds == sum(kinds.values())


def test_reserves_of_time_shrink_by_charged_time() -> None:
    ledger = append_all(new_ledger("$100 at 3600/h"), order(reserve=10.0))
    assert ledger.reserved == 10.0
    ledger = append_all(ledger, make_receipt(1))
    assert (ledger.spent, ledger.reserved, ledger.left) == (6.0, 4.0, 90.0)
    assert append_all(ledger, make_receipt(2)).reserved == 0.0  # the steps cost more than was reserved


def test_a_check_is_charged_once_and_only_if_ordered() -> None:
    note = ResumeCheck(order=0, trial=0, step=2, seconds=4.0, continued=0.5, resumed=0.5, same=True).to_note()
    with pytest.raises(DecisionError, match="does not include a resume check"):
        append_all(new_ledger(), order(), note)
    ledger = append_all(new_ledger(), order(check=True))
    assert ledger.reserved == 4
    ledger = append_all(ledger, make_receipt(1), note)
    assert (ledger.spent, ledger.reserved) == (2, 2)
    with pytest.raises(DecisionError, match="does not include a resume check"):
        append_all(ledger, note)
    ledger = append_all(ledger, make_receipt(2), make_receipt(3))
    assert (ledger.spent, ledger.reserved, ledger.state.check_ordered) == (4, 0, True)


def test_a_check_that_was_not_made_may_be_ordered_again() -> None:
    ledger = append_all(
        new_ledger(), order(check=True), make_receipt(1, None, status="failed", text="boom", saved_step=0)
    )
    assert (ledger.spent, ledger.reserved, ledger.state.check_ordered) == (1, 0, False)


def test_training_that_ends_by_itself_closes_the_order_and_limits_the_trial() -> None:
    ended = Note(topic="ended", facts={"order": 0, "trial": 0, "step": 1, "seconds": 2.0})
    ledger = append_all(new_ledger("100s"), order(), make_receipt(1), ended)
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.open_orders, trial.limit, trial.is_ended) == (8.0, {}, 1, True)
    assert trial.last_loss == 0.5


def test_an_end_before_the_first_step_is_charged_as_a_failure() -> None:
    ledger = append_all(new_ledger(), order(), Note(topic="ended", facts={"order": 0, "trial": 0, "step": 0}))
    trial = ledger.trials[0]
    assert (ledger.spent, ledger.reserved, trial.failures) == (1, 0, 1)
    assert trial.failure == "the training code ended before its first step: let it report after each step"


def test_a_released_order_costs_nothing() -> None:
    ledger = append_all(new_ledger(), order(), make_receipt(1), Note(topic="released", facts={"order": 0}))
    assert (ledger.spent, ledger.reserved, ledger.trials[0].resumable_step) == (1, 0, 1)
    assert (
        append_all(ledger, Note(topic="released", facts={"order": 0})).spent == 1
    )  # releasing it twice changes nothing


def test_the_best_trial_is_the_earliest_of_equals() -> None:
    for direction, best in (("min", 1), ("max", 0)):
        ledger = new_ledger(direction=direction)
        for trial, value in enumerate([0.9, 0.1, 0.9, 0.1]):
            ledger = append_all(ledger, order(trial, trial, until=1), make_receipt(1, value, number=trial, trial=trial))
        assert ledger.best is not None
        assert ledger.best.number == best


def test_the_best_config_is_the_config_of_the_best_step() -> None:
    first = Order(number=0, trial=0, config={"x": 0.1}, until=1)
    second = Order(number=1, trial=0, config={"x": 0.9}, until=2)
    ledger = append_all(new_ledger(), first, make_receipt(1, 0.2), second, make_receipt(2, 0.8, number=1))
    assert ledger.trials[0].config == {"x": 0.9}
    assert ledger.trials[0].best_config == {"x": 0.1}


# amendments ----------------------------------------------------------------------------------------------------------


def test_a_new_rate_does_not_change_what_was_spent() -> None:
    ledger = append_all(new_ledger("$100 at 3600/h per machine", workers=1), order(), make_receipt(1))
    assert ledger.spent == 6.0
    more_workers = append_all(ledger.fork(), Amendment(workers=4))
    assert more_workers.spent == 6.0
    assert append_all(more_workers, make_receipt(2)).spent == 6.0 + 6.0 / 4
    more_expensive = append_all(ledger, Amendment(budget=Budget("$100 at 7200/h per machine")))
    assert more_expensive.spent == 6.0
    assert append_all(more_expensive, make_receipt(2)).spent == 6.0 + 12.0


@pytest.mark.parametrize(
    ("budget", "changed", "words"),
    [
        (
            "100 epochs",
            "1 epochs",
            [
                "the budget 1 epochs is below the 3 epochs that the study has spent or ordered: "
                "it can be lowered to that amount, but not below it"
            ],
        ),
        ("100 epochs", "2 epochs", ["2 epochs", "3 epochs", "spent or ordered"]),
        ("100s", "5s", ["5.0s", "6.0 s", "has spent:"]),
        ("100 epochs", "100s", ["epochs", "seconds", "keep the unit"]),
        ("$9 at 1/h", "100s", ["dollars", "keep the unit"]),
    ],
)
def test_budgets_are_not_lowered_below_what_is_committed(budget: str, changed: str, words: list[str]) -> None:
    ledger = append_all(new_ledger(budget), order(), make_receipt(1))
    with pytest.raises(StudyError) as caught:
        append_all(ledger, Amendment(budget=Budget(changed)))
    for word in words:
        assert word in str(caught.value)


def test_budgets_may_be_lowered_to_what_is_committed() -> None:
    ledger = append_all(new_ledger(), order(), make_receipt(1), Amendment(budget=Budget("3 epochs")))
    assert ledger.left == 0
    assert append_all(new_ledger("100s"), order(), make_receipt(1), Amendment(budget=Budget("6s"))).left == 0


def test_another_policy_does_not_get_the_memo() -> None:
    ledger = append_all(new_ledger(), order(memo={"theta": [1.0]}))
    assert ledger.memo == {"theta": [1.0]}
    ledger = append_all(ledger, Amendment(policy="asha", settings={"reduction_factor": 4}))
    assert ledger.memo == {}
    assert (ledger.state.policy, ledger.state.settings) == ("asha", {"reduction_factor": 4})
    assert append_all(ledger, order(1, 1, memo={"x": [2.0]})).memo == {"x": [2.0]}


# refused entries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "entry",
    [
        make_receipt(1, number=1),
        make_receipt(1, trial=1),
        make_receipt(1, trial=-1),
        make_receipt(2),
        make_receipt(0),
        order(),
        order(2, 1),
        order(1, 5),
        order(1, -1),
    ],
)
def test_entries_that_do_not_come_next_are_refused(entry: Entry) -> None:
    with pytest.raises(DecisionError):
        append_all(new_ledger(), order(), entry)


def test_a_step_beyond_the_order_is_refused() -> None:
    with pytest.raises(DecisionError, match="not open"):
        append_all(new_ledger(), order(until=1), make_receipt(1), make_receipt(2))


def test_a_config_leaves_the_queue_when_its_trial_starts() -> None:
    mine = {"x": 0.5}
    ledger = append_all(
        new_ledger(), Note(topic="enqueue", facts={"config": mine}), Note(topic="enqueue", facts={"config": {"x": 1.0}})
    )
    assert list(ledger.queue) == [mine, {"x": 1.0}]
    assert list(append_all(ledger, order()).queue) == [{"x": 1.0}]
