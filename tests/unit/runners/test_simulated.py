"""The simulated runner: steps are due in order, the clock jumps, and the budget limit ends steps."""

from __future__ import annotations

import math
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Note, Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.reports.facts import slow_workers, summary
from shoestring.reports.messages import status_report
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, SimulatedWorker, StepOutcome
from shoestring.study.loop import run_in_memory
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.policies import ROUGH_CURVES, make_definition


class Table:
    """Curves by the x of their trial, as lists of (value, seconds); a string is a failure."""

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


def list_entries(runner: SimulatedRunner, until: float = math.inf) -> list[tuple[Any, ...]]:
    summaries: list[tuple[Any, ...]] = []
    while events := runner.wait(until):
        for entry in events:
            summaries.append(
                (entry.order, entry.step, entry.status, entry.at)
                if isinstance(entry, Receipt)
                else (entry.topic, entry.facts["step"])  # type: ignore[union-attr]
            )
    return summaries


def test_receipts_come_when_they_are_due_older_orders_first() -> None:
    runner = SimulatedRunner(Table(a=[(1.0, 2), (1.0, 2)], b=[(1.0, 1), (1.0, 3), (1.0, 1)]), workers=2)
    runner.submit(order(0, "a", 2), 0)
    runner.submit(order(1, "b", 3), 0)
    assert list_entries(runner) == [
        (1, 1, "ok", 1.0),
        (0, 1, "ok", 2.0),
        (0, 2, "ok", 4.0),
        (1, 2, "ok", 4.0),
        (1, 3, "ok", 5.0),
    ]
    assert runner.now() == 5.0
    assert runner.running() == {}


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(math.nan, 1)], [(0, 1, "diverged", 1.0)]),
        ([(math.inf, 1)], [(0, 1, "diverged", 1.0)]),
        ([(None, 1)], [(0, 1, "diverged", 1.0)]),
        ([(0.5, 1), ("boom", 2)], [(0, 1, "ok", 1.0), (0, 2, "failed", 3.0)]),
        ([(0.5, 1)], [(0, 1, "ok", 1.0), ("ended", 1)]),
        ([], [("ended", 0)]),
    ],
)
def test_failure_divergence_and_the_end_of_a_curve_close_the_order(curve: list[Any], expected: list[Any]) -> None:
    runner = SimulatedRunner(Table(a=curve))
    runner.submit(order(0, "a", 5), 0)
    assert list_entries(runner) == expected
    assert runner.running() == {}


def test_a_missing_value_is_accepted_where_none_was_ordered() -> None:
    runner = SimulatedRunner(Table(a=[(None, 1), (None, 1)]))
    runner.submit(order(0, "a", 2, validate="last"), 0)
    assert list_entries(runner) == [(0, 1, "ok", 1.0), (0, 2, "diverged", 2.0)]


def test_the_budget_limit_ends_running_steps_and_charges_what_they_used() -> None:
    runner = SimulatedRunner(Table(a=[(1.0, 10)], b=[(1.0, 1), (1.0, 10)]), workers=2)
    runner.submit(order(0, "a", 1), 0)
    runner.submit(order(1, "b", 2), 0)
    assert len(runner.wait(math.inf)) == 1
    assert runner.wait(4.0) == []
    assert runner.now() == 4.0
    assert runner.running() == {0: 0.0, 1: 1.0}
    cut = runner.interrupt("the limit")
    interrupted = [
        (r.order, r.step, r.status, r.text, r.cost.total, r.saved_step) for r in cut if isinstance(r, Receipt)
    ]
    assert interrupted == [(0, 1, "interrupted", "the limit", 4.0, 0), (1, 2, "interrupted", "the limit", 3.0, 1)]
    assert runner.running() == {}
    assert runner.wait(math.inf) == []


def test_it_continues_at_the_time_of_the_last_receipt() -> None:
    definition = StudyDefinition(
        space=Space({"x": Float(0, 1)}), budget=Budget("9s"), policy="p", settings={}, seed=0, max_steps=3
    )
    first = Order(number=0, trial=0, config={"x": 0.5}, until=3, at=0.0)
    paid = Receipt(order=0, trial=0, step=1, value=1.0, cost=Cost(train=2.0), saved_step=1, at=2.0)
    ledger = Ledger([definition, first, paid])

    class Steady:
        def step(self, config: Config, step: int) -> StepOutcome:
            return StepOutcome(1.0, Cost(train=2.0))

    runner = SimulatedRunner(Steady())
    assert runner.start(ledger) == {0: 1}
    runner.submit(first, 1)
    runner.submit(first, 1)  # the same order again changes nothing
    assert list_entries(runner) == [(0, 2, "ok", 4.0), (0, 3, "ok", 6.0)]


def test_negative_costs_are_never_refunded() -> None:
    class Backwards:
        def step(self, config: Config, step: int) -> StepOutcome:
            cost = Cost(setup=-1.0, train=-5.0, validate=float("nan"))
            return StepOutcome(1.0, cost) if step == 1 else StepOutcome(None, cost, failure="boom")

    runner = SimulatedRunner(Backwards())
    runner.submit(order(0, "a", 2), 0)
    costs = [entry.cost for _ in range(2) for entry in runner.wait(math.inf) if isinstance(entry, Receipt)]
    assert costs == [Cost(), Cost()]


