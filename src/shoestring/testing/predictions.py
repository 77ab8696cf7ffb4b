"""The contract of `predict`, for policies that have this method; `core/deciding/prediction.py` describes what it returns.

    from shoestring.testing import PREDICTION_CHECKS

    @pytest.mark.parametrize("check", PREDICTION_CHECKS)
    def test_predictions(check):
        check(MyPolicy())

`check(policy, light=True)` runs smaller studies, for slow policies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import numpy as np

from shoestring.core.deciding.policy import Policy
from shoestring.core.deciding.prediction import LEVELS, MAX_CURVES, PredictingPolicy, Prediction
from shoestring.core.ledger.entries import Direction, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.runners.simulated.simulated_runner import Source
from shoestring.testing.curves import DecayingCurves, NegatedCurves
from shoestring.testing.policies import ROUGH_CURVES, Check, fingerprint, make_definition, restore_policy, simulate


def iterate_decisions(ledger: Ledger, every: int = 1) -> Iterator[tuple[Ledger, Order]]:
    """Yield each order with the ledger as it was before; with `every`, only orders whose number is a multiple of it."""
    for place, entry in enumerate(ledger.entries()):
        if isinstance(entry, Order) and entry.number % every == 0:
            yield ledger.fork(place), entry


def check_predictions(policy: Policy, light: bool = False) -> None:
    """At least one order has a prediction; its curves have finite, ascending quantiles, and that of the order is the first."""
    predicting, found = cast(PredictingPolicy, policy), 0
    sources: tuple[tuple[Source, Direction], ...] = (
        (DecayingCurves(), "min"),
        (ROUGH_CURVES, "min"),
        (NegatedCurves(ROUGH_CURVES), "max"),
    )
    for source, direction in sources:
        start = make_definition(policy, budget="30 epochs" if light else "90 epochs", direction=direction)
        for ledger, order in iterate_decisions(simulate(policy, source, start).ledger):
            prediction = predicting.predict(ledger, order)
            if prediction is not None:
                found += 1
                _check_curves(ledger, order, prediction, f"{policy.name} at order {order.number}")
    assert found, f"{policy.name} has a `predict` that never returns a prediction"


def _check_curves(ledger: Ledger, order: Order, prediction: Prediction, subject: str) -> None:
    """Check predicted curves; each message begins with `subject`."""
    curves = prediction.curves
    assert 1 <= len(curves) <= MAX_CURVES, f"{subject} predicts {len(curves)} curves, not 1 to {MAX_CURVES}"
    assert dict(curves[0].config) == dict(order.config), f"{subject}: the first curve is not that of the order"
    for curve in curves:
        assert curve.trial is None or curve.trial <= len(ledger.trials), f"{subject}: there is no trial {curve.trial}"
        assert curve.quantiles.shape == (len(LEVELS), len(curve.steps)), (
            f"{subject}: each step needs {len(LEVELS)} quantiles"
        )
        assert np.isfinite(curve.quantiles).all(), f"{subject}: quantiles are not finite"
        assert (np.diff(curve.quantiles, axis=0) >= 0.0).all(), f"{subject}: quantiles are not in ascending order"
        assert (np.diff(curve.steps) > 0).all(), f"{subject}: steps are not in ascending order"
        assert 1 <= curve.steps[0] <= curve.steps[-1] <= ledger.max_steps, f"{subject}: steps outside 1 to max_steps"


def check_predicting_has_no_effect(policy: Policy, light: bool = False) -> None:
    """The same ledger leads to the same prediction, also by a restored policy; and predicting changes no decision."""
    start = make_definition(policy, budget="30 epochs" if light else "60 epochs")
    ledger = simulate(policy, ROUGH_CURVES, start).ledger
    for then, order in iterate_decisions(ledger, every=5 if light else 3):
        before = fingerprint(then)
        first = cast(PredictingPolicy, policy).predict(then, order)
        assert fingerprint(then) == before, f"{policy.name} changed the ledger in `predict`"
        again = cast(PredictingPolicy, restore_policy(policy)).predict(then.fork(len(then)), order)
        assert _as_text(first) == _as_text(again), f"{policy.name} predicts differently a second time"
        untouched = then.fork(len(then))
        decision = policy.decide(untouched, untouched.decision_rng())
        assert policy.decide(then, then.decision_rng()) == decision, (
            f"{policy.name} decides differently after `predict`"
        )


def _as_text(prediction: Prediction | None) -> str:
    if prediction is None:
        return ""
    curves = [(c.trial, dumps(c.config), c.steps.tolist(), c.quantiles.tolist()) for c in prediction.curves]
    candidates, regions = prediction.candidate_scores, prediction.regions
    scores = candidates and (candidates.gain.tolist(), candidates.cost.tolist(), candidates.runner_up)
    actions = regions and (regions.trial, regions.edges.tolist(), regions.action.tolist(), regions.means.tolist())
    return repr((prediction.quantity, curves, scores, actions))


PREDICTION_CHECKS: tuple[Check, ...] = (check_predictions, check_predicting_has_no_effect)
