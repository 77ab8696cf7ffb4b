from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.entries import Lost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.thrift.belief import believe
from shoestring.models.thrift.network import shipped
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.policies.thrift import trust
from shoestring.policies.thrift.arms import expected_length, look
from shoestring.policies.thrift.curves import CURVES
from shoestring.policies.thrift.thrift import Thrift
from shoestring.policies.thrift.trust import Record, look_back, rank_correlation
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.curves import Decaying, Diverging, Negated
from shoestring.testing.policies import (
    Check,
    keeps_to_the_rules,
    opened,
    orders_of,
    same_ledger_same_decision,
    simulate,
    takes_over,
    two_halves_equal_the_whole,
)

POLICY = Thrift()


def study(policy: Thrift = POLICY, source: Any = None, **told: Any) -> Ledger:
    return simulate(
        policy, source or Decaying(), opened(policy, **{"budget": "72 epochs", "max_steps": 9, **told})
    ).ledger


def is_believed(order: Order) -> bool:
    return "expected_gain" in order.why


def test_halving_spends_the_first_part_of_the_money() -> None:
    ledger = study(budget="144 epochs")  # 16 curves: 75 % / sqrt(16)
    first = next(order.number for order in ledger.orders if is_believed(order))
    assert sum(order.until for order in ledger.orders[:first]) == 27
    assert all(is_believed(order) for order in ledger.orders[first:])
    plain = SequentialHalving()
    alike = simulate(plain, Decaying(), opened(plain, budget="144 epochs", max_steps=9)).ledger
    assert [o.config for o in ledger.orders[:first]] == [o.config for o in alike.orders[:first]]


class UntilItBelieves(Thrift):
    """The policy up to its first order that goes by the belief: where that comes, nothing more is asked."""

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.orders and is_believed(ledger.orders[-1]):
            return Finish("seen")
        return super().decide(ledger, rng)


def even(step_s: float) -> Decaying:
    return Decaying(cost_s=step_s, spread=1.0)


@pytest.mark.parametrize(
    ("budget", "step_s", "is_asked"),
    [
        ("62 epochs", 1.0, False),  # 6.9 full trainings
        ("63 epochs", 1.0, True),
        ("63 epochs", 0.01, True),  # nobody pays for thinking
        ("360 epochs", 1.0, True),
        ("361 epochs", 1.0, False),  # 40.1
        ("90s", 1.0, True),
        ("89s", 0.99, False),
        ("$9 at 360/h", 1.0, True),
        ("$8 at 360/h", 0.9, False),
    ],
)
def test_the_belief_is_asked_where_it_was_shown_to_help(budget: str, step_s: float, is_asked: bool) -> None:
    ledger, plain = study(UntilItBelieves(), even(step_s), budget=budget), SequentialHalving()
    assert any(is_believed(order) for order in ledger.orders) == is_asked
    if not is_asked:
        alike = simulate(plain, even(step_s), opened(plain, budget=budget, max_steps=9)).ledger
        assert orders_of(ledger) == orders_of(alike)


def test_where_it_is_asked_can_be_said() -> None:
    assert any(is_believed(order) for order in study(Thrift(quickest_step_s=0.0), even(0.01), budget="1s").orders)
    assert any(is_believed(order) for order in study(Thrift(opening=0.3), even(0.01), budget="0.2s").orders)
    assert not any(is_believed(order) for order in study(Thrift(most_curves=7.9)).orders)


def test_how_much_it_spends_first_can_be_said() -> None:
    ledger = study(Thrift(opening=1.0))
    assert not any(is_believed(order) for order in ledger.orders)
    ledger = study(Thrift(opening=0.0))
    assert sum(not is_believed(order) for order in ledger.orders) == 1  # there must be something to believe in


def test_an_arm_is_trained_as_far_again_as_it_was() -> None:
    had: dict[int, int] = {}
    for order in study(Thrift(growth=1.0), max_steps=30, budget="300 epochs").orders:
        if is_believed(order) and order.why["reach"] > had.get(order.trial, 1):  # type: ignore[operator]
            assert order.until == max(1, 2 * had.get(order.trial, 0))
        had[order.trial] = order.until


def test_why_tells_what_was_expected_and_who_came_second() -> None:
    ledger = study()
    order = next(order for order in ledger.orders if is_believed(order))
    assert set(order.why) >= {
        "expected_end",
        "chance_to_beat_best",
        "expected_gain",
        "reach",
        "runner_up",
        "runner_up_score",
    }
    assert 0 <= order.why["chance_to_beat_best"] <= 1  # type: ignore[operator]
    assert order.why["runner_up_score"] <= order.why["score"]  # type: ignore[operator]


def test_expected_ends_are_told_in_the_users_direction() -> None:
    down, up = study(), study(source=Negated(Decaying()), direction="max")
    ends = [[o.why["expected_end"] for o in ledger.orders if is_believed(o)] for ledger in (down, up)]
    assert ends[0] == [-end for end in ends[1]]  # type: ignore[operator]


