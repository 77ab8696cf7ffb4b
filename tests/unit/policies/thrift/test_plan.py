"""Several orders of one look, where thinking is dear."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.models.thrift.belief import Belief, believe
from shoestring.models.thrift.network import Network, shipped
from shoestring.policies.thrift import thrift
from shoestring.policies.thrift.plan import count_due, is_clear, next_choice, pick
from shoestring.policies.thrift.thrift import Thrift
from shoestring.testing.curves import Decaying
from shoestring.testing.policies import (
    Check,
    keeps_to_the_rules,
    opened,
    same_ledger_same_decision,
    simulate,
    takes_over,
    two_halves_equal_the_whole,
)

WIDE = Space({"lr": Float(1e-4, 1.0, log=True), "decay": Float(0.0, 1.0)})
LISTED = Space.listed([{"lr": 10.0 ** -(i / 10), "decay": i / 80} for i in range(80)])


def study(policy: Thrift, **told: Any) -> Ledger:
    start = opened(policy, **{"budget": "108 epochs", "max_steps": 9, "space": WIDE, **told})
    return simulate(policy, Decaying(), start).ledger


def is_look(order: Order) -> bool:
    return "expected_gain" in order.why


def is_planned(order: Order) -> bool:
    return "look that decided order" in str(order.why.get("stage"))


@pytest.mark.parametrize("space", [WIDE, LISTED])
def test_one_look_decides_several_orders(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def remember(networks: tuple[Network, ...], *told: Any) -> Belief:
        if networks is not shipped():  # in single precision; a second pass makes a close choice exact
            asked.append(told)
        return believe(networks, *told)

    monkeypatch.setattr(thrift, "believe", remember)

    ledger = study(Thrift(orders_per_look=4, opening=0.3), space=space)
    looks, planned = ([o for o in ledger.orders if kind(o)] for kind in (is_look, is_planned))
    assert len(looks) == len(asked) <= len(planned) <= 3 * len(looks)
    assert any(order.trial == len({o.trial for o in ledger.orders[: order.number]}) for order in planned)  # a newcomer
    assert ledger.spent == 108


def test_a_choice_that_is_no_longer_open_is_passed_over() -> None:
    ledger = study(Thrift(orders_per_look=6, opening=0.3))
    number = next(o.number for o in ledger.orders if is_look(o) and len(o.memo.get("plan", ())) >= 8)
    at = next(i for i, e in enumerate(ledger.entries()) if isinstance(e, Order) and e.number == number)
    before = ledger.fork(at + 1 + ledger.orders[number].until)
    first = next_choice(before)
    assert isinstance(first, Train)
    order = before.accept(first)
    assert order is not None
    second = next_choice(before.append(order))
    assert second is not None
    assert (second.trial, second.config) != (first.trial, first.config)


def test_dear_thinking_is_shared_by_more_orders() -> None:
    whole = study(Thrift(opening=0.3), budget="108s")
    cut = whole.fork(next(i for i, e in enumerate(whole.entries()) if isinstance(e, Order) and is_look(e)) + 2)
    order_s = sum(cut.books.by_kind[kind] for kind in ("setup", "train", "validate")) / len(cut.orders)

    def thinking(share: float) -> Ledger:
        return Ledger([replace(e, thinking_s=share * order_s) if isinstance(e, Order) else e for e in cut.entries()])

    assert count_due(cut) == count_due(thinking(0.04)) == 1
    assert count_due(thinking(0.24)) == 5
    assert count_due(thinking(100.0)) == 8


def test_thinking_is_free_where_steps_are_counted() -> None:
    ledger = study(Thrift(opening=0.3))
    dear = Ledger([replace(e, thinking_s=50.0) if isinstance(e, Order) else e for e in ledger.entries()])
    assert count_due(dear) == 1
    assert not any(order.memo for order in ledger.orders if is_look(order))


def test_who_promises_far_less_than_the_best_is_not_bought_unasked() -> None:
    index = np.array([0.1, 0.9, 1.0, 0.6, 0.4])
    assert pick(index, 4) == [2, 1, 3]
    assert pick(index, 2) == [2, 1]
    assert pick(np.zeros(2), 2) == [0]


@pytest.mark.parametrize(
    "check", [same_ledger_same_decision, two_halves_equal_the_whole, takes_over, keeps_to_the_rules]
)
def test_the_contract_holds_with_several_orders_a_look(check: Check) -> None:
    check(Thrift(orders_per_look=5, opening=0.2), light=True)


def test_a_look_decides_at_least_one_order() -> None:
    with pytest.raises(PolicyError, match="orders_per_look"):
        Thrift(orders_per_look=0)


def test_a_choice_is_clear_where_single_precision_cannot_change_it() -> None:
    index = np.array([0.1, 0.9, 1.0, 0.6, 0.4, -np.inf])
    assert is_clear(index, 1)
    assert is_clear(index, 4)
    assert not is_clear(np.array([0.1, 1.0 - 1e-6, 1.0]), 1)
    assert not is_clear(np.array([0.1, 0.8, 0.8 + 1e-6, 1.0]), 2)
    assert not is_clear(np.array([0.1, 0.8, 0.8 + 1e-6, 1.0]), 1)  # which of them is told as the runner-up
    assert is_clear(np.array([0.1, 0.1 + 1e-6, 0.8, 1.0]), 1)  # only the best is bought
    assert not is_clear(np.array([0.1, 0.5 + 1e-6, 1.0]), 2)  # at the edge of promising far less
    assert not is_clear(np.zeros(3), 1)
