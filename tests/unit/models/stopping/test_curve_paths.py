"""Curve process: comparison with dense references, and properties of the simulated curves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.stats import gamma, multivariate_normal
from thoroughness import examples

from shoestring.models.gp.kernels import decay_kernel
from shoestring.models.stopping import curve_paths
from shoestring.models.stopping.curve_paths import (
    ALPHA_BOUNDS,
    BETA_BOUNDS,
    CurveFit,
    curve_posterior,
    draw_paths,
    fit_curve,
    keep_paths_within_unit,
    log_marginal_likelihood,
)

ERRORS = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]
LOG_BOUNDS = [tuple(np.log(ALPHA_BOUNDS)), tuple(np.log(BETA_BOUNDS))]
error_lists = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)
alphas = st.floats(*ALPHA_BOUNDS)
betas = st.floats(*BETA_BOUNDS)


def gram(n: int, alpha: float, beta: float) -> np.ndarray:
    return np.array([[(beta / (i + j + beta)) ** alpha for j in range(1, n + 1)] for i in range(1, n + 1)])


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.2), (1.2, 9.0), (30.0, 400.0)])
def test_the_kernel_is_the_mean_of_decaying_exponentials(alpha: float, beta: float) -> None:
    rates = gamma(alpha, scale=1.0 / beta)
    steps = np.array([1.0, 4.0, 50.0])
    for a in steps:
        for b in steps:
            # Integrated over quantiles, because the density has a pole at 0 for alpha < 1.
            mean, _ = quad(lambda u, a=a, b=b: np.exp(-rates.ppf(u) * (a + b)), 0.0, 1.0, limit=200)
            value = decay_kernel(np.array([a + b]), alpha, beta)[0]
            np.testing.assert_allclose(value, mean, rtol=1e-6)


def test_the_update_of_the_appendix_predicts_an_error_of_nearly_zero() -> None:
    """It gives alpha = N0 and beta = sum of errors, far from the most likely parameters: the reason not to use it."""
    update, likely = fit_curve(ERRORS, rule="update"), fit_curve(ERRORS)
    assert update.alpha == 8.0
    assert update.beta == pytest.approx(sum(ERRORS)) == pytest.approx(2.003)
    assert update.log_likelihood == pytest.approx(-158.0, abs=0.5)
    assert likely.log_likelihood == pytest.approx(14.306, abs=0.001)
    predicted = {fit: curve_posterior(ERRORS, [9], fit)[0][0] for fit in (update, likely)}
    assert predicted[update] == pytest.approx(1.9e-4, rel=0.05)
    assert predicted[likely] == pytest.approx(0.17, abs=0.01)
    assert fit_curve([0.0, 0.0], rule="update").beta == BETA_BOUNDS[0]


@given(error_lists, alphas, betas)
@examples(17, thorough=50)
def test_likelihood_is_that_of_a_multivariate_normal(errors: list[float], alpha: float, beta: float) -> None:
    cov = gram(len(errors), alpha, beta) + 1e-3 * np.eye(len(errors))
    want = multivariate_normal(np.zeros(len(errors)), cov).logpdf(errors)
    got = log_marginal_likelihood(errors, alpha, beta)
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8)


@given(error_lists, alphas, betas)
@examples(17, thorough=50)
def test_posterior_is_the_conditional_normal(errors: list[float], alpha: float, beta: float) -> None:
    n, m = len(errors), 6
    joint = gram(n + m, alpha, beta)
    noisy = joint[:n, :n] + 1e-3 * np.eye(n)
    weights = np.linalg.solve(noisy, joint[:n, n:])
    mean, cov = curve_posterior(errors, range(n + 1, n + m + 1), CurveFit(alpha, beta, 1e-3, 0.0))
    np.testing.assert_allclose(mean, weights.T @ np.array(errors), rtol=1e-7, atol=1e-10)
    np.testing.assert_allclose(cov, joint[n:, n:] - joint[n:, :n] @ weights, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("point", [(-1.0, 0.5), (0.5, 3.0), (3.0, 5.0)])
def test_the_gradient_is_the_finite_difference(point: tuple[float, float]) -> None:
    y, at, step = np.array(ERRORS), np.array(point), 1e-6

    def value(where: np.ndarray) -> float:
        return curve_paths._negative_log_likelihood(y, where, 1e-3)[0]

    _, slope = curve_paths._negative_log_likelihood(y, at, 1e-3)
    for axis in np.eye(2):
        want = (value(at + step * axis) - value(at - step * axis)) / (2.0 * step)
        np.testing.assert_allclose(slope @ axis, want, rtol=1e-5, atol=1e-6)


HARD_TO_FIT = [
    # the third best minimum of the scan leads to the best fit
    [0.851, 0.778, 0.72, 0.673, 0.634, 0.6, 0.574, 0.554, 0.539, 0.524, 0.513],
    # the second best
    [0.305, 0.243, 0.234, 0.198, 0.205, 0.124, 0.187, 0.135, 0.167],
    [0.579, 0.47, 0.39, 0.409, 0.363, 0.347, 0.393],
    # long flat ridges on which a search stalls
    [0.536, 0.531, 0.502, 0.42],
    [0.74080438, 0.60643707, 0.53985128, 0.50507464, 0.45073973],
    ERRORS,
    [0.5],
]


@pytest.mark.parametrize("errors", HARD_TO_FIT)
def test_no_random_start_finds_a_better_fit(errors: list[float]) -> None:
    y, rng = np.array(errors), np.random.default_rng(3)
    fit = fit_curve(y)
    low, high = np.transpose(LOG_BOUNDS)
    for start in rng.uniform(low, high, (40, 2)):
        other = minimize(
            lambda p: curve_paths._negative_log_likelihood(y, p, 1e-3),
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=LOG_BOUNDS,
        )
        assert fit.log_likelihood >= -other.fun - 1e-6


@given(error_lists)
@examples(14, thorough=40)
def test_fits_are_within_the_bounds_and_report_their_likelihood(errors: list[float]) -> None:
    fit = fit_curve(errors)
    assert ALPHA_BOUNDS[0] <= fit.alpha <= ALPHA_BOUNDS[1]
    assert BETA_BOUNDS[0] <= fit.beta <= BETA_BOUNDS[1]
    again = log_marginal_likelihood(errors, fit.alpha, fit.beta)
    assert fit.log_likelihood == pytest.approx(again, rel=1e-12)


@pytest.mark.parametrize("errors", [[0.3], [0.0] * 6, [1.0] * 6, [1e6, 3e5, 1e5], [0.1, 0.9, 0.1, 0.9], [1e-300] * 3])
def test_degenerate_curves_give_finite_results(errors: list[float]) -> None:
    fit = fit_curve(errors)
    mean, cov = curve_posterior(errors, range(len(errors) + 1, 51), fit)
    paths = draw_paths(mean, cov, 50, np.random.default_rng(0))
    assert np.isfinite(fit.log_likelihood)
    assert np.isfinite(paths).all()


def test_paths_have_the_posterior_mean_and_covariance() -> None:
    mean, cov = curve_posterior(ERRORS, range(9, 51), fit_curve(ERRORS))
    n = 40_000
    paths = draw_paths(mean, cov, n, np.random.default_rng(1))
    deviation = np.sqrt(np.diagonal(cov))
    assert paths.shape == (n, 42)
    np.testing.assert_array_less(np.abs(paths.mean(axis=0) - mean), 5.0 * deviation / np.sqrt(n))
    # A sample covariance of normals has a standard error of at most sqrt(2 / n) of the two deviations' product.
    np.testing.assert_array_less(np.abs(np.cov(paths.T) - cov), 6.0 * np.sqrt(2.0 / n) * np.outer(deviation, deviation))


class UnitVectors:
    """Replacement for a random generator: the draws are the columns of the factor of the covariance."""

    def standard_normal(self, shape: tuple[int, int]) -> np.ndarray:
        return np.eye(*shape)


@pytest.mark.parametrize(("alpha", "beta"), [(1.2, 9.0), (0.566, 0.019), (5.0, 100.0), (0.01, 0.01), (100.0, 1000.0)])
def test_the_factor_of_the_paths_reproduces_the_covariance(alpha: float, beta: float) -> None:
    mean, cov = curve_posterior(ERRORS, range(9, 51), CurveFit(alpha, beta, 1e-3, 0.0))
    columns = (draw_paths(mean, cov, 42, UnitVectors()) - mean).T  # type: ignore[arg-type]
    np.testing.assert_allclose(columns @ columns.T, cov, rtol=0.0, atol=1.5e-12)


def test_paths_depend_on_the_seed_only() -> None:
    mean, cov = curve_posterior(ERRORS, range(9, 20), fit_curve(ERRORS))
    first, again, other = (draw_paths(mean, cov, 7, np.random.default_rng(seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_without_variance_every_path_is_the_mean() -> None:
    mean = np.array([0.3, 0.2])
    paths = draw_paths(mean, np.zeros((2, 2)), 5, np.random.default_rng(0))
    np.testing.assert_array_equal(paths, np.tile(mean, (5, 1)))


def test_only_paths_inside_the_unit_interval_are_kept() -> None:
    paths = np.array([[0.5, 0.4], [0.5, 0.0], [1.0, 0.4], [0.5, -0.1], [0.2, 1.3], [0.9, 0.1]])
    np.testing.assert_array_equal(keep_paths_within_unit(paths), paths[[0, 5]])
    assert keep_paths_within_unit(paths[1:5]).shape == (0, 2)
    np.testing.assert_array_equal(keep_paths_within_unit(paths[[0]]), paths[[0]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_curve([]), "non-empty"),
        (lambda: fit_curve([[0.1, 0.2]]), "non-empty list"),  # type: ignore[list-item]
        (lambda: fit_curve([0.3, float("nan")]), "not finite, nan"),
        (lambda: fit_curve([0.3], noise_variance=0.0), "noise_variance=0.0 must be at least"),
        (lambda: log_marginal_likelihood([0.3], -1.0, 2.0), "alpha=-1.0"),
        (lambda: draw_paths(np.zeros(1), np.eye(1), 0, np.random.default_rng(0)), "n_paths=0"),
    ],
)
def test_invalid_arguments_raise_errors(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]
