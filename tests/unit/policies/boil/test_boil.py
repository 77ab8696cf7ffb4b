from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Cost, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import PolicyError
from shoestring.models.boil.compression import CurveMatrix, compress
from shoestring.models.boil.score_process import ProcessParameters, TrainingLengths, product_kernel
from shoestring.models.gp.posterior import condition
from shoestring.policies.boil.boil import BOIL
from shoestring.policies.boil.loss_curves import LossCurve, read_loss_curves
from shoestring.policies.boil.score_model import ScoreModel, fit_score_model
from shoestring.policies.config_table import ConfigsView
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.testing.policies import make_definition, simulate, watch

SQUARE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})
FULL: dict[str, Any] = {"lengths": "full", "augmentation": "none"}


@dataclass(frozen=True)
class Hill:
    """Rewards that rise to a height given by x and y; steps cost more towards x = 1."""

    floor: float = 0.0
    diverging_beyond: float = 2.0

    def step(self, config: Config, step: int) -> StepOutcome:
        height = math.exp(-4.0 * ((config["x"] - 0.3) ** 2 + (config["y"] - 0.7) ** 2))
        diverges = config["x"] > self.diverging_beyond and step >= 4
        value = math.nan if diverges else self.floor + height * (1.0 - math.exp(-step / 4.0))
        return StepOutcome(value, Cost(train=0.5 + config["x"]))


class Collapsing:
    def step(self, config: Config, step: int) -> StepOutcome:
        rising = Hill().step(config, min(step, 6)).value
        assert rising is not None
        return StepOutcome(rising if step <= 6 else rising * 0.5 ** (step - 6), Cost(train=1.0))


def run_study(policy: BOIL, budget: str = "150 epochs", hill: Hill | None = None, **settings: Any) -> Ledger:
    start = make_definition(policy, space=SQUARE, budget=budget, max_steps=20, direction="max", **settings)
    return simulate(watch(policy), hill or Hill(), start).ledger


def model_of(policy: BOIL, ledger: Ledger) -> ScoreModel:
    model = fit_score_model(policy.model_settings(ledger), ledger, ledger.view(ConfigsView()), ledger.decision_rng())
    assert model is not None
    return model


def test_the_best_trial_is_found_and_trained_in_full() -> None:
    ledger = run_study(BOIL(candidates=300))
    phases = [order.why["phase"] for order in ledger.orders]
    assert phases[:3] == ["initial design"] * 3
    assert set(phases[3:]) <= {"chosen", "recommended"}
    chosen = [order for order in ledger.orders if order.why["phase"] == "chosen"]
    assert all(4 <= order.memo["goal"][0] <= 20 for order in chosen)
    assert all(float(order.why["log_condition"]) <= 20.0 for order in chosen)  # type: ignore[arg-type]
    best = ledger.best
    assert best is not None
    assert best.steps == 20
    assert best.best_loss < -0.9


def test_runs_are_short_if_longer_training_is_worse() -> None:
    """Rewards collapse after step 6. Only prefixes show it, since the initial trainings are all full."""
    policy = BOIL(candidates=300, score="average")
    start = make_definition(policy, space=SQUARE, budget="150 epochs", max_steps=20, direction="max")
    ledger = simulate(watch(policy), Collapsing(), start).ledger
    goals = [order.memo["goal"][0] for order in ledger.orders if order.why["phase"] == "chosen"]
    assert np.median(goals) <= 10


