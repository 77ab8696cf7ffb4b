"""Golden numbers of cost-aware EI: the acquisition, the selection rules, the cooling exponent, the linear cost models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoestring.models.cost_aware.cost_models import log_costs
from shoestring.models.cost_aware.linear import fit_linear
from shoestring.models.cost_aware.trade_off import (
    choose_cei,
    choose_ei_alpha,
    cooling_exponent,
    find_implied_alpha,
    pareto_front,
)
from shoestring.models.gp.acquisition import log_expected_improvement


@pytest.mark.golden("cost_aware_ei", "ei")
def test_ei(case: Any) -> None:
    mean, std = np.array(case.inputs["mean"]), np.array(case.inputs["std"])
    f_min = case.inputs["f_min"]
    log_ei = log_expected_improvement(mean, std, f_min)
    case.check({"ei": np.exp(log_ei), "log_ei": log_ei})
    case.check_part({"log_ei": log_ei}, rtol=1e-14)


@pytest.mark.golden("cost_aware_ei", "selection")
def test_selection(case: Any) -> None:
    log_ei, log_cost = np.log(case.inputs["ei"]), np.log(case.inputs["cost"])
    intervals = {}
    for key, want in case.expected.get("alpha_interval", {}).items():
        implied = find_implied_alpha(log_ei, log_cost, int(key))
        assert implied.supported == (want is not None)
        got = [implied.low, None if np.isinf(implied.high) else implied.high] if implied.supported else None
        if want is not None and want[1] is None:  # a list with a null is compared exactly: check its number here
            assert got is not None
            assert got[1] is None
            np.testing.assert_allclose(implied.low, want[0], rtol=1e-12)
            got = want
        intervals[key] = got
    case.check(
        {
            "pareto_front": pareto_front(log_ei, log_cost),
            "cei": {key: choose_cei(log_ei, log_cost, float(key)) for key in case.expected.get("cei", {})},
            "ei_alpha": {
                key: choose_ei_alpha(log_ei, log_cost, float(key)) for key in case.expected.get("ei_alpha", {})
            },
            "alpha_interval": intervals,
        },
        rtol=1e-12,
    )


@pytest.mark.golden("cost_aware_ei", "cooling")
def test_cooling(case: Any) -> None:
    alpha = cooling_exponent(case.inputs["total"], case.inputs["initial"], case.inputs["spent"])
    case.check({"alpha": alpha}, rtol=1e-12)


@pytest.mark.golden("cost_aware_ei", "cost_model")
def test_cost_model(case: Any) -> None:
    names = ("num_round", "max_depth", "subsample")
    features = np.log(np.column_stack([np.array(case.inputs[name], dtype=float) for name in names]))
    columns = [names.index(feature.removeprefix("log ")) for feature in case.inputs["features"]]
    log_cost = log_costs(np.array(case.inputs["seconds"]))
    model = fit_linear(features, log_cost, columns)
    at_data, _ = model.predict(features)
    at_test, _ = model.predict(np.log(np.array(case.inputs["test"], dtype=float)))
    case.check(
        {
            "weights": model.weights,
            "residual_variance": model.residual_sum / (model.n - model.weights.size),
            "predicted_seconds": np.exp(at_test),
            "rmse_log": np.sqrt(np.mean((at_data - log_cost) ** 2)),
        },
        rtol=1e-10,
    )