def test_the_end_of_a_curve_is_a_note() -> None:
    runner = SimulatedRunner(Table(a=[(0.5, 1)]))
    runner.submit(order(4, "a", 5), 1)
    assert runner.wait(math.inf) == [Note(topic="ended", facts={"order": 4, "trial": 4, "step": 1})]


# workers that differ -------------------------------------------------------------------------------------------------

WORKERS = [
    SimulatedWorker("fast"),
    SimulatedWorker("slow", speed=0.25, price_factor=0.5),
    SimulatedWorker("expensive", 2.0, 3.0),
]


def test_the_first_free_worker_takes_the_order_at_its_speed_and_price() -> None:
    runner = SimulatedRunner(Table(a=[(1.0, 2)], b=[(1.0, 2)], c=[(1.0, 2), (1.0, 2)], d=[(1.0, 2)]), WORKERS)
    assert runner.workers == 3
    for number, name in enumerate("abc"):
        runner.submit(order(number, name, 2 if name == "c" else 1), 0)
    events = [entry for _ in range(2) for entry in runner.wait(math.inf)]
    assert [(e.worker, e.price_factor, e.at, e.cost.total) for e in events if isinstance(e, Receipt)] == [
        ("expensive", 3.0, 1.0, 1.0),
        ("fast", 1.0, 2.0, 2.0),
    ]
    runner.submit(order(3, "d", 1), 0)  # the first place is free again
    events = [entry for _ in range(3) for entry in runner.wait(math.inf)]
    assert [(e.order, e.worker, e.at) for e in events if isinstance(e, Receipt)] == [
        (2, "expensive", 2.0),
        (3, "fast", 4.0),
        (1, "slow", 8.0),
    ]


@pytest.mark.parametrize("budget", ["60s", "$60 at 3600/h"])
def test_with_prices_the_budget_holds_and_a_stopped_study_continues_with_the_same_workers(budget: str) -> None:
    policy = policies.make("asha")
    start = make_definition(policy, budget=budget, workers=3)
    whole = run_in_memory(Ledger([start]), policy, SimulatedRunner(ROUGH_CURVES, WORKERS)).ledger
    steps = [entry for entry in whole.entries() if isinstance(entry, Receipt)]
    prices = [entry.cost.total * (entry.price_factor if budget.startswith("$") else 1.0) for entry in steps]
    assert whole.spent == pytest.approx(math.fsum(prices))
    assert 50 < whole.spent <= 60 + 1e-9
    assert {entry.worker for entry in steps} == {"fast", "slow", "expensive"}
    polls = iter(range(25))
    cut = run_in_memory(
        Ledger([start]), policy, SimulatedRunner(ROUGH_CURVES, WORKERS), should_stop=lambda: next(polls, None) is None
    )
    assert cut.ledger.open_orders
    again = run_in_memory(cut.ledger, policy, SimulatedRunner(ROUGH_CURVES, WORKERS)).ledger
    assert again.entries() == whole.entries()


def test_the_budget_limit_is_reached_sooner_with_expensive_workers() -> None:
    runner = SimulatedRunner(Table(a=[(1.0, 40)], b=[(1.0, 100)], c=[(1.0, 200)]), WORKERS)
    start = make_definition(
        policies.make("random_search"), budget="$90 at 3600/h", space=Space.from_configs([{"name": n} for n in "abc"])
    )
    ledger = run_in_memory(
        Ledger([replace(start, max_steps=1, workers=3)]), policies.make("random_search"), runner
    ).ledger
    assert ledger.spent == pytest.approx(90.0)  # at 1 + 0.5 + 3 dollars a second: after 20 s
    assert ledger.state.clock == pytest.approx(20.0)
    assert {entry.status for entry in ledger.entries() if isinstance(entry, Receipt)} == {"interrupted"}


def test_a_slow_worker_is_shown_in_the_status() -> None:
    policy = policies.make("random_search")
    workers = [SimulatedWorker(f"{n} on node-{n}", speed=1 / 3 if n == 2 else 1.0) for n in range(4)]
    start = make_definition(policy, budget="400 epochs", workers=4)
    ledger = run_in_memory(Ledger([start]), policy, SimulatedRunner(DecayingCurves(spread=1.2), workers)).ledger
    (slow,) = slow_workers(ledger)
    assert slow["worker"] == "2 on node-2"
    assert 2.5 < slow["times_slower"] < 3.5
    assert slow["steps"] == sum(isinstance(e, Receipt) and e.worker == "2 on node-2" for e in ledger.entries())
    assert summary("s", ledger, None)["slow_workers"] == [slow]
    console = Console(width=200, record=True, file=StringIO())
    console.print(status_report("s", ledger, None))
    assert "2 on node-2" in console.export_text()
    same_speed = run_in_memory(Ledger([start]), policy, SimulatedRunner(DecayingCurves(spread=1.2), 4)).ledger
    assert slow_workers(same_speed) == []


def test_a_worker_is_compared_with_the_other_workers_only() -> None:
    policy = policies.make("random_search")
    workers = [SimulatedWorker(f"{n} on node-{n}", speed=1 / (1 + n)) for n in range(2)]
    start = make_definition(policy, budget="200 epochs", workers=2)
    ledger = run_in_memory(Ledger([start]), policy, SimulatedRunner(DecayingCurves(spread=1.0), workers)).ledger
    (slow,) = slow_workers(ledger)
    assert (slow["worker"], slow["times_slower"]) == ("1 on node-1", pytest.approx(2.0))