def test_the_cost_to_finish_the_recommended_trial_is_reserved() -> None:
    """15 epochs are left, and the best trial needs 4 more: one of 20 must not start before."""
    begun = [[0, {"x": 0.0, "y": 0.1}, 20], [1, {"x": 0.3, "y": 0.7}, 16], [2, {"x": 0.9, "y": 0.2}, 20]]
    other = policies.make("replay_fixed", {"orders": begun})
    start = make_definition(other, space=SQUARE, budget="56 epochs", max_steps=20, direction="max")
    entries = simulate(other, Hill(), start).ledger.entries()
    policy = BOIL(candidates=300)
    change = Amendment(policy=policy.name, settings=policies.settings_of(policy), budget=Budget("71 epochs"))
    ledger = simulate(watch(policy), Hill(), *entries, change).ledger
    order = ledger.orders[3]
    assert (order.trial, order.until, order.why["phase"], order.why["at"]) == (1, 20, "recommended", 16)
    assert len(ledger.orders) > 4, "the rest of the budget was not spent"


def test_unfinished_runs_continue_when_every_config_was_tried() -> None:
    policy = BOIL(score="average")
    rows = Space.from_configs([{"x": x / 2, "y": y / 2} for x in range(3) for y in range(3)])
    start = make_definition(policy, space=rows, budget="500 epochs", max_steps=20, direction="max")
    outcome = simulate(watch(policy), Collapsing(), start)
    assert outcome.reason == "policy"
    assert [trial.steps for trial in outcome.ledger.trials] == [20] * 9
    continued = [order for order in outcome.ledger.orders if order.why["phase"] == "recommended"]
    assert continued, "no training was short"


def test_points_of_the_model_are_prefixes_with_their_scores_and_costs() -> None:
    policy = BOIL(candidates=100)
    ledger = run_study(policy, budget="100s")
    model = model_of(policy, ledger)
    at = [ledger.trials[int(trial)] for trial in model.trial_of]
    lengths = np.rint(4 + model.gp.x[:, -1] * 16).astype(int)
    assert model.n_prefixes == len(at) - len(model.curves) > 0
    assert len({(trial.number, int(length)) for trial, length in zip(at, lengths, strict=True)}) == len(at)
    curves = CurveMatrix.of(
        [np.array(trial.values[:length], dtype=float) for trial, length in zip(at, lengths, strict=True)], 20
    )
    scores, _ = compress(curves, midpoint=model.parameters.midpoint, growth=model.parameters.growth)
    np.testing.assert_allclose(model.gp.y, scores, rtol=1e-9)
    for curve in model.curves:
        trial = ledger.trials[curve.trial]
        np.testing.assert_allclose(curve.costs, np.cumsum(trial.step_costs))


def test_each_prefix_is_in_the_memo_of_one_order() -> None:
    ledger = run_study(BOIL(candidates=100, refit_every=1))
    pairs = [
        pair
        for o in ledger.orders
        for pair in zip(o.memo.get("prefix_trials", ()), o.memo.get("prefix_steps", ()), strict=True)
    ]
    assert len(pairs) == len(set(pairs)) > 0
    most = {trial.number: math.floor((trial.steps - 4) / 16 * 15) for trial in ledger.trials}
    for trial, at_most in most.items():
        assert sum(1 for number, _ in pairs if number == trial) <= at_most


@pytest.mark.parametrize("augmentation", ["random", "full", "none"])
def test_other_augmentations_add_their_number_of_prefixes(augmentation: Any) -> None:
    policy = BOIL(candidates=100, augmentation=augmentation)
    ledger = run_study(policy, budget="90 epochs")
    counts = [int(order.why["added"]) for order in ledger.orders if order.why["phase"] == "chosen"]  # type: ignore[arg-type]
    if augmentation == "full":
        assert counts[0] == 3 * 16  # every whole step from 4 to 19 of three full trainings
    else:
        assert counts[0] == (0 if augmentation == "none" else 3 * 15)


@pytest.mark.parametrize("score", ["compressed", "last_mean"])
def test_full_lengths_are_plain_bayesian_optimisation(score: Any) -> None:
    policy = BOIL(score=score, candidates=300, last_steps=5, **FULL)
    ledger = run_study(policy, budget="240 epochs")
    assert {order.until for order in ledger.orders} == {20}
    model = model_of(policy, ledger)
    assert model.n_prefixes == 0
    assert set(model.gp.x[:, -1]) == {1.0}
    if score == "last_mean":
        last = [np.mean(trial.values[-5:]) for trial in ledger.trials]  # type: ignore[arg-type]
        np.testing.assert_allclose(model.gp.y, last)
    best = ledger.best
    assert best is not None
    assert best.best_loss < -0.95


