from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.entries import Order, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.thrift.lowest_losses import predict_lowest_losses
from shoestring.models.thrift.network import load_shipped_networks
from shoestring.policies.halving.sequential_halving import SequentialHalving
from shoestring.policies.thrift.block_curves import BLOCK_CURVES
from shoestring.policies.thrift.network_input import expected_length, make_network_input
from shoestring.policies.thrift.thrift import Thrift
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.curves import DecayingCurves, DivergingCurves, NegatedCurves
from shoestring.testing.policies import (
    list_orders,
    make_definition,
    simulate,
)

POLICY = Thrift()


def study(policy: Thrift = POLICY, source: Any = None, **more: Any) -> Ledger:
    return simulate(
        policy, source or DecayingCurves(), make_definition(policy, **{"budget": "72 epochs", "max_steps": 9, **more})
    ).ledger


def is_by_network(order: Order) -> bool:
    return "expected_gain" in order.why


def test_sequential_halving_spends_the_first_part_of_the_budget() -> None:
    ledger = study(budget="144 epochs")  # 16 curves: 75 % / sqrt(16)
    first = next(order.number for order in ledger.orders if is_by_network(order))
    assert sum(order.until for order in ledger.orders[:first]) == 27
    assert all(is_by_network(order) for order in ledger.orders[first:])
    plain = SequentialHalving()
    by_halving = simulate(plain, DecayingCurves(), make_definition(plain, budget="144 epochs", max_steps=9)).ledger
    assert [o.config for o in ledger.orders[:first]] == [o.config for o in by_halving.orders[:first]]


class UntilNetworkDecides(Thrift):
    """The policy up to the first order that the network decides."""

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.orders and is_by_network(ledger.orders[-1]):
            return Finish("seen")
        return super().decide(ledger, rng)


def even(step_s: float) -> DecayingCurves:
    return DecayingCurves(cost_s=step_s, spread=1.0)


@pytest.mark.parametrize(
    ("budget", "step_s", "is_used"),
    [
        ("62 epochs", 1.0, False),  # 6.9 full trainings
        ("63 epochs", 1.0, True),
        ("63 epochs", 0.01, True),  # deciding is not charged
        ("360 epochs", 1.0, True),
        ("361 epochs", 1.0, False),  # 40.1
        ("90s", 1.0, True),
        ("89s", 0.99, False),
        ("$9 at 360/h", 1.0, True),
        ("$8 at 360/h", 0.9, False),
    ],
)
def test_the_network_decides_where_it_was_shown_to_help(budget: str, step_s: float, is_used: bool) -> None:
    ledger, plain = study(UntilNetworkDecides(), even(step_s), budget=budget), SequentialHalving()
    assert any(is_by_network(order) for order in ledger.orders) == is_used
    if not is_used:
        by_halving = simulate(plain, even(step_s), make_definition(plain, budget=budget, max_steps=9)).ledger
        assert list_orders(ledger) == list_orders(by_halving)


def test_settings_determine_where_the_network_decides() -> None:
    assert any(is_by_network(order) for order in study(Thrift(quickest_step_s=0.0), even(0.01), budget="1s").orders)
    assert any(is_by_network(order) for order in study(Thrift(opening=0.3), even(0.01), budget="0.2s").orders)
    assert not any(is_by_network(order) for order in study(Thrift(most_curves=7.9)).orders)


def test_opening_is_the_share_of_sequential_halving() -> None:
    ledger = study(Thrift(opening=1.0))
    assert not any(is_by_network(order) for order in ledger.orders)
    ledger = study(Thrift(opening=0.0))
    assert sum(not is_by_network(order) for order in ledger.orders) == 1  # the network needs a loss


def test_an_order_doubles_the_steps_of_a_trial() -> None:
    steps_before: dict[int, int] = {}
    doubled = 0
    for order in study(Thrift(), max_steps=30, budget="300 epochs").orders:
        if is_by_network(order) and order.why["reach"] > steps_before.get(order.trial, 1):  # type: ignore[operator]
            assert order.until == max(1, 2 * steps_before.get(order.trial, 0))
            doubled += order.trial in steps_before
        steps_before[order.trial] = order.until
    assert doubled, "the network continued no trial"


