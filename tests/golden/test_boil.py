"""Golden numbers of curve compression, joint likelihood, augmentation, cost regression and the cost-aware decision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoestring.models.boil.augmentation import log_condition, pick_most_uncertain
from shoestring.models.boil.choice import CostPlane, log_ratio, log_softplus_ratio
from shoestring.models.boil.compression import CurveMatrix, compress, preference_weights, standardise
from shoestring.models.boil.score_process import CurveProcess, ProcessParameters, product_kernel
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.posterior import condition


@pytest.mark.golden("boil", "compression")
def test_compression(case: Any) -> None:
    m0, g0, max_steps = case.inputs["m0"], case.inputs["g0"], case.inputs["T_max"]
    curves = CurveMatrix.of([case.inputs["curve"]], max_steps)
    case.check(
        {
            "weights": preference_weights(max_steps, midpoint=m0, growth=g0)[:, 0],
            "score_sum": float(compress(curves, midpoint=m0, growth=g0)[0][0]),
            "score_code_variant": float(compress(curves, midpoint=m0, growth=g0, preference="tail_mean")[0][0]),
        }
    )


@pytest.mark.golden("boil", "likelihood")
def test_likelihood(case: Any) -> None:
    parameters = ProcessParameters(
        lengthscale_x=case.inputs["lengthscale_x"],
        lengthscale_t=case.inputs["lengthscale_t"],
        noise_variance=case.inputs["noise_variance"],
        midpoint=case.inputs["m0"],
        growth=case.inputs["g0"],
    )
    curves = CurveMatrix.of(case.inputs["curves"], case.inputs["T_max"])
    scores, slopes = compress(curves, midpoint=parameters.midpoint, growth=parameters.growth)
    tail, _ = compress(curves, midpoint=parameters.midpoint, growth=parameters.growth, preference="tail_mean")
    value, gradient = CurveProcess(np.array(case.inputs["Z"]), curves).log_likelihood_and_gradient(parameters)
    case.check(
        {
            "scores": scores,
            "scores_code_variant": tail,
            "standardised": standardise(scores, slopes)[0],
            "log_marginal_likelihood": value,
            "dL_dm0": gradient[2],
            "dL_dg0": gradient[3],
            "dscore_dm0": slopes[:, 0],
            "dscore_dg0": slopes[:, 1],
        }
    )


@pytest.mark.golden("boil", "augmentation")
def test_augmentation(case: Any) -> None:
    z, x = np.array(case.inputs["Z"]), np.array(case.inputs["x"])
    parameters = ProcessParameters(
        lengthscale_x=case.inputs["lengthscale_x"],
        lengthscale_t=case.inputs["lengthscale_t"],
        noise_variance=case.inputs["noise_variance"],
    )
    gp = condition(product_kernel(len(x)), parameters.theta(len(x)), z, np.zeros(len(z)), mean="zero")
    grid = np.array([t for t in case.inputs["t_grid"] if t <= case.inputs["t_max"]])
    limits = {"max_log_condition": case.inputs["delta"], "floor": case.inputs["variance_floor"]}
    found = pick_most_uncertain(gp, x, grid, max_points=case.inputs["M"], **limits)

    points = np.column_stack([np.tile(x, (len(found.times), 1)), found.times])
    trace: list[dict[str, Any]] = [
        {"log_cond": log_condition(gp, points[:i]), "t": float(t), "variance": float(variance)}
        for i, (t, variance) in enumerate(zip(found.times, found.variances, strict=True))
    ]
    if found.stop != "count":
        trace.append({"log_cond": log_condition(gp, points), "stop": found.stop})
    if found.stop == "variance":  # the time that was not added
        for point in points:
            gp = gp.append(point, 0.0)
        _, rest = gp.predict(np.column_stack([np.tile(x, (len(grid), 1)), grid]))
        trace[-1] |= {"t": float(grid[np.argmax(rest)]), "variance": float(rest.max())}
    close = [{k: pytest.approx(v, rel=1e-7, abs=0.0) if k != "stop" else v for k, v in step.items()} for step in trace]
    case.check({"picked": found.times, "trace": close})


@pytest.mark.golden("boil", "cost_regression")
def test_cost_regression(case: Any) -> None:
    cost = CostPlane.of(np.array(case.inputs["Z"]), np.array(case.inputs["cost"]))
    prediction = cost.predict(np.array(case.inputs["query"]))
    case.check({"coefficients_intercept_first": cost.coefficients, "prediction": prediction})


@pytest.mark.golden("boil", "acquisition")
def test_acquisition(case: Any) -> None:
    mean, std, cost = (np.array(case.inputs[name]) for name in ("mean", "std", "cost"))
    best_mean = case.inputs["mu_max"]
    improvement = np.exp(log_expected_improvement(-mean, std, -best_mean))
    printed_rule = np.exp(log_softplus_ratio(log_expected_improvement(-mean, std, -best_mean), cost))
    ratio = log_ratio(log_expected_improvement(-mean, std, -best_mean), cost)
    case.check(
        {
            "ei": improvement,
            "softplus_ratio": printed_rule,
            "argmax_softplus": int(np.argmax(printed_rule)),
            "log_ratio": ratio,
            "argmax_log_ratio": int(np.argmax(ratio)),
        }
    )
