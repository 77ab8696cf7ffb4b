"""No worker waits while a trial can be trained: how each race uses workers that its next round does not need."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.policies.halving import sequential_halving
from shoestring.policies.halving.brackets import BRACKETS_VIEW
from shoestring.policies.halving.hyperband import Hyperband, make_brackets
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.testing.curves import DecayingCurves, ParallelCurves
from shoestring.testing.policies import LISTED, ROUGH_CURVES, make_definition, simulate

FINISH_EARLY = "the best trials share the rest of the budget"


@dataclass(frozen=True)
class RecordsWaits:
    """A policy that records, each time it waits, how many trials could have continued."""

    policy: Policy
    n_could_continue: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        decision = self.policy.decide(ledger, rng)
        if isinstance(decision, Wait):
            self.n_could_continue.append(sum(trial.can_continue for trial in ledger.trials))
        return decision


def utilisation(ledger: Ledger) -> float:
    """Return the busy share of all workers until the last order, since nothing can follow it."""
    end = max(order.at for order in ledger.orders)
    steps = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    busy = sum(max(0.0, min(step.at, end) - (step.at - step.cost.total)) for step in steps)
    return busy / (ledger.workers * end)


@pytest.mark.parametrize("name", ["asha", "hyperband", "successive_halving"])
def test_no_worker_waits_when_a_table_is_used_up_and_a_trial_can_continue(name: str) -> None:
    policy = RecordsWaits(policies.make(name))
    ledger = simulate(
        policy, ROUGH_CURVES, make_definition(policy.policy, space=LISTED, budget="60 epochs", workers=5)
    ).ledger
    assert len(ledger.trials) == 7
    assert policy.n_could_continue  # it waited, while all other trials were being trained
    assert set(policy.n_could_continue) == {0}


def test_hyperband_begins_the_next_bracket_while_one_waits() -> None:
    policy = Hyperband()
    ledger = simulate(
        policy, DecayingCurves(), make_definition(policy, budget="400 epochs", max_steps=9, workers=12)
    ).ledger
    order_places = [(order.why["bracket"], order.why["rung"]) for order in ledger.orders]
    assert order_places.index((1, 0)) < order_places.index((0, 1))  # 12 workers, 9 arms in the first bracket
    assert utilisation(ledger) > 0.99
    arms: dict[int, list[int]] = {}
    for order in ledger.orders:
        if order.why["rung"] == 0:
            arms.setdefault(int(str(order.why["bracket"])), []).append(order.trial)
    for bracket in (0, 1, 2, 3):  # each finished bracket has the arms and steps of its plan
        plan = make_brackets(9, 1, 3)[bracket % 3]
        steps = [ledger.trials[number].steps for number in arms[bracket]]
        assert [sum(step >= rung.until for step in steps) for rung in plan] == [rung.arms for rung in plan]


def test_finished_brackets_are_dropped() -> None:
    policy = Hyperband()
    whole = simulate(policy, ROUGH_CURVES, make_definition(policy, budget="500 epochs", max_steps=9, workers=4)).ledger
    carried, most = Ledger(whole.entries()[:1]), 0
    for entry in whole.entries(1):
        carried = carried.append(entry)
        most = max(most, len(carried.view(BRACKETS_VIEW).rounds))
    last = max(int(str(order.why["bracket"])) for order in whole.orders)
    assert carried.view(BRACKETS_VIEW) == Ledger(whole.entries()).view(BRACKETS_VIEW)
    assert last > 20
    assert most < 10


def test_a_bracket_continues_after_the_third_death_of_its_last_arm() -> None:
    """The third death closes an order without a receipt, and the bracket must not wait for it."""
    policy = Hyperband()
    ledger = Ledger([make_definition(policy, max_steps=3, workers=3)])
    rng = ledger.decision_rng()
    for _ in range(3):
        order = place_order(ledger, policy.decide(ledger, rng))  # type: ignore[arg-type]
        assert order is not None
        ledger = ledger.append(order)
    for number in (0, 1):
        ledger = ledger.append(Receipt(order=number, trial=number, step=1, value=1.0 + number))
    for _ in range(3):
        ledger = ledger.append(StateLoss(trial=2, resumable_step=0, why="killed", death=True))
    assert not ledger.open_orders
    order = place_order(ledger, policy.decide(ledger, rng))  # type: ignore[arg-type]
    assert order is not None
    assert (order.trial, order.until, order.why["rung"]) == (0, 3, 1)


def test_an_arm_certain_to_stay_does_not_wait_for_the_last_arms() -> None:
    policy = SequentialHalving()
    start = make_definition(policy, budget="400 epochs", max_steps=20, workers=16)
    ledger = simulate(policy, ParallelCurves(DecayingCurves(spread=4.0)), start).ledger
    early = [order for order in ledger.orders if "ahead" in order.memo]
    assert early
    for order in early:  # better than half of the arms so far, and more arms were still expected
        assert int(str(order.why["rank"])) < int(str(order.why["compared"])) / 2
        assert order.until == int(order.memo["ahead"][0])
    ends = [order.number for order in ledger.orders if "arms" in order.memo]
    assert early[0].number < ends[1]  # the second round had not begun
    assert max(trial.steps for trial in ledger.trials) == 20


def test_a_hundred_workers_stay_busy_and_the_leading_arms_reach_their_end() -> None:
    policy = SequentialHalving()
    start = make_definition(policy, budget="4000 epochs", max_steps=81, workers=100)
    ledger = simulate(policy, DecayingCurves(spread=2.0), start).ledger
    assert utilisation(ledger) > 0.9
    assert ledger.spent == 4000
    best = sorted(ledger.trials, key=lambda trial: trial.best_loss)[:5]
    assert [trial.steps for trial in best] == [81] * 5
    stages = {order.why.get("stage") for order in ledger.orders}
    assert "a free worker resumes the best of the dropped trials" in stages


def test_with_budget_for_many_trainings_dropped_arms_catch_up_while_the_round_waits() -> None:
    policy = SequentialHalving()
    start = make_definition(policy, budget="4000 epochs", max_steps=9, workers=200)
    ledger = simulate(policy, DecayingCurves(spread=16.0), start).ledger
    assert utilisation(ledger) > 0.9
    assert ledger.spent == 4000
    best = sorted(ledger.trials, key=lambda trial: trial.best_loss)[:20]
    assert [trial.steps for trial in best] == [9] * 20


def test_a_round_does_not_wait_for_its_last_arms_while_half_the_workers_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a fifth of the many trainings, a tenth of the workers suffices for the test."""
    policy = SequentialHalving()
    start = make_definition(policy, budget="4000 epochs", max_steps=81, workers=100)
    waiting = simulate(policy, DecayingCurves(spread=16.0), start).ledger
    monkeypatch.setattr(sequential_halving, "_MANY_TRAININGS", 20)
    monkeypatch.setattr(sequential_halving, "_MAX_LEADERS", 30)
    ledger = simulate(policy, DecayingCurves(spread=16.0), start).ledger
    (last,) = [order for order in ledger.orders if order.why.get("stage") == FINISH_EARLY]
    under_way = [order for order in ledger.orders[: last.number] if _ends(ledger, order.number) > last.at]
    assert len(under_way) <= 50
    assert any(order.until < 81 for order in under_way), "some are still at the round's step"
    assert utilisation(ledger) > utilisation(waiting) + 0.1
    assert ledger.state.clock < waiting.state.clock


def _ends(ledger: Ledger, number: int) -> float:
    return max(e.at for e in ledger.entries() if isinstance(e, Receipt) and e.order == number)


def test_one_worker_never_promotes_early() -> None:
    policy = SequentialHalving()
    ledger = simulate(policy, ROUGH_CURVES, make_definition(policy, budget="400 epochs", max_steps=20)).ledger
    assert not [order for order in ledger.orders if "ahead" in order.memo or "joins" in order.memo]
    large_budget = simulate(policy, ROUGH_CURVES, make_definition(policy, budget="1500 epochs", max_steps=9)).ledger
    assert not [o for o in large_budget.orders if "joins" in o.memo or o.why.get("stage") == FINISH_EARLY]