def test_why_has_the_expectation_and_the_runner_up() -> None:
    ledger = study()
    order = next(order for order in ledger.orders if is_by_network(order))
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


def test_expected_ends_are_in_the_direction_of_the_user() -> None:
    minimised, maximised = study(), study(source=NegatedCurves(DecayingCurves()), direction="max")
    ends = [[o.why["expected_end"] for o in ledger.orders if is_by_network(o)] for ledger in (minimised, maximised)]
    assert ends[0] == [-end for end in ends[1]]  # type: ignore[operator]


class FewArms(Thrift):
    base_rule = SequentialHalving(arms_per_curve=2.0)


def test_the_network_has_work_for_a_worker_that_halving_would_let_wait() -> None:
    policy = FewArms(opening=0.9)
    start = make_definition(policy, budget="36 epochs", max_steps=9, workers=4)
    ledger = simulate(policy, DecayingCurves(), start).ledger
    early = [order for order in ledger.orders[: len(ledger.orders) // 2] if is_by_network(order)]
    assert early, "the network decided nothing while halving waited for the end of a round"


def test_trials_that_diverged_or_run_are_not_trained() -> None:
    ledger = study(source=DivergingCurves(DecayingCurves(), share=0.5, before=3), workers=3, budget="80 epochs")
    inputs = make_network_input(ledger, 8)
    ended = [trial.number for trial in ledger.trials if trial.is_ended]
    assert ended
    assert not inputs.can_train[ended].any()
    assert (inputs.reach[ended] == 0).all()
    assert np.isfinite(inputs.arms.losses).all()


def test_reach_is_what_the_remaining_budget_pays_for() -> None:
    """Of two trials one costs four times as much, so the remaining budget pays for about a quarter of the steps."""
    costs = {"cheap": 1.0, "expensive": 4.0}
    space = Space.from_configs([{"name": name} for name in costs])
    policy = Thrift(opening=1.0)

    class Priced:
        def step(self, config: Config, step: int) -> StepOutcome | None:
            outcome = DecayingCurves().step(config, step)
            assert outcome is not None
            return replace(outcome, cost=replace(outcome.cost, train=costs[config["name"]]))

    whole = simulate(policy, Priced(), make_definition(policy, space=space, budget="60s", max_steps=40)).ledger
    first_two = next(i for i, _ in enumerate(whole.entries()) if len(whole.fork(i + 1).trials) == 2) + 2
    ledger = whole.fork(first_two)
    inputs = make_network_input(ledger, 8)
    by_name = {trial.config["name"]: int(inputs.reach[trial.number]) for trial in ledger.trials}
    price = {name: ledger.step_price(i) for i, name in enumerate(t.config["name"] for t in ledger.trials)}
    for name, reach in by_name.items():
        assert reach == min(40 - ledger.trials[0].steps, math.floor(ledger.left / price[name] + 1e-9)), name
    assert by_name["expensive"] < by_name["cheap"]
    assert inputs.arms.price[0] != inputs.arms.price[1]


def test_a_lost_state_is_trained_again_under_a_budget_of_time() -> None:
    ledger = study(budget="60s")
    trial = max(ledger.trials, key=lambda trial: (trial.can_continue, trial.steps))
    cut = next(
        i for i in range(len(ledger)) if len(ledger.fork(i + 1).trials) > 0 and ledger.fork(i + 1).trials[0].steps
    )
    before = ledger.fork(cut + 1)
    after = ledger.fork(cut + 1).append(StateLoss(trial=0, resumable_step=0))
    assert trial.steps
    assert make_network_input(after, 8).reach[0] <= make_network_input(before, 8).reach[0]
    assert make_network_input(after, 8).reach[0] == min(
        before.trials[0].limit - before.trials[0].steps,
        math.floor(after.left / after.step_price(0) + 1e-9) - before.trials[0].steps,
    )


def test_long_curves_have_50_blocks() -> None:
    ledger = study(max_steps=200, budget="400 epochs")
    curves = ledger.view(BLOCK_CURVES)
    assert (curves.blocks, curves.steps_per_block) == (50, 4.0)
    assert [curves.block_of(step) for step in (0, 1, 4, 5, 200)] == [0, 1, 1, 2, 50]
    trial = max(ledger.trials, key=lambda trial: trial.steps)
    known = curves.losses[trial.number, : curves.block_of(trial.steps)]
    assert known[-1] == trial.losses[-1]
    assert known[0] == trial.losses[min(4, trial.steps) - 1]  # a block has its newest loss
    by_network = [order for order in ledger.orders if is_by_network(order) and order.why["reach"] >= 4]  # type: ignore[operator]
    assert all(order.until >= 4 for order in by_network)  # never less than a block


def test_of_more_than_16_parameters_the_network_reads_16_columns() -> None:
    numbers: dict[str, Any] = {f"p{i:02d}": Float(0.0, 1.0) for i in range(20)}
    space = Space({**numbers, "kind": Choice(["a", "b"]), "only_b": Float(0.0, 1.0, when={"kind": "b"})})
    ledger = study(space=space, budget="40 epochs")
    assert ledger.spent == 40
    x = make_network_input(ledger, 30).arms.x
    assert x.shape[1] == 16
    assert x.max() <= 1


def test_one_step_trials_are_quasi_random_search() -> None:
    plain = SequentialHalving()
    ours = study(max_steps=1, budget="12 epochs")
    theirs = simulate(plain, DecayingCurves(), make_definition(plain, max_steps=1, budget="12 epochs")).ledger
    assert list_orders(ours) == list_orders(theirs)


@pytest.mark.parametrize(
    "settings", [{"opening": 1.5}, {"orders_per_pass": 0}, {"most_curves": -1.0}, {"quickest_step_s": -1.0}]
)
def test_settings_out_of_range_are_refused(settings: dict[str, float]) -> None:
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
        return DecayingCurves().step(config, step) if step <= 4 else None


def test_where_trainings_end_by_themselves_others_are_expected_to_end_there_too() -> None:
    ledger = study(Thrift(opening=0.3), source=Short(), budget="40 epochs")
    lengths = [expected_length(ledger.fork(n)) for n in range(1, len(ledger) + 1)]
    assert lengths[0] == 9
    first = lengths.index(4)
    assert any(trial.limit == 4 for trial in ledger.fork(first + 1).trials)
    for n in range(first + 1, len(ledger) + 1):
        # A trial that is at this step and did not end might continue: then the length is unknown.
        is_open = any(trial.steps == 4 < trial.limit for trial in ledger.fork(n).trials)
        assert lengths[n - 1] == (9 if is_open else 4)
    assert expected_length(study(Thrift(opening=0.3), budget="40 epochs")) == 9


@pytest.mark.parametrize("horizon", [0.5, 1.0, 3.0, math.inf])
def test_within_a_horizon_no_arm_reaches_further(horizon: float) -> None:
    inputs = make_network_input(study(Thrift(opening=0.3)).fork(40), 10)
    limited = inputs.within(horizon)
    far = (
        np.full(len(inputs.steps), math.inf) if math.isinf(horizon) else np.maximum(1, np.ceil(horizon * inputs.steps))
    )
    expected = np.minimum(inputs.reach, far)
    assert limited.reach.tolist() == expected.tolist()
    assert (limited.arms.reach <= inputs.arms.reach).all()


def test_a_higher_power_gives_narrower_intervals() -> None:
    inputs = make_network_input(study(Thrift(opening=0.3)).fork(40), 10)
    networks = load_shipped_networks()
    plain, narrow = (predict_lowest_losses(networks, inputs.arms, power) for power in (1.0, 2.0))
    # The entropy of every arm falls; the interval of a distribution with two modes may still widen.
    entropy = [-(b.chances * np.log(np.maximum(b.chances, 1e-300))).sum(axis=1) for b in (plain, narrow)]
    assert (entropy[1] < entropy[0]).all()
    width = [(b.quantile(0.9) - b.quantile(0.1)).mean() for b in (plain, narrow)]
    assert width[1] < width[0]
    np.testing.assert_allclose(narrow.chances.sum(axis=1), 1.0)
