"""No worker waits while there is something worth buying: what each race does with workers that it cannot use at once."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Lost, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.policies.halving import sequential_halving
from shoestring.policies.halving.brackets import BRACKETS_VIEW
from shoestring.policies.halving.hyperband import Hyperband, brackets
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.testing.curves import Decaying, Parallel
from shoestring.testing.policies import LISTED, ROUGH, opened, simulate


@dataclass(frozen=True)
class Waits:
    """The policy itself; notes how many trials could have gone on whenever it waits."""

    policy: Policy
    could_go_on: list[int] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.policy.name

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        decision = self.policy.decide(ledger, rng)
        if isinstance(decision, Wait):
            self.could_go_on.append(sum(trial.can_go_on for trial in ledger.trials))
        return decision


def utilisation(ledger: Ledger) -> float:
    """Of all workers until the last order was given: what comes after cannot be filled."""
    end = max(order.at for order in ledger.orders)
    steps = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    busy = sum(max(0.0, min(step.at, end) - (step.at - step.cost.total)) for step in steps)
    return busy / (ledger.workers * end)


@pytest.mark.parametrize("name", ["asha", "hyperband", "successive_halving"])
def test_nobody_waits_when_a_table_is_used_up_and_a_trial_can_go_on(name: str) -> None:
    policy = Waits(policies.make(name))
    ledger = simulate(policy, ROUGH, opened(policy.policy, space=LISTED, budget="60 epochs", workers=5)).ledger
    assert len(ledger.trials) == 7
    assert policy.could_go_on  # all others were being trained
    assert set(policy.could_go_on) == {0}


def test_hyperband_begins_the_next_bracket_while_one_waits() -> None:
    policy = Hyperband()
    ledger = simulate(policy, Decaying(), opened(policy, budget="400 epochs", max_steps=9, workers=12)).ledger
    placed = [(order.why["bracket"], order.why["rung"]) for order in ledger.orders]
    assert placed.index((1, 0)) < placed.index((0, 1))  # 12 workers, 9 arms in the first bracket
    assert utilisation(ledger) > 0.99
    arms: dict[int, list[int]] = {}
    for order in ledger.orders:
        if order.why["rung"] == 0:
            arms.setdefault(int(str(order.why["bracket"])), []).append(order.trial)
    for bracket in (0, 1, 2, 3):  # those that were finished are what the plan says
        plan = brackets(9, 1, 3)[bracket % 3]
        steps = [ledger.trials[number].steps for number in arms[bracket]]
        assert [sum(step >= rung.until for step in steps) for rung in plan] == [rung.arms for rung in plan]


def test_brackets_that_are_through_are_forgotten() -> None:
    policy = Hyperband()
    whole = simulate(policy, ROUGH, opened(policy, budget="500 epochs", max_steps=9, workers=4)).ledger
    carried, most = Ledger(whole.entries()[:1]), 0
    for entry in whole.entries(1):
        carried = carried.append(entry)
        most = max(most, len(carried.view(BRACKETS_VIEW).rounds))
    last = max(int(str(order.why["bracket"])) for order in whole.orders)
    assert carried.view(BRACKETS_VIEW) == Ledger(whole.entries()).view(BRACKETS_VIEW)
    assert last > 20
    assert most < 10


def test_a_bracket_goes_on_when_the_process_of_its_last_arm_has_died_for_good() -> None:
    """The third death closes an order with no receipt: the bracket must not wait for it."""
    policy = Hyperband()
    ledger = Ledger([opened(policy, max_steps=3, workers=3)])
    rng = ledger.decision_rng()
    for _ in range(3):
        order = ledger.accept(policy.decide(ledger, rng))  # type: ignore[arg-type]
        assert order is not None
        ledger = ledger.append(order)
    for number in (0, 1):
        ledger = ledger.append(Receipt(order=number, trial=number, step=1, value=1.0 + number))
    for _ in range(3):
        ledger = ledger.append(Lost(trial=2, held=0, why="killed", death=True))
    assert not ledger.open_orders
    order = ledger.accept(policy.decide(ledger, rng))  # type: ignore[arg-type]
    assert order is not None
    assert (order.trial, order.until, order.why["rung"]) == (0, 3, 1)


def test_who_is_sure_to_be_kept_does_not_wait_for_the_last_arms() -> None:
    policy = SequentialHalving()
    start = opened(policy, budget="400 epochs", max_steps=20, workers=16)
    ledger = simulate(policy, Parallel(Decaying(spread=4.0)), start).ledger
    early = [order for order in ledger.orders if "ahead" in order.memo]
    assert early
    for order in early:  # it was better than half of those that were there, and more of them were still to come
        assert int(str(order.why["rank"])) < int(str(order.why["compared"])) / 2
        assert order.until == int(order.memo["ahead"][0]) or ledger.spent == 400
    ends = [order.number for order in ledger.orders if "arms" in order.memo]
    assert early[0].number < ends[1]  # the second round had not begun
    assert max(trial.steps for trial in ledger.trials) == 20


def test_a_hundred_workers_are_kept_busy_and_the_favourites_get_to_their_end() -> None:
    policy = SequentialHalving()
    start = opened(policy, budget="4000 epochs", max_steps=81, workers=100)
    ledger = simulate(policy, Decaying(spread=2.0), start).ledger
    assert utilisation(ledger) > 0.9
    assert ledger.spent == 4000
    best = sorted(ledger.trials, key=lambda trial: trial.best_loss)[:5]
    assert [trial.steps for trial in best] == [81] * 5
    stages = {order.why.get("stage") for order in ledger.orders}
    assert "a free worker brings the next best back into the race" in stages


def test_where_many_trainings_are_paid_for_the_next_best_catch_up_while_slow_arms_are_awaited() -> None:
    policy = SequentialHalving()
    start = opened(policy, budget="4000 epochs", max_steps=9, workers=200)
    ledger = simulate(policy, Decaying(spread=16.0), start).ledger
    assert utilisation(ledger) > 0.9
    assert ledger.spent == 4000
    best = sorted(ledger.trials, key=lambda trial: trial.best_loss)[:20]
    assert [trial.steps for trial in best] == [9] * 20


def test_a_round_does_not_wait_for_its_last_arms_while_half_the_workers_are_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fifth of what is many, so that a tenth of the workers show it."""
    policy = SequentialHalving()
    start = opened(policy, budget="4000 epochs", max_steps=81, workers=100)
    waiting = simulate(policy, Decaying(spread=16.0), start).ledger
    monkeypatch.setattr(sequential_halving, "_MANY", 20)
    monkeypatch.setattr(sequential_halving, "_FAVOURITES", 30)
    ledger = simulate(policy, Decaying(spread=16.0), start).ledger
    (last,) = [order for order in ledger.orders if order.why.get("stage") == "the best take the rest"]
    under_way = [order for order in ledger.orders[: last.number] if _ends(ledger, order.number) > last.at]
    assert len(under_way) <= 50
    assert any(order.until < 81 for order in under_way), "some are still at the round's step"
    assert utilisation(ledger) > utilisation(waiting) + 0.1
    assert ledger.books.clock < waiting.books.clock


def _ends(ledger: Ledger, number: int) -> float:
    return max(e.at for e in ledger.entries() if isinstance(e, Receipt) and e.order == number)


def test_one_worker_never_runs_ahead() -> None:
    policy = SequentialHalving()
    ledger = simulate(policy, ROUGH, opened(policy, budget="400 epochs", max_steps=20)).ledger
    assert not [order for order in ledger.orders if "ahead" in order.memo or "joins" in order.memo]
    rich = simulate(policy, ROUGH, opened(policy, budget="1500 epochs", max_steps=9)).ledger
    assert not [o for o in rich.orders if "joins" in o.memo or o.why.get("stage") == "the best take the rest"]
