"""Every policy with `predict` keeps its contract, and predicts what its decision was based on."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import ndtri

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Train
from shoestring.core.deciding.policy import start_trial
from shoestring.core.deciding.prediction import CurvePrediction, PredictingPolicy, Prediction
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.models.stopping.curve_paths import curve_posterior, fit_curve
from shoestring.policies.stopping.active_trials import ActiveTrials, curve_of
from shoestring.policies.stopping.error_range import pick_range
from shoestring.testing.curves import DecayingCurves, NegatedCurves, NoisyCurves
from shoestring.testing.policies import Check, make_definition, make_small_policy, simulate
from shoestring.testing.predictions import (
    PREDICTION_CHECKS,
    check_predicting_has_no_effect,
    check_predictions,
    iterate_decisions,
)

GUIDED = {"asha", "hyperband", "sequential_halving", "successive_halving"}  # they predict only with newcomers="guided"
PREDICTING = {
    *("guided_halving", "bhpt", "rollout", "freeze_thaw_bo", "fabolas_epochs"),
    *("cost_aware_ei", "bo_bos", "lc_prediction", "gp_ucb", "boca"),
    *GUIDED,
}


def make_predicting_policy(name: str) -> Any:
    policy: Any = make_small_policy(name)
    return replace(policy, newcomers="guided") if name in GUIDED else policy


def test_these_policies_predict() -> None:
    assert {name for name in policies.REGISTRY if isinstance(make_small_policy(name), PredictingPolicy)} == PREDICTING


@pytest.mark.parametrize("check", PREDICTION_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(PREDICTING))
def test_every_policy_that_predicts_keeps_the_contract(name: str, check: Check) -> None:
    check(make_predicting_policy(name), light=True)


def predict_orders(
    name: str,
    *,
    settings: dict[str, object] | None = None,
    budget: str = "90 epochs",
    max_steps: int = 9,
    direction: Literal["min", "max"] = "min",
) -> list[tuple[Ledger, Order, Prediction]]:
    policy = make_small_policy(name) if settings is None else policies.make(name, settings)
    assert isinstance(policy, PredictingPolicy)
    noisy = NoisyCurves(DecayingCurves(), 0.02)
    source = noisy if direction == "min" else NegatedCurves(noisy)
    start = make_definition(policy, budget=budget, max_steps=max_steps, direction=direction)
    study = simulate(policy, source, start).ledger
    found = [(ledger, order, policy.predict(ledger, order)) for ledger, order in iterate_decisions(study)]
    return [(ledger, order, prediction) for ledger, order, prediction in found if prediction is not None]


def number(order: Order, name: str) -> float:
    return float(str(order.why[name]))


def at_step(prediction: Prediction, step: int) -> np.ndarray:
    curve = prediction.curves[0]
    return np.asarray(curve.quantiles[:, curve.steps.tolist().index(step)])


def steps_before(ledger: Ledger, order: Order) -> int:
    return ledger.trials[order.trial].steps if order.trial < len(ledger.trials) else 0


@pytest.mark.parametrize("settings", [{"arms": 6}, {"arms": 6, "printed": True}, {"arms": 6, "scale": "none"}])
def test_bhpt_predicts_the_median_of_its_order(settings: dict[str, object]) -> None:
    found = predict_orders("bhpt", settings=settings, budget="40 epochs")
    for ledger, order, prediction in found:
        middle = at_step(prediction, steps_before(ledger, order) + int(number(order, "tau")))[2]
        assert middle == pytest.approx(number(order, "mu"), rel=1e-9, abs=1e-12)
    assert len(found) > 20


def test_a_config_that_is_not_a_candidate_has_no_prediction() -> None:
    """Another version may have drawn other candidates: no prediction is better than one for another config."""
    policy = make_predicting_policy("guided_halving")
    ledger, order, prediction = predict_orders("guided_halving", budget="60 epochs")[0]
    assert prediction.curves[0].config == order.config
    assert policy.predict(ledger, replace(order, config={**order.config, "lr": 0.123456})) is None


def test_fabolas_predicts_the_median_of_its_order() -> None:
    found = [one for one in predict_orders("fabolas_epochs") if "mu" in one[1].why]
    for _, order, prediction in found:
        assert at_step(prediction, order.until)[2] == pytest.approx(number(order, "mu"), rel=1e-6)
    assert found


@pytest.mark.parametrize("name", ["gp_ucb", "boca", "lc_prediction"])
def test_predictions_at_the_last_step_are_those_of_the_order(name: str) -> None:
    ends = ("mean", "std") if name != "lc_prediction" else ("forecast", "forecast_std")
    found = [one for one in predict_orders(name, budget="120 epochs") if ends[0] in one[1].why]
    for ledger, order, prediction in found:
        low, _, middle, _, high = at_step(prediction, ledger.max_steps)
        assert middle == pytest.approx(number(order, ends[0]))
        assert (high - low) / 2 == pytest.approx(ndtri(0.95) * number(order, ends[1]))
    assert found


@cache
def predict_bo_bos(direction: Literal["min", "max"] = "min") -> list[tuple[Ledger, Order, Prediction]]:
    """Return the predictions of a study in which `bo_bos` stops trials; several tests use it."""
    return predict_orders("bo_bos", budget="200 epochs", direction=direction)


def test_bo_bos_predicts_the_futures_that_it_simulated() -> None:
    policy, actions = make_small_policy("bo_bos"), 0
    for ledger, order, prediction in predict_bo_bos():
        if order.why.get("phase") == "stopping check" and "decision" in order.why:
            trial, n0 = ledger.trials[order.trial], int(number(order, "planned_at"))
            bounds = pick_range(ledger, None, None, ActiveTrials.read(ledger.memo, policy.memo_lists).error_range)  # type: ignore[attr-defined]
            errors = np.clip((np.array(curve_of(trial)[:n0]) - bounds.low) / bounds.width, 0.0, 1.0)
            mean, _ = curve_posterior(errors, range(n0 + 1, 10), fit_curve(errors))
            expected = bounds.low + bounds.width * np.clip(mean, 0.0, 1.0)
            np.testing.assert_allclose(prediction.curves[0].quantiles[2], expected)
            actions += 1
    assert actions > 3


def test_a_trial_that_bo_bos_stopped_is_shown_with_the_next_one() -> None:
    given_up = [(o, b) for _, o, b in predict_bo_bos() if "stopped_decision" in o.why]
    assert given_up
    for order, prediction in given_up:
        assert [curve.trial for curve in prediction.curves] == [order.trial, order.why["stopped"]]


@pytest.mark.parametrize("direction", ["min", "max"])
def test_the_decision_map_of_bo_bos_is_that_of_its_orders(direction: Literal["min", "max"]) -> None:
    """At the step of the trial, the map has the action of the order's `why`."""
    actions = set()
    for ledger, order, prediction in predict_bo_bos(direction):
        for prefix in ("", "stopped_"):
            if f"{prefix}decision" not in order.why or (regions := prediction.regions) is None:
                continue
            if regions.trial != (order.why["stopped"] if prefix else order.trial):
                continue
            row = len(regions.means) - 1
            assert regions.steps[row] == ledger.trials[regions.trial].steps
            cell, decision = int(number(order, f"{prefix}cell")), order.why[f"{prefix}decision"]
            cell = cell if direction == "min" else regions.action.shape[1] - 1 - cell
            assert regions.edges[cell] - 1e-9 <= regions.means[-1] <= regions.edges[cell + 1] + 1e-9
            action = regions.action[row, cell]
            assert action == decision if action >= 0 else decision == 0
            actions.add(int(action))
    assert {1, 2} <= actions


