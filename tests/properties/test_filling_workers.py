"""All free workers get orders at once, and these are the orders that deciding, storing and submitting one by one gives.

The totals that the state keeps for this purpose equal what follows from its trials and orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.policy import Policy, find_interrupted
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Entry, Order, StateLoss, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import StudyState
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, Source
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.decide import Thinking, decide
from shoestring.study.loop import run_in_memory
from shoestring.testing.policies import LISTED, ROUGH_CURVES, SPACE, make_definition, make_small_policy

NAMES = ["asha", "grid", "hyperband", "random_search", "sequential_halving", "successive_halving", "top_k_after_one"]
STUDIES = st.builds(
    lambda name, unit, listed, **more: make_definition(
        make_small_policy(name), budget=f"{more.pop('amount')}{unit}", space=LISTED if listed else SPACE, **more
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


def train_one_by_one(start: StudyDefinition, policy: Policy, source: Source) -> list[Entry]:
    """Run the simple loop: one order is decided, stored and submitted before the next one is decided."""
    ledger, runner = Ledger([start]), SimulatedRunner(source, start.workers)
    runner.start(ledger)
    while True:
        order = None
        if len(ledger.open_orders) < start.workers:
            _, order = decide(ledger, policy, Thinking(is_free=True), runner.now)
        if order is not None:
            ledger = ledger.append(order)
            runner.submit(order, ledger.trials[order.trial].resumable_step)
            continue
        if not ledger.open_orders:
            return ledger.entries()
        cutoff, running = math.inf, runner.running()
        if ledger.budget.unit != "epochs":
            cutoff = (max(0.0, ledger.budget.total - ledger.spent) + math.fsum(running.values())) / len(running)
        for entry in runner.wait(cutoff) or runner.interrupt("the budget is spent"):
            ledger = ledger.append(entry)


@examples(15, thorough=60)
@given(STUDIES)
def test_orders_equal_those_decided_one_by_one(start: StudyDefinition) -> None:
    at_once: list[int] = []

    class Noting(MemoryStore):
        def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: object) -> Ledger:
            at_once.append(sum(isinstance(entry, Order) for entry in entries))
            return super().append(study, ledger, *entries)

    policy = make_small_policy(start.policy)
    runner = SimulatedRunner(ROUGH_CURVES, start.workers)
    done = run_in_memory(Ledger([start]), policy, runner, store=Noting()).ledger
    assert done.entries() == train_one_by_one(start, policy, ROUGH_CURVES)
    affordable = math.inf if start.budget.unit != "epochs" else start.budget.total
    if start.policy == "random_search" and start.space is SPACE:
        assert max(at_once) >= min(start.workers, affordable // start.max_steps)


@examples(12, thorough=40)
@given(STUDIES, st.integers(0, 400), st.integers(0, 10**6))
def test_the_totals_of_the_state_follow_from_trials_and_orders(
    start: StudyDefinition, deaths_at: int, chance: int
) -> None:
    entries = run_in_memory(
        Ledger([start]), make_small_policy(start.policy), SimulatedRunner(ROUGH_CURVES, start.workers)
    ).ledger.entries()
    ledger = Ledger(entries[:1])
    for at, entry in enumerate(entries[1:]):
        ledger = ledger.append(entry)
        _check_totals(ledger.state)
        _check_interrupted(ledger, (1, 3, 9))
        if at == deaths_at and ledger.trials:  # compare this state only: the study differs from here on
            trial = ledger.trials[chance % len(ledger.trials)]
            for _ in range(3):
                ledger = ledger.append(
                    StateLoss(trial=trial.number, resumable_step=0, seconds=1.0, why="killed", death=True)
                )
                _check_totals(ledger.state)
            return


def _check_totals(state: StudyState) -> None:
    assert state.idle == sorted((trial.last_loss, trial.number) for trial in state.trials if trial.can_continue)
    assert state.open_external == sum(one.order.is_external for one in state.open_orders.values())
    if state.budget.unit != "epochs":
        parts = [max(0.0, one.order.reserve - one.charged) for one in state.open_orders.values()]
        assert state.reserved == math.fsum(parts)


def _check_interrupted(ledger: Ledger, stops: Sequence[int]) -> None:
    """Check that `find_interrupted` returns an idle trial between two stops, if a search of all trials finds one."""
    interrupted = find_interrupted(ledger, tuple(stops))
    candidates = [
        t
        for t in ledger.trials
        if t.can_continue and not any(step in stops for step in _steps_of_newest_order(ledger, t.number))
    ]
    assert (interrupted is not None) == bool(candidates)
    assert interrupted is None or interrupted.number in [t.number for t in candidates]


def _steps_of_newest_order(ledger: Ledger, trial: int) -> list[int]:
    """Return the steps of the trial's newest order."""
    trial_state = ledger.trials[trial]
    return [step for step, number in enumerate(trial_state.step_orders, 1) if number == trial_state.last_order]


def test_reserves_in_dollars_follow_from_the_open_orders() -> None:
    start = make_definition(make_small_policy("asha"), budget="$40 at 3600/h", workers=5)
    ledger = Ledger([start])
    for entry in run_in_memory(ledger, make_small_policy("asha"), SimulatedRunner(ROUGH_CURVES, 5)).ledger.entries(1):
        ledger = ledger.append(entry)
        _check_totals(ledger.state)
    assert ledger.budget == Budget("$40 at 3600/h")
