"""Several orders from one pass of the network, where a pass is expensive."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.models.thrift.lowest_losses import LowestLosses, predict_lowest_losses
from shoestring.models.thrift.network import Network, load_shipped_networks
from shoestring.policies.thrift import thrift
from shoestring.policies.thrift.plan import choose_arms, count_orders_due, is_clear, next_planned_order
from shoestring.policies.thrift.thrift import Thrift
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.policies import (
    Check,
    check_decisions_repeat,
    check_orders,
    check_restart,
    check_takeover,
    make_definition,
    simulate,
)

WIDE = Space({"lr": Float(1e-4, 1.0, log=True), "decay": Float(0.0, 1.0)})
LISTED = Space.from_configs([{"lr": 10.0 ** -(i / 10), "decay": i / 80} for i in range(80)])


def study(policy: Thrift, **more: Any) -> Ledger:
    start = make_definition(policy, **{"budget": "108 epochs", "max_steps": 9, "space": WIDE, **more})
    return simulate(policy, DecayingCurves(), start).ledger


def is_by_network(order: Order) -> bool:
    return "expected_gain" in order.why


def is_planned(order: Order) -> bool:
    return "from the network pass of order" in str(order.why.get("stage"))


@pytest.mark.parametrize("space", [WIDE, LISTED])
def test_one_pass_decides_several_orders(space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[None] = []

    def count_pass(networks: tuple[Network, ...], *arguments: Any) -> LowestLosses:
        if networks is not load_shipped_networks():  # in single precision; a second pass makes a close choice exact
            passes.append(None)
        return predict_lowest_losses(networks, *arguments)

    monkeypatch.setattr(thrift, "predict_lowest_losses", count_pass)

    ledger = study(Thrift(orders_per_pass=4, opening=0.3), space=space)
    first, planned = ([o for o in ledger.orders if kind(o)] for kind in (is_by_network, is_planned))
    assert len(first) == len(passes) <= len(planned) <= 3 * len(first)
    assert any(order.trial == len({o.trial for o in ledger.orders[: order.number]}) for order in planned)  # a new trial
    assert ledger.spent == 108


def test_a_choice_that_is_no_longer_possible_is_skipped() -> None:
    ledger = study(Thrift(orders_per_pass=6, opening=0.3))
    number = next(o.number for o in ledger.orders if is_by_network(o) and len(o.memo.get("plan", ())) >= 8)
    at = next(i for i, e in enumerate(ledger.entries()) if isinstance(e, Order) and e.number == number)
    before = ledger.fork(at + 1 + ledger.orders[number].until)
    first = next_planned_order(before)
    assert isinstance(first, Train)
    order = place_order(before, first)
    assert order is not None
    second = next_planned_order(before.append(order))
    assert second is not None
    assert (second.trial, second.config) != (first.trial, first.config)


def test_an_expensive_pass_decides_more_orders() -> None:
    whole = study(Thrift(opening=0.3), budget="108s")
    cut = whole.fork(next(i for i, e in enumerate(whole.entries()) if isinstance(e, Order) and is_by_network(e)) + 2)
    order_s = sum(cut.state.by_kind[kind] for kind in ("setup", "train", "validate")) / len(cut.orders)

    def set_thinking(share: float) -> Ledger:
        return Ledger([replace(e, thinking_s=share * order_s) if isinstance(e, Order) else e for e in cut.entries()])

    assert count_orders_due(cut) == count_orders_due(set_thinking(0.04)) == 1
    assert count_orders_due(set_thinking(0.24)) == 5
    assert count_orders_due(set_thinking(100.0)) == 8


def test_a_pass_is_free_under_a_budget_in_steps() -> None:
    ledger = study(Thrift(opening=0.3))
    slow = Ledger([replace(e, thinking_s=50.0) if isinstance(e, Order) else e for e in ledger.entries()])
    assert count_orders_due(slow) == 1
    assert not any(order.memo for order in ledger.orders if is_by_network(order))


def test_arms_far_below_the_best_are_not_chosen() -> None:
    index = np.array([0.1, 0.9, 1.0, 0.6, 0.4])
    assert choose_arms(index, 4) == [2, 1, 3]
    assert choose_arms(index, 2) == [2, 1]
    assert choose_arms(np.zeros(2), 2) == [0]


@pytest.mark.parametrize("check", [check_decisions_repeat, check_restart, check_takeover, check_orders])
def test_the_contract_holds_with_several_orders_per_pass(check: Check) -> None:
    check(Thrift(orders_per_pass=5, opening=0.2), light=True)


def test_a_pass_decides_at_least_one_order() -> None:
    with pytest.raises(PolicyError, match="orders_per_pass"):
        Thrift(orders_per_pass=0)


def test_a_choice_is_clear_where_single_precision_cannot_change_it() -> None:
    index = np.array([0.1, 0.9, 1.0, 0.6, 0.4, -np.inf])
    assert is_clear(index, 1)
    assert is_clear(index, 4)
    assert not is_clear(np.array([0.1, 1.0 - 1e-6, 1.0]), 1)
    assert not is_clear(np.array([0.1, 0.8, 0.8 + 1e-6, 1.0]), 2)
    assert not is_clear(np.array([0.1, 0.8, 0.8 + 1e-6, 1.0]), 1)  # which of them is the runner-up
    assert is_clear(np.array([0.1, 0.1 + 1e-6, 0.8, 1.0]), 1)  # only the best is trained
    assert not is_clear(np.array([0.1, 0.5 + 1e-6, 1.0]), 2)  # at the limit of what is far below the best
    assert not is_clear(np.zeros(3), 1)