def test_negative_rewards_are_shifted_by_one_constant() -> None:
    low = run_study(BOIL(candidates=100), hill=Hill(floor=-5.0))
    shifts = [order.memo["shift"][0] for order in low.orders if "shift" in order.memo]
    assert shifts == sorted(shifts)
    assert shifts[0] > 4.0


def test_diverged_runs_have_the_worst_score_and_no_low_cost() -> None:
    policy = BOIL(candidates=200, initial_trials=5)
    ledger = run_study(policy, hill=Hill(diverging_beyond=0.5), budget="200 epochs")
    model = model_of(policy, ledger)
    bad = [curve for curve in model.curves if curve.is_bad]
    assert bad
    assert all(curve.length == 20 and curve.steps == 3 for curve in bad)
    is_bad = np.isin(model.trial_of, [curve.trial for curve in bad])
    in_full = model.gp.x[:, -1] == 1.0
    assert model.gp.y[is_bad & in_full].max() < model.gp.y[~is_bad & in_full].min()
    full = model.cost.predict(np.column_stack([model.x, np.ones(len(model.x))]))
    np.testing.assert_allclose(full, 20.0, rtol=1e-6)  # epochs, although some diverged after three
    assert (is_bad & ~in_full).sum() > len(bad), "bad curves must have prefixes, too"
    chosen = [order.config["x"] for order in ledger.orders if order.why["phase"] == "chosen"]
    assert np.mean(np.array(chosen) > 0.5) < 0.3


def test_the_best_trial_has_the_largest_predicted_score_at_full_length() -> None:
    policy = BOIL(candidates=200)
    ledger = run_study(policy)
    model = model_of(policy, ledger)
    mean, _ = model.gp.predict(np.column_stack([model.x, np.ones(len(model.x))]))
    assert model.find_best_trial(range(len(model.curves))) == model.curves[int(np.argmax(mean))].trial
    best_trials = [int(order.why["best_run"]) for order in ledger.orders if "best_run" in order.why]  # type: ignore[arg-type]
    best = ledger.best
    assert best is not None
    assert best_trials[-1] == best.number


def test_the_printed_rule_chooses_the_shortest_trainings() -> None:
    ledger = run_study(BOIL(candidates=200, rule="softplus"))
    lengths = [order.memo["goal"][0] for order in ledger.orders if order.why["phase"] == "chosen"]
    ours = [o.memo["goal"][0] for o in run_study(BOIL(candidates=200)).orders if o.why["phase"] == "chosen"]
    assert np.median(lengths) == 4.0  # a fifth of a full training
    assert np.median(ours) > 10.0


def test_the_printed_form_fits_the_noise_and_trains_two_fifths_at_least() -> None:
    printed, ledger = BOIL(candidates=200, printed=True), run_study(BOIL(candidates=200, printed=True))
    chosen = [order for order in ledger.orders if order.why["phase"] == "chosen"]
    assert printed.model_settings(ledger).lengths.min_steps == min(order.memo["goal"][0] for order in chosen) == 8
    assert all(order.memo["noise_variance"][0] != pytest.approx(5e-4) for order in chosen)
    default = [order.memo for order in run_study(BOIL(candidates=200)).orders if "noise_variance" in order.memo]
    assert all(memo["noise_variance"][0] == pytest.approx(5e-4) for memo in default)


