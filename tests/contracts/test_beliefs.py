"""Every policy that tells what it believed keeps the contract of `believe`, and tells what its decision went by."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

import numpy as np
import pytest
from scipy.special import ndtri

from shoestring import policies
from shoestring.core.deciding.decision import Decision, Train
from shoestring.core.deciding.policy import train_new
from shoestring.core.deciding.prediction import Believed, BelievedCurve, Believing
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.models.stopping.curve_paths import curve_posterior, fit_curve
from shoestring.policies.stopping.active_runs import RunsUnderWay, curve_of
from shoestring.policies.stopping.error_range import pick_range
from shoestring.testing.curves import Decaying, Negated, Noisy
from shoestring.testing.policies import Check, opened, simulate, small
from shoestring.testing.predictions import BELIEF_CHECKS, beliefs_make_sense, decisions_of, looking_back_changes_nothing

TELLING = {
    *("thrift", "bhpt", "rollout", "freeze_thaw_bo", "fabolas_epochs"),
    *("cost_aware_ei", "bo_bos", "lc_prediction", "gp_ucb", "boca"),
}


def test_who_has_a_belief() -> None:
    assert {name for name in policies.REGISTRY if isinstance(small(name), Believing)} == TELLING


@pytest.mark.parametrize("check", BELIEF_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", sorted(TELLING))
def test_every_policy_that_tells(name: str, check: Check) -> None:
    check(small(name), light=True)


@pytest.mark.parametrize("check", BELIEF_CHECKS, ids=lambda check: check.__name__)
def test_the_learned_belief_of_bhpt(check: Check) -> None:
    check(policies.make("bhpt", {"arms": 6, "belief": "learned"}), light=True)


def told(
    name: str,
    *,
    settings: dict[str, object] | None = None,
    budget: str = "90 epochs",
    max_steps: int = 9,
    direction: Literal["min", "max"] = "min",
) -> list[tuple[Ledger, Order, Believed]]:
    policy = small(name) if settings is None else policies.make(name, settings)
    assert isinstance(policy, Believing)
    noisy = Noisy(Decaying(), 0.02)
    source = noisy if direction == "min" else Negated(noisy)
    start = opened(policy, budget=budget, max_steps=max_steps, direction=direction)
    study = simulate(policy, source, start).ledger
    found = [(ledger, order, policy.believe(ledger, order)) for ledger, order in decisions_of(study)]
    return [(ledger, order, believed) for ledger, order, believed in found if believed is not None]


def number(order: Order, name: str) -> float:
    return float(str(order.why[name]))


def at_step(believed: Believed, step: int) -> np.ndarray:
    curve = believed.curves[0]
    return np.asarray(curve.quantiles[:, curve.steps.tolist().index(step)])


def steps_before(ledger: Ledger, order: Order) -> int:
    return ledger.trials[order.trial].steps if order.trial < len(ledger.trials) else 0


@pytest.mark.parametrize("settings", [{"arms": 6}, {"arms": 6, "printed": True}, {"arms": 6, "scale": "log"}])
def test_bhpt_expects_in_the_middle_what_its_order_says(settings: dict[str, object]) -> None:
    found = told("bhpt", settings=settings, budget="40 epochs")
    for ledger, order, believed in found:
        middle = at_step(believed, steps_before(ledger, order) + int(number(order, "tau")))[2]
        assert middle == pytest.approx(number(order, "mu"), rel=1e-9, abs=1e-12)
    assert len(found) > 20


def test_thrift_expects_in_the_middle_what_its_order_says() -> None:
    found = told("thrift", settings={"opening": 0.1})
    for ledger, order, believed in found:
        middle = at_step(believed, steps_before(ledger, order) + int(number(order, "reach")))[2]
        assert float(f"{middle:.3g}") == pytest.approx(number(order, "expected_end"), rel=1e-9)
    assert len(found) > 10


@pytest.mark.parametrize(
    ("name", "settings"), [("thrift", {"opening": 0.1}), ("bhpt", {"arms": 6, "belief": "learned"})]
)
def test_a_newcomer_that_is_no_candidate_any_more_has_no_belief(name: str, settings: dict[str, object]) -> None:
    """Another version may have drawn other candidates: then nothing is told, rather than something of another config."""
    policy = policies.make(name, settings)
    assert isinstance(policy, Believing)
    found = told(name, settings=settings, budget="60 epochs")
    ledger, order, believed = next(one for one in found if one[1].trial == len(one[0].trials))
    assert believed.curves[0].config == order.config
    assert policy.believe(ledger, replace(order, config={**order.config, "lr": 0.123456})) is None


def test_the_learned_rule_expects_what_its_order_says_within_its_band() -> None:
    for ledger, order, believed in told("bhpt", settings={"arms": 6, "belief": "learned"}, budget="30 epochs"):
        reach = int(min(9 - steps_before(ledger, order), ledger.left))
        band = at_step(believed, steps_before(ledger, order) + reach)
        assert band[0] <= number(order, "mu") <= band[-1]


def test_fabolas_expects_in_the_middle_what_its_order_says() -> None:
    found = [one for one in told("fabolas_epochs") if "mu" in one[1].why]
    for _, order, believed in found:
        assert at_step(believed, order.until)[2] == pytest.approx(number(order, "mu"), rel=1e-6)
    assert found


@pytest.mark.parametrize("name", ["gp_ucb", "boca", "lc_prediction"])
def test_an_end_is_what_the_order_says(name: str) -> None:
    ends = ("mean", "std") if name != "lc_prediction" else ("forecast", "forecast_std")
    found = [one for one in told(name, budget="120 epochs") if ends[0] in one[1].why]
    for ledger, order, believed in found:
        low, _, middle, _, high = at_step(believed, ledger.max_steps)
        assert middle == pytest.approx(number(order, ends[0]))
        assert (high - low) / 2 == pytest.approx(ndtri(0.95) * number(order, ends[1]))
    assert found


@cache
def told_by_bo_bos(direction: Literal["min", "max"] = "min") -> list[tuple[Ledger, Order, Believed]]:
    """A study in which it stops runs, for several tests."""
    return told("bo_bos", budget="200 epochs", direction=direction)


def test_bo_bos_tells_of_the_futures_that_it_simulated() -> None:
    policy, seen = small("bo_bos"), 0
    for ledger, order, believed in told_by_bo_bos():
        if order.why.get("phase") == "judged" and "decision" in order.why:
            trial, n0 = ledger.trials[order.trial], int(number(order, "planned_at"))
            bounds = pick_range(ledger, None, None, RunsUnderWay.read(ledger.memo, policy.memo_lists).error_range)  # type: ignore[attr-defined]
            errors = np.clip((np.array(curve_of(trial)[:n0]) - bounds.low) / bounds.width, 0.0, 1.0)
            mean, _ = curve_posterior(errors, range(n0 + 1, 10), fit_curve(errors))
            expected = bounds.low + bounds.width * np.clip(mean, 0.0, 1.0)
            np.testing.assert_allclose(believed.curves[0].quantiles[2], expected)
            seen += 1
    assert seen > 3


def test_a_run_that_bo_bos_gave_up_is_told_of_beside_the_next() -> None:
    given_up = [(o, b) for _, o, b in told_by_bo_bos() if "gave_up_decision" in o.why]
    assert given_up
    for order, believed in given_up:
        assert [curve.trial for curve in believed.curves] == [order.trial, order.why["gave_up"]]


@pytest.mark.parametrize("direction", ["min", "max"])
def test_the_map_of_bo_bos_says_what_it_did(direction: Literal["min", "max"]) -> None:
    """At the place that the run had come to, the map has the verdict of the order's reasons."""
    seen = set()
    for ledger, order, believed in told_by_bo_bos(direction):
        for prefix in ("", "gave_up_"):
            if f"{prefix}decision" not in order.why or (regions := believed.regions) is None:
                continue
            if regions.trial != (order.why["gave_up"] if prefix else order.trial):
                continue
            row = len(regions.means) - 1
            assert regions.steps[row] == ledger.trials[regions.trial].steps
            cell, decision = int(number(order, f"{prefix}cell")), order.why[f"{prefix}decision"]
            cell = cell if direction == "min" else regions.verdict.shape[1] - 1 - cell
            assert regions.edges[cell] - 1e-9 <= regions.means[-1] <= regions.edges[cell + 1] + 1e-9
            verdict = regions.verdict[row, cell]
            assert verdict == decision if verdict >= 0 else decision == 0
            seen.add(int(verdict))
    assert {1, 2} <= seen


