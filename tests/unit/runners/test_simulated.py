"""The simulated runner: due times in order, a clock that jumps, a wall that cuts."""

from __future__ import annotations

import math
from typing import Any

import pytest

from shoestring.core.entries import Cost, Note, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import Budget
from shoestring.core.parameters import Float
from shoestring.core.space import Config, Space
from shoestring.runners.simulated import Simulated, StepOutcome


class Table:
    """{trial's x: list of (value, seconds)}; a string is a failure."""

    def __init__(self, **curves: list[Any]) -> None:
        self.curves = curves

    def step(self, config: Config, step: int) -> StepOutcome | None:
        curve = self.curves[config["name"]]
        if step > len(curve):
            return None
        value, seconds = curve[step - 1]
        cost = Cost(setup=0.5, train=seconds - 0.5)
        return StepOutcome(None, cost, failure=value) if isinstance(value, str) else StepOutcome(value, cost)


def order(number: int, name: str, until: int, **more: Any) -> Order:
    return Order(number=number, trial=number, config={"name": name}, until=until, **more)


def everything(runner: Simulated, until: float = math.inf) -> list[tuple[Any, ...]]:
    told: list[tuple[Any, ...]] = []
    while news := runner.wait(until):
        for entry in news:
            told.append(
                (entry.order, entry.step, entry.status, entry.at)
                if isinstance(entry, Receipt)
                else (entry.topic, entry.facts["step"])  # type: ignore[union-attr]
            )
    return told


def test_receipts_come_when_they_are_due_older_orders_first() -> None:
    runner = Simulated(Table(a=[(1.0, 2), (1.0, 2)], b=[(1.0, 1), (1.0, 3), (1.0, 1)]), workers=2)
    runner.submit(order(0, "a", 2), 0)
    runner.submit(order(1, "b", 3), 0)
    assert everything(runner) == [
        (1, 1, "ok", 1.0),
        (0, 1, "ok", 2.0),
        (0, 2, "ok", 4.0),
        (1, 2, "ok", 4.0),
        (1, 3, "ok", 5.0),
    ]
    assert runner.now() == 5.0
    assert runner.running() == {}


@pytest.mark.parametrize(
    ("curve", "told"),
    [
        ([(math.nan, 1)], [(0, 1, "diverged", 1.0)]),
        ([(math.inf, 1)], [(0, 1, "diverged", 1.0)]),
        ([(None, 1)], [(0, 1, "diverged", 1.0)]),
        ([(0.5, 1), ("boom", 2)], [(0, 1, "ok", 1.0), (0, 2, "failed", 3.0)]),
        ([(0.5, 1)], [(0, 1, "ok", 1.0), ("ended", 1)]),
        ([], [("ended", 0)]),
    ],
)
def test_bad_luck_closes_the_order(curve: list[Any], told: list[Any]) -> None:
    runner = Simulated(Table(a=curve))
    runner.submit(order(0, "a", 5), 0)
    assert everything(runner) == told
    assert runner.running() == {}


def test_a_missing_value_is_fine_where_none_was_ordered() -> None:
    runner = Simulated(Table(a=[(None, 1), (None, 1)]))
    runner.submit(order(0, "a", 2, validate="last"), 0)
    assert everything(runner) == [(0, 1, "ok", 1.0), (0, 2, "diverged", 2.0)]


def test_the_wall_cuts_running_steps_and_charges_what_they_used() -> None:
    runner = Simulated(Table(a=[(1.0, 10)], b=[(1.0, 1), (1.0, 10)]), workers=2)
    runner.submit(order(0, "a", 1), 0)
    runner.submit(order(1, "b", 2), 0)
    assert len(runner.wait(math.inf)) == 1
    assert runner.wait(4.0) == []
    assert runner.now() == 4.0
    assert runner.running() == {0: 0.0, 1: 1.0}
    cut = runner.interrupt("the wall")
    told = [(r.order, r.step, r.status, r.text, r.cost.total, r.saved) for r in cut if isinstance(r, Receipt)]
    assert told == [(0, 1, "interrupted", "the wall", 4.0, 0), (1, 2, "interrupted", "the wall", 3.0, 1)]
    assert runner.running() == {}
    assert runner.wait(math.inf) == []


def test_it_goes_on_at_the_moment_of_the_last_receipt() -> None:
    opened = Opened(space=Space({"x": Float(0, 1)}), budget=Budget("9s"), policy="p", settings={}, seed=0, max_steps=3)
    first = Order(number=0, trial=0, config={"x": 0.5}, until=3, at=0.0)
    paid = Receipt(order=0, trial=0, step=1, value=1.0, cost=Cost(train=2.0), saved=1, at=2.0)
    ledger = Ledger([opened, first, paid])

    class Steady:
        def step(self, config: Config, step: int) -> StepOutcome:
            return StepOutcome(1.0, Cost(train=2.0))

    runner = Simulated(Steady())
    assert runner.start(ledger) == {0: 1}
    runner.submit(first, 1)
    runner.submit(first, 1)  # known by its number: no second time
    assert everything(runner) == [(0, 2, "ok", 4.0), (0, 3, "ok", 6.0)]


def test_negative_costs_are_never_refunded() -> None:
    class Backwards:
        def step(self, config: Config, step: int) -> StepOutcome:
            cost = Cost(setup=-1.0, train=-5.0, validate=float("nan"))
            return StepOutcome(1.0, cost) if step == 1 else StepOutcome(None, cost, failure="boom")

    runner = Simulated(Backwards())
    runner.submit(order(0, "a", 2), 0)
    costs = [entry.cost for _ in range(2) for entry in runner.wait(math.inf) if isinstance(entry, Receipt)]
    assert costs == [Cost(), Cost()]


def test_ended_is_told_as_a_note() -> None:
    runner = Simulated(Table(a=[(0.5, 1)]))
    runner.submit(order(4, "a", 5), 1)
    assert runner.wait(math.inf) == [Note(topic="ended", facts={"order": 4, "trial": 4, "step": 1})]
