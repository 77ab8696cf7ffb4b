from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.entries import Order, Receipt
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.models.stopping.forecasts import forecast_by_process
from shoestring.policies.stopping.lc_prediction import LCPrediction
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition, simulate, summarise, watch

STEPS = 12
POLICY = LCPrediction(initial_trials=2, n0=4, every=2, forecast="process")
CURVES = {
    f"c{i:02d}": [float(e + (0.9 - e) / n) for n in range(1, STEPS + 1)]
    for i, e in enumerate(np.linspace(0.1, 0.8, 12))
}
ROWS = Space.from_configs([{"name": name, "x": i} for i, name in enumerate(CURVES)])


def test_runs_are_stopped_exactly_when_the_forecast_is_below_the_threshold() -> None:
    start = make_definition(POLICY, space=ROWS, budget="140 epochs", max_steps=STEPS)
    ledger = simulate(watch(POLICY), ListedCurves(CURVES, by="name"), start).ledger
    losses: dict[int, list[float]] = {}
    stops = 0
    for entry in ledger.entries():
        if isinstance(entry, Receipt):
            assert entry.value is not None
            losses.setdefault(entry.trial, []).append(entry.value)
        elif isinstance(entry, Order) and (entry.why.get("phase") == "stopping check" or "stopped" in entry.why):
            is_stop = "stopped" in entry.why
            trial = int(entry.why["stopped"]) if is_stop else entry.trial  # type: ignore[arg-type]
            best = min(min(seen) for number, seen in losses.items() if number != trial)
            found = forecast_by_process(losses[trial], STEPS, best)
            assert (found.prob_better < 0.05) == is_stop
            assert entry.why["stopped_prob_better" if is_stop else "prob_better"] == found.prob_better
            assert (len(losses[trial]) - 4) % 2 == 0
            if is_stop:
                stops += 1
                forecasts = dict(zip(entry.memo["stopped"], entry.memo["predicted"], strict=True))
                assert forecasts[trial] == pytest.approx(found.mean_error)
    assert stops
    firsts = {order.trial: order.until for order in reversed(ledger.orders)}
    assert [firsts[trial] for trial in (0, 1, 2)] == [STEPS, STEPS, 4]


def test_the_forecast_by_families_has_a_random_stream_per_trial_and_step() -> None:
    policy = replace(POLICY, forecast="families", every=4)
    start = make_definition(policy, space=ROWS, budget="34 epochs", max_steps=STEPS)
    whole = simulate(policy, ListedCurves(CURVES, by="name"), start).ledger
    assert any("prob_better" in order.why for order in whole.orders)
    resumed = simulate(policy, ListedCurves(CURVES, by="name"), *whole.entries()[: len(whole) - 3]).ledger
    assert summarise(resumed) == summarise(whole)


@pytest.mark.parametrize("settings", [{"n0": 0}, {"every": 0}, {"threshold": 1.0}, {"forecast": "mcmc"}, {"high": 1.0}])
def test_invalid_settings_raise_errors(settings: dict[str, Any]) -> None:
    with pytest.raises(PolicyError, match=next(iter(settings))):
        LCPrediction(**settings)