def test_the_printed_form_adds_as_many_prefixes_for_a_short_training() -> None:
    """By default a short training gets points in proportion to its length."""
    ledger, lengths = run_study(BOIL(candidates=50), "20 epochs"), TrainingLengths(4, 20)
    x, half = np.array([0.5, 0.5]), LossCurve(0, 12, losses=np.full(12, 0.5), costs=np.ones(12))
    start = np.array([[*x, lengths.time_of(half.steps)]])
    gp = condition(product_kernel(2), ProcessParameters().theta(2), start, np.zeros(1), mean="zero")
    added = {}
    for policy in (BOIL(max_points=6), BOIL(max_points=6, floor="none"), BOIL(max_points=6, printed=True)):
        rule = policy.model_settings(ledger).prefix_rule
        added[policy.floor, policy.printed] = len(rule.choose(gp, x, half, [], lengths, np.random.default_rng(0)))
    assert added == {("variance", False): 2, ("none", False): 3, ("none", True): 4}  # the fifth would repeat one


def test_the_form_of_the_authors_programs() -> None:
    policy = BOIL(candidates=200, score="tail_mean", min_steps=8, max_points=10, max_log_condition=15.0, floor="std")
    ledger, plain = run_study(policy), run_study(replace(policy, floor="variance"))
    chosen = [order for order in ledger.orders if order.why["phase"] == "chosen"]
    assert min(order.memo["goal"][0] for order in chosen) >= 8.0
    assert sum(len(o.memo.get("prefix_steps", ())) for o in ledger.orders) > sum(
        len(o.memo.get("prefix_steps", ())) for o in plain.orders
    )


def test_the_time_kernel_of_freeze_thaw() -> None:
    ledger = run_study(BOIL(candidates=200, time_kernel="freeze_thaw"))
    best = ledger.best
    assert best is not None
    assert best.best_loss < -0.9


def test_steps_without_validation_have_the_value_before_them() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    ledger = run_study(policy, budget="20 epochs")
    ledger.trials[0].losses[0:2] = [None, None]
    ledger.trials[0].losses[9] = None
    (curve,) = read_loss_curves(ledger, 4)
    losses = ledger.trials[0].losses
    assert curve.losses[:3].tolist() == [losses[2]] * 3
    assert curve.losses[9] == losses[8]


def test_fits_are_due_after_numbers_of_trials() -> None:
    ledger = run_study(BOIL(candidates=60, refit_every=4), budget="300 epochs")
    fits = [order.memo["fitted_at"][0] for order in ledger.orders if "fitted_at" in order.memo]
    assert fits[0] == 3.0
    assert {b - a for a, b in pairwise(fits)} <= {0.0, 4.0}
    assert fits[-1] > 3.0


def test_a_trial_that_the_budget_limit_interrupted_is_finished_first() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    ledger = run_study(policy, budget="30 epochs")
    more = simulate(watch(policy), Hill(), *ledger.entries(), Amendment(budget=Budget("60 epochs"))).ledger
    order = more.orders[len(ledger.orders)]
    assert (order.trial, order.until, order.why["phase"]) == (1, 20, "interrupted")


def test_queued_configs_are_trained_in_full() -> None:
    policy = BOIL(initial_trials=2, candidates=40, max_points=4)
    mine = {"x": 0.5, "y": 0.25}
    start = make_definition(policy, space=SQUARE, budget="40 epochs", max_steps=20, direction="max")
    ledger = simulate(policy, Hill(), start, Note(topic="enqueue", facts={"config": mine})).ledger
    assert (dict(ledger.orders[0].config), ledger.orders[0].until) == (mine, 20)


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "last"},
        {"augmentation": "some"},
        {"lengths": "short"},
        {"rule": "ratio"},
        {"floor": "noise"},
        {"lengths": "full"},
        {"initial_trials": 0},
        {"min_steps": 0},
        {"refit_every": 0},
        {"max_points": -1},
        {"max_log_condition": 0.0},
        {"noise_variance": 0.0},
        {"learn_noise": 1},
        {"time_kernel": "matern"},
        {"candidates": 0},
        {"last_steps": 0},
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(wrong))):
        policies.make("boil", wrong)