@pytest.mark.parametrize("acquisition", ["cei", "ei_alpha", "ei_cool"])
def test_candidate_scores_are_those_of_the_decision(acquisition: str) -> None:
    settings = {"initial_trials": 2, "candidates": 60, "acquisition": acquisition}
    found = predict_orders("cost_aware_ei", settings=settings, budget="200s")
    for ledger, order, prediction in found:
        candidates = prediction.candidate_scores
        assert candidates is not None
        assert candidates.gain[candidates.chosen] == pytest.approx(number(order, "ei"))
        assert candidates.gain.max() == pytest.approx(number(order, "ei_max"))
        if "predicted_cost" in order.why:
            assert candidates.cost[candidates.chosen] == pytest.approx(number(order, "predicted_cost"))
            assert len(candidates.front) == order.why["front_size"]
            assert (candidates.chosen in candidates.front) == bool(order.why["front_position"])
        assert candidates.config(candidates.chosen) == order.config
        if "runner_up" in order.why and candidates.runner_up is not None:
            assert dumps(candidates.config(candidates.runner_up)) == order.why["runner_up"]
        assert (candidates.least is None) == (acquisition != "cei")
        assert prediction.curves[0].steps.tolist() == [ledger.max_steps]
    assert len(found) > 3
    assert any(b.candidate_scores.runner_up is not None for _, _, b in found if b.candidate_scores)


class FaultyPolicy:
    """A policy that predicts, with one of several faults."""

    name = "faulty"

    def __init__(self, fault: str) -> None:
        self.fault, self.calls = fault, 0

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        lr = float(rng.uniform(0.1, 0.9))
        return start_trial(ledger, {"lr": lr, "layers": 1, "optimizer": "sgd"}, 1)

    def predict(self, ledger: Ledger, order: Order | Train) -> Prediction | None:
        self.calls += 1
        quantiles = np.arange(5.0)[:, None] + (self.calls if self.fault == "changing" else 0)
        if self.fault == "order":
            quantiles = quantiles[::-1]
        if self.fault == "finite":
            quantiles[0] = -np.inf
        if self.fault == "ledger" and ledger.trials:
            ledger.trials[0].failure = "touched"
        config = {**order.config, "layers": 2} if self.fault == "config" else order.config
        return Prediction([CurvePrediction(order.trial, config, np.array([1]), quantiles)])


@pytest.mark.parametrize("fault", ["order", "finite", "config"])
def test_the_contract_finds_wrong_predictions(fault: str) -> None:
    check_predictions(FaultyPolicy("none"), light=True)
    with pytest.raises(AssertionError, match="faulty"):
        check_predictions(FaultyPolicy(fault), light=True)


@pytest.mark.parametrize("fault", ["changing", "ledger"])
def test_the_contract_finds_predictions_with_effects(fault: str) -> None:
    check_predicting_has_no_effect(FaultyPolicy("none"), light=True)
    with pytest.raises(AssertionError, match="faulty"):
        check_predicting_has_no_effect(FaultyPolicy(fault), light=True)