def test_a_worker_that_halving_would_let_wait_is_put_to_use() -> None:
    policy = Thrift(opening=0.9, arms_per_curve=2.0)
    start = opened(policy, budget="36 epochs", max_steps=9, workers=4)
    ledger = simulate(policy, Decaying(), start).ledger
    early = [order for order in ledger.orders[: len(ledger.orders) // 2] if is_believed(order)]
    assert early, "nobody asked the belief while halving waited for the end of a round"


def test_trials_that_diverged_or_run_are_not_bought() -> None:
    ledger = study(source=Diverging(Decaying(), share=0.5, before=3), workers=3, budget="80 epochs")
    scene = look(ledger, 8)
    stuck = [trial.number for trial in ledger.trials if trial.is_stuck]
    assert stuck
    assert not scene.can_buy[stuck].any()
    assert (scene.reach[stuck] == 0).all()
    assert np.isfinite(scene.arms.losses).all()


def test_reach_is_what_the_money_left_buys_of_that_trial() -> None:
    """Two trials, one four times as dear: with 10 seconds left it gets about a quarter as far."""
    costs = {"cheap": 1.0, "dear": 4.0}
    space = Space.listed([{"name": name} for name in costs])
    policy = Thrift(opening=1.0)

    class Priced:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            outcome = Decaying().step(config, step)
            assert outcome is not None
            return replace(outcome, cost=replace(outcome.cost, train=costs[config["name"]]))

    whole = simulate(policy, Priced(), opened(policy, space=space, budget="60s", max_steps=40)).ledger
    first_two = next(i for i, _ in enumerate(whole.entries()) if len(whole.fork(i + 1).trials) == 2) + 2
    ledger = whole.fork(first_two)
    scene = look(ledger, 8)
    by_name = {trial.config["name"]: int(scene.reach[trial.number]) for trial in ledger.trials}
    price = {name: ledger.step_price(i) for i, name in enumerate(t.config["name"] for t in ledger.trials)}
    for name, reach in by_name.items():
        assert reach == min(40 - ledger.trials[0].steps, math.floor(ledger.left / price[name] + 1e-9)), name
    assert by_name["dear"] < by_name["cheap"]
    assert scene.arms.price[0] != scene.arms.price[1]


def test_a_lost_state_is_work_to_do_again_when_time_is_money() -> None:
    ledger = study(budget="60s")
    trial = max(ledger.trials, key=lambda trial: (trial.can_go_on, trial.steps))
    cut = next(
        i for i in range(len(ledger)) if len(ledger.fork(i + 1).trials) > 0 and ledger.fork(i + 1).trials[0].steps
    )
    before = ledger.fork(cut + 1)
    after = before.append(Lost(trial=0, held=0))
    assert trial.steps
    assert look(after, 8).reach[0] <= look(before, 8).reach[0]
    assert look(after, 8).reach[0] == min(
        before.trials[0].limit - before.trials[0].steps,
        math.floor(after.left / after.step_price(0) + 1e-9) - before.trials[0].steps,
    )


def test_long_curves_are_seen_in_50_blocks() -> None:
    ledger = study(max_steps=200, budget="400 epochs")
    curves = ledger.view(CURVES)
    assert (curves.steps, curves.block) == (50, 4.0)
    assert [curves.seen(step) for step in (0, 1, 4, 5, 200)] == [0, 1, 1, 2, 50]
    trial = max(ledger.trials, key=lambda trial: trial.steps)
    known = curves.losses[trial.number, : curves.seen(trial.steps)]
    assert known[-1] == trial.losses[-1]
    assert known[0] == trial.losses[min(4, trial.steps) - 1]  # a block is seen by its newest loss
    believed = [order for order in ledger.orders if is_believed(order) and order.why["reach"] >= 4]  # type: ignore[operator]
    assert all(order.until >= 4 for order in believed)  # never less than a block


def test_spaces_with_conditions_and_more_than_16_parameters() -> None:
    many: dict[str, Any] = {f"p{i:02d}": Float(0.0, 1.0) for i in range(20)}
    space = Space({**many, "kind": Choice(["a", "b"]), "only_b": Float(0.0, 1.0, when={"kind": "b"})})
    ledger = study(space=space, budget="40 epochs")
    assert ledger.spent == 40
    x = look(ledger, 30).arms.x
    assert x.shape[1] == 16
    assert x.max() <= 1


def test_one_step_trials_are_quasi_random_search() -> None:
    plain = SequentialHalving()
    ours = study(max_steps=1, budget="12 epochs")
    theirs = simulate(plain, Decaying(), opened(plain, max_steps=1, budget="12 epochs")).ledger
    assert orders_of(ours) == orders_of(theirs)


# trust ---------------------------------------------------------------------------------------------------------------


def test_a_network_that_is_not_borne_out_leaves_the_study_to_halving(monkeypatch: pytest.MonkeyPatch) -> None:
    """One whose order is that of the losses turned upside down."""
    wrong = Record(trials=20, order=-0.9, order_by_loss=0.9, outside=0.1)
    monkeypatch.setattr(trust, "look_back", lambda networks, arms: wrong)
    ledger = study(Thrift(look_back=True), budget="90 epochs")
    assert not any(is_believed(order) for order in ledger.orders)
    assert ledger.orders[-1].memo["trust"] == [0.0]
    plain = SequentialHalving()
    alike = simulate(plain, Decaying(), opened(plain, budget="90 epochs", max_steps=9)).ledger
    assert [(o.trial, o.until) for o in ledger.orders] == [(o.trial, o.until) for o in alike.orders]


def test_a_study_that_keeps_its_order_is_trusted() -> None:
    ledger = study(Thrift(look_back=True), budget="270 epochs", max_steps=9)
    assert ledger.orders[-1].memo["trust"] == [1.0]


@pytest.mark.parametrize(
    "check", [same_ledger_same_decision, two_halves_equal_the_whole, takes_over, keeps_to_the_rules]
)
def test_the_contract_holds_with_a_look_back(check: Check) -> None:
    check(Thrift(look_back=True), light=True)


def test_what_a_record_must_show() -> None:
    good = Record(trials=10, order=0.8, order_by_loss=0.8, outside=0.1)
    assert good.is_good
    assert Record(trials=3).is_good  # nothing against it yet
    assert not replace(good, order=0.4).is_good
    assert not replace(good, outside=0.9).is_good


def test_a_look_back_asks_about_the_half() -> None:
    scene = look(study(budget="270 epochs"), 8)
    record = look_back(shipped(), scene.arms)
    assert record.trials == int((scene.arms.n >= 2).sum())
    assert -1 <= record.order <= 1
    assert 0 <= record.outside <= 1


def test_rank_correlation() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert rank_correlation(a, a**3) == pytest.approx(1.0)
    assert rank_correlation(a, -a) == pytest.approx(-1.0)
    assert rank_correlation(a, np.array([1.0, 1.0, 2.0, 2.0])) == pytest.approx(2 / math.sqrt(5))
    assert rank_correlation(a, np.ones(4)) == 0.0


@pytest.mark.parametrize(
    "settings", [{"opening": 1.5}, {"growth": 0.0}, {"caution": -1.0}, {"candidates_per_curve": 0.0}]
)
def test_settings_out_of_range(settings: dict[str, float]) -> None:
    with pytest.raises(PolicyError, match=next(iter(settings))):
        Thrift(**settings)  # type: ignore[arg-type]


def test_the_same_ledger_gives_the_same_decision() -> None:
    ledger = study(Thrift(), budget="90 epochs")
    for cut in range(20, len(ledger), 37):
        first, again = ledger.fork(cut), ledger.fork(cut)
        decision = Thrift().decide(first, first.decision_rng())
        assert decision == Thrift().decide(again, again.decision_rng())
        assert isinstance(decision, Train) or ledger.open_orders == {}


class Short:
    """Trainings that end by themselves after four of nine steps."""

    def step(self, config: Config, step: int) -> StepOutcome | None:
        return Decaying().step(config, step) if step <= 4 else None


def test_where_trainings_end_by_themselves_others_are_expected_to_end_there_too() -> None:
    ledger = study(Thrift(opening=0.3), source=Short(), budget="40 epochs")
    lengths = [expected_length(ledger.fork(n)) for n in range(1, len(ledger) + 1)]
    assert lengths[0] == 9
    first = lengths.index(4)
    assert any(trial.limit == 4 for trial in ledger.fork(first + 1).trials)
    for n in range(first + 1, len(ledger) + 1):
        # A trial that has come as far and did not end yet might go on: then nothing is known.
        is_open = any(trial.steps == 4 < trial.limit for trial in ledger.fork(n).trials)
        assert lengths[n - 1] == (9 if is_open else 4)
    assert expected_length(study(Thrift(opening=0.3), budget="40 epochs")) == 9


@pytest.mark.parametrize("horizon", [0.5, 1.0, 3.0, math.inf])
def test_the_network_is_asked_about_no_more_than_the_horizon(horizon: float) -> None:
    scene = look(study(Thrift(opening=0.3)).fork(40), 10)
    near = scene.within(horizon)
    far = np.full(len(scene.steps), math.inf) if math.isinf(horizon) else np.maximum(1, np.ceil(horizon * scene.steps))
    wanted = np.minimum(scene.reach, far)
    assert near.reach.tolist() == wanted.tolist()
    assert (near.arms.reach <= scene.arms.reach).all()


def test_a_surer_belief_has_narrower_intervals() -> None:
    scene = look(study(Thrift(opening=0.3)).fork(40), 10)
    plain, sure = believe(shipped(), scene.arms), believe(shipped(), scene.arms, 2.0)
    # Of every arm the entropy falls; an interval of chances with two hills may still widen.
    entropy = [-(b.chances * np.log(np.maximum(b.chances, 1e-300))).sum(axis=1) for b in (plain, sure)]
    assert (entropy[1] < entropy[0]).all()
    width = [(b.quantile(0.9) - b.quantile(0.1)).mean() for b in (plain, sure)]
    assert width[1] < width[0]
    np.testing.assert_allclose(sure.chances.sum(axis=1), 1.0)