@pytest.mark.parametrize("acquisition", ["cei", "ei_alpha", "ei_cool"])
def test_offers_are_those_of_the_decision(acquisition: str) -> None:
    settings = {"initial_trials": 2, "candidates": 60, "acquisition": acquisition}
    found = told("cost_aware_ei", settings=settings, budget="200s")
    for ledger, order, believed in found:
        offers = believed.offers
        assert offers is not None
        assert offers.gain[offers.chosen] == pytest.approx(number(order, "ei"))
        assert offers.gain.max() == pytest.approx(number(order, "ei_max"))
        if "predicted_cost" in order.why:
            assert offers.cost[offers.chosen] == pytest.approx(number(order, "predicted_cost"))
            assert len(offers.front) == order.why["front_size"]
            assert (offers.chosen in offers.front) == bool(order.why["front_position"])
        assert offers.config(offers.chosen) == order.config
        if "runner_up" in order.why and offers.runner_up is not None:
            assert dumps(offers.config(offers.runner_up)) == order.why["runner_up"]
        assert (offers.least is None) == (acquisition != "cei")
        assert believed.curves[0].steps.tolist() == [ledger.max_steps]
    assert len(found) > 3
    assert any(b.offers.runner_up is not None for _, _, b in found if b.offers)


class Restless:
    """Believes something else each time, changes what it is asked about, and puts its quantiles upside down."""

    name = "restless"

    def __init__(self, fault: str) -> None:
        self.fault, self.asked = fault, 0

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        lr = float(rng.uniform(0.1, 0.9))
        return train_new(ledger, {"lr": lr, "layers": 1, "optimizer": "sgd"}, 1)

    def believe(self, ledger: Ledger, order: Order | Train) -> Believed | None:
        self.asked += 1
        quantiles = np.arange(5.0)[:, None] + (self.asked if self.fault == "restless" else 0)
        if self.fault == "order":
            quantiles = quantiles[::-1]
        if self.fault == "finite":
            quantiles[0] = -np.inf
        if self.fault == "ledger" and ledger.trials:
            ledger.trials[0].failure = "touched"
        config = {**order.config, "layers": 2} if self.fault == "config" else order.config
        return Believed([BelievedCurve(order.trial, config, np.array([1]), quantiles)])


@pytest.mark.parametrize("fault", ["order", "finite", "config"])
def test_the_contract_finds_beliefs_that_make_no_sense(fault: str) -> None:
    beliefs_make_sense(Restless("none"), light=True)
    with pytest.raises(AssertionError, match="restless"):
        beliefs_make_sense(Restless(fault), light=True)


@pytest.mark.parametrize("fault", ["restless", "ledger"])
def test_the_contract_finds_beliefs_that_change_something(fault: str) -> None:
    looking_back_changes_nothing(Restless("none"), light=True)
    with pytest.raises(AssertionError, match="restless"):
        looking_back_changes_nothing(Restless(fault), light=True)
