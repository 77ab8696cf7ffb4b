"""All free workers are filled in one go, with the very orders that asking, storing and submitting one by one would give;
what the books keep beside trials and orders, so that this takes no time, is what these say."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.policy import Policy, find_cut_short
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Lost, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Books
from shoestring.runners.simulated.simulated_runner import Simulated, Source
from shoestring.stores.in_memory import Memory
from shoestring.study.decide import Thinking, decide
from shoestring.study.loop import run_in_memory
from shoestring.testing.policies import LISTED, ROUGH, SPACE, opened, small

NAMES = ["asha", "grid", "hyperband", "random_search", "sequential_halving", "successive_halving", "top_k_after_one"]
STUDIES = st.builds(
    lambda name, unit, listed, **more: opened(
        small(name), budget=f"{more.pop('amount')}{unit}", space=LISTED if listed else SPACE, **more
    ),
    name=st.sampled_from(NAMES),
    amount=st.integers(1, 80),
    unit=st.sampled_from([" epochs", "s"]),
    listed=st.booleans(),
    workers=st.integers(1, 12),
    max_steps=st.integers(1, 9),
    seed=st.integers(0, 99),
    direction=st.sampled_from(["min", "max"]),
)


def buy_one_by_one(start: Opened, policy: Policy, source: Source) -> list[Entry]:
    """The slow, obvious loop: one order is decided, stored and submitted before the next is thought of."""
    ledger, runner = Ledger([start]), Simulated(source, start.workers)
    runner.start(ledger)
    while True:
        order = None
        if len(ledger.open_orders) < start.workers:
            _, order = decide(ledger, policy, Thinking(is_free=True), runner.now)
        if order is not None:
            ledger = ledger.append(order)
            runner.submit(order, ledger.trials[order.trial].held)
            continue
        if not ledger.open_orders:
            return ledger.entries()
        wall, running = math.inf, runner.running()
        if ledger.budget.unit != "epochs":
            wall = (max(0.0, ledger.budget.total - ledger.spent) + math.fsum(running.values())) / len(running)
        for entry in runner.wait(wall) or runner.interrupt("the budget is spent"):
            ledger = ledger.append(entry)


@examples(15, thorough=60)
@given(STUDIES)
def test_the_same_orders_as_one_by_one(start: Opened) -> None:
    at_once: list[int] = []

    class Noting(Memory):
        def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: object) -> Ledger:
            at_once.append(sum(isinstance(entry, Order) for entry in entries))
            return super().append(study, ledger, *entries)

    policy = small(start.policy)
    runner = Simulated(ROUGH, start.workers)
    done = run_in_memory(Ledger([start]), policy, runner, store=Noting()).ledger
    assert done.entries() == buy_one_by_one(start, policy, ROUGH)
    affordable = math.inf if start.budget.unit != "epochs" else start.budget.total
    if start.policy == "random_search" and start.space is SPACE:
        assert max(at_once) >= min(start.workers, affordable // start.max_steps)


@examples(12, thorough=40)
@given(STUDIES, st.integers(0, 400), st.integers(0, 10**6))
def test_what_the_books_keep_is_what_trials_and_orders_say(start: Opened, deaths_at: int, chance: int) -> None:
    entries = run_in_memory(Ledger([start]), small(start.policy), Simulated(ROUGH, start.workers)).ledger.entries()
    ledger = Ledger(entries[:1])
    for at, entry in enumerate(entries[1:]):
        ledger = ledger.append(entry)
        _check_kept(ledger.books)
        _check_cut_short(ledger, (1, 3, 9))
        if at == deaths_at and ledger.trials:  # whatever follows is of another study: look at this one alone
            trial = ledger.trials[chance % len(ledger.trials)]
            for _ in range(3):
                ledger = ledger.append(Lost(trial=trial.number, held=0, seconds=1.0, why="killed", death=True))
                _check_kept(ledger.books)
            return


def _check_kept(books: Books) -> None:
    assert books.idle == sorted((trial.last_loss, trial.number) for trial in books.trials if trial.can_go_on)
    assert books.asked_open == sum(one.order.asked for one in books.open_orders.values())
    if books.budget.unit != "epochs":
        parts = [max(0.0, one.order.reserve - one.charged) for one in books.open_orders.values()]
        assert books.reserved == math.fsum(parts)


def _check_cut_short(ledger: Ledger, stops: Sequence[int]) -> None:
    """Against all trials: idle, and on their way since they were last at a stop; the first that was sent there."""
    cut = find_cut_short(ledger, tuple(stops))
    standing = [t for t in ledger.trials if t.can_go_on and t.steps not in stops and t.last_order >= 0]
    on_their_way = [t for t in standing if not any(step in stops for step in _steps_of_last_way(ledger, t.number))]
    assert (cut is not None) == bool(on_their_way)
    assert cut is None or cut.number in [t.number for t in on_their_way]


def _steps_of_last_way(ledger: Ledger, trial: int) -> list[int]:
    """The steps that its newest order bought."""
    past = ledger.trials[trial]
    return [step for step, number in enumerate(past.step_orders, 1) if number == past.last_order]


def test_dollars_keep_their_reserve_too() -> None:
    start = opened(small("asha"), budget="$40 at 3600/h", workers=5)
    ledger = Ledger([start])
    for entry in run_in_memory(ledger, small("asha"), Simulated(ROUGH, 5)).ledger.entries(1):
        ledger = ledger.append(entry)
        _check_kept(ledger.books)
    assert ledger.budget == Budget("$40 at 3600/h")
