"""Golden numbers of the optimal-stopping rule: curve process, backward induction, noise correction, K1, C2."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from shoestring.models.stopping.curve_paths import CurveFit, curve_posterior, fit_curve, log_marginal_likelihood
from shoestring.models.stopping.decision_map import solve_backwards, statistic_cell
from shoestring.models.stopping.optimal_stopping import k1_schedule, noise_correction, surrogate_allows_stop


@pytest.mark.golden("bo_bos", "curve_gp")
def test_curve_process(case: Any) -> None:
    given = case.inputs
    if "alpha" not in given:
        fit = fit_curve(given["errors"], noise_variance=given["noise_variance"])
        case.check_part({"ml_log_marginal_likelihood": fit.log_likelihood})
        # Two optimisers agree on the position of a maximum only to the square root of their agreement on its height.
        case.check_part({"ml_alpha": fit.alpha, "ml_beta": fit.beta}, rtol=1e-3)
        return
    shape = {"alpha": given["alpha"], "beta": given["beta"], "noise_variance": given["noise_variance"]}
    height = log_marginal_likelihood(given["errors"], **shape)
    fit = CurveFit(**shape, log_likelihood=height)
    mean, cov = curve_posterior(given["errors"], given["epochs_out"], fit)
    case.check({"log_marginal_likelihood": height, "mean": mean, "cov": cov})


@pytest.mark.golden("bo_bos", "backward_induction")
def test_backward_induction(case: Any) -> None:
    given = case.inputs
    edges = np.array(given["cell_edges"])
    n_cells = edges.size - 1
    np.testing.assert_allclose(edges, np.linspace(0.0, 1.0, n_cells + 1), atol=1e-15)
    paths = np.array(given["paths"])
    found = solve_backwards(
        paths,
        given["incumbent_error"],
        k1=given["K1"],
        k2=given["K2"],
        cost=given["c_d0"],
        n_cells=n_cells,
        min_paths=given["min_paths_per_cell"],
        min_survivors=0,
    )
    means = np.cumsum(paths, axis=1) / np.arange(1, paths.shape[1] + 1)
    online_errors = np.array(given["online_errors"])
    step = np.arange(1, online_errors.size + 1)
    statistic = np.cumsum(online_errors) / step
    cell = statistic_cell(statistic, n_cells)
    result = {
        "cell": statistic_cell(means, n_cells),
        "count": found.count,
        "prob_theta2": found.prob_better,
        "continuation_loss": found.loss_continue,
        "value": found.value,
        "decision": found.decision,
        "online": {"step": step, "statistic": statistic, "cell": cell, "decision": found.decision[step - 1, cell]},
    }
    # Nulls are cells without paths, which are NaN here. The online run is a list of records, which are columns here.
    with_nulls = ("prob_theta2", "continuation_loss", "value")
    rows = case.records("online")
    wanted = {**case.expected} | ({"online": {key: [row[key] for row in rows] for key in rows[0]}} if rows else {})
    wanted |= {field: np.array(wanted[field], dtype=float) for field in with_nulls if field in wanted}
    replace(case, expected=wanted).check(result)


@pytest.mark.golden("bo_bos", "noise_correction")
def test_noise_correction(case: Any) -> None:
    given = case.inputs
    case.check({"xi": noise_correction(given["t"], given["noise_variance"], given["delta"])})


@pytest.mark.golden("bo_bos", "k1_schedule")
def test_k1_schedule(case: Any) -> None:
    given = case.inputs
    case.check({"K1": k1_schedule(given["gamma"], given["bo_iteration"], given["K1_init"])})


@pytest.mark.golden("bo_bos", "c2")
def test_condition_c2(case: Any) -> None:
    given = case.inputs
    case.check({"satisfied": surrogate_allows_stop(given["std_n"], given["std_N"], given["kappa"])})
