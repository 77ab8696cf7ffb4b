"""The exact GP, compared with dense algebra, finite differences and scikit-learn; degenerate data; the fit."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from thoroughness import examples

from shoestring.models.gp import fit
from shoestring.models.gp.fit import fit_gp, make_log_likelihood
from shoestring.models.gp.kernels import Block, Kernel, Pairs
from shoestring.models.gp.posterior import GP, Mean, condition, factorise

Array = NDArray[np.float64]

KERNEL = Kernel.ard("matern52", 3)
THETA = np.array([0.3, -0.6, 0.2, 1.0, math.log(0.02)])


def data(n: int = 15, d: int = 3, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, d))
    return x, 40.0 + 7.0 * np.sin(5 * x[:, 0]) + 3.0 * x[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


def log_likelihood(gp: GP, theta: Array | None = None) -> tuple[float, Array]:
    """Return the log likelihood of the standardised outputs and its gradient."""
    y = (gp.y - gp.shift) / gp.scale
    return make_log_likelihood(gp.kernel, gp.kernel.pairs(gp.x), y)(gp.theta if theta is None else theta)


def dense(gp: GP, x_new: Array) -> tuple[Array, Array]:
    """Return latent mean and covariance by textbook formulas with a general solver."""
    theta = gp.theta[:-1]
    n = gp.y.size
    a = gp.kernel.matrix(theta, gp.x, gp.x) + (math.exp(gp.theta[-1]) + gp.jitter) * np.eye(n)
    shift, scale = (float(gp.y.mean()), float(gp.y.std())) if gp.standardise else (0.0, 1.0)
    y = (gp.y - shift) / scale
    one = np.ones(n)
    m = float(one @ np.linalg.solve(a, y) / (1 + one @ np.linalg.solve(a, one))) if gp.mean == "constant" else 0.0
    k = gp.kernel.matrix(theta, x_new, gp.x)
    mean = shift + scale * (m + k @ np.linalg.solve(a, y - m))
    covariance = scale**2 * (gp.kernel.matrix(theta, x_new, x_new) - k @ np.linalg.solve(a, k.T))
    return mean, covariance


@pytest.mark.parametrize("mean", ["zero", "constant"])
@pytest.mark.parametrize("standardise", [True, False])
def test_predictions_are_the_textbook_formulas(mean: Mean, standardise: bool) -> None:
    x, y = data()
    gp = condition(KERNEL, THETA, x, y, mean=mean, standardise=standardise)
    x_new = np.vstack([data(40, seed=1)[0], x[:2]])
    want_mean, want_cov = dense(gp, x_new)
    size = gp.scale**2
    got_mean, got_var = gp.predict(x_new)
    np.testing.assert_allclose(got_mean, want_mean, rtol=1e-11)
    np.testing.assert_allclose(got_var, want_cov.diagonal(), rtol=1e-9, atol=1e-12 * size)
    joint_mean, joint_cov = gp.predict_joint(x_new)
    np.testing.assert_allclose(joint_mean, want_mean, rtol=1e-11)
    np.testing.assert_allclose(joint_cov, want_cov, rtol=1e-9, atol=1e-12 * size)
    np.testing.assert_allclose(gp.predict_observed(), gp.predict(x)[0], rtol=1e-11)


def test_the_mean_alone_is_the_mean() -> None:
    rng = np.random.default_rng(2)
    gp = condition(Kernel.ard("matern52", 2), np.log([1.3, 0.4, 0.6, 1e-3]), rng.random((9, 2)), 5.0 + rng.random(9))
    at = rng.random((6, 2))
    np.testing.assert_allclose(gp.predict_mean(at), gp.predict(at)[0], rtol=1e-12)


def test_noisy_predictions_add_the_noise_once() -> None:
    x, y = data()
    gp = condition(KERNEL, THETA, x, y)
    x_new = data(5, seed=1)[0]
    noise = 0.02 * y.var()
    np.testing.assert_allclose(gp.noise_variance, noise, rtol=1e-12)
    np.testing.assert_allclose(gp.predict(x_new, noisy=True)[1], gp.predict(x_new)[1] + noise, rtol=1e-12)


def test_many_points_in_chunks_equal_the_same_points_one_by_one() -> None:
    x, y = data(90)
    gp = condition(KERNEL, THETA, x, y)
    x_new = data(400, seed=1)[0]
    mean, variance = gp.predict(x_new)
    singles = [gp.predict(row[None, :]) for row in x_new]
    np.testing.assert_allclose(mean, [m[0] for m, _ in singles], rtol=1e-12)
    np.testing.assert_allclose(variance, [v[0] for _, v in singles], rtol=1e-10)
    assert gp.predict(np.empty((0, 3)))[0].shape == (0,)


def test_agrees_with_scikit_learn() -> None:
    x, y = data(25)
    x_new = data(30, seed=1)[0]
    kernel = ConstantKernel(math.exp(THETA[0])) * Matern(np.exp(THETA[1:-1]), nu=2.5) + WhiteKernel(math.exp(THETA[-1]))
    # sklearn's own nugget is 1e-10 by default and must be positive; this one is below rounding
    peer = GaussianProcessRegressor(kernel, alpha=1e-300, optimizer=None, normalize_y=True).fit(x, y)
    gp = condition(KERNEL, THETA, x, y, mean="zero")
    want_mean, want_cov = peer.predict(x_new, return_cov=True)
    mean, covariance = gp.predict_joint(x_new)
    np.testing.assert_allclose(mean, want_mean, rtol=1e-8)
    noisy = covariance + gp.noise_variance * np.eye(30)
    np.testing.assert_allclose(noisy, want_cov, rtol=1e-8, atol=1e-8 * y.var())


def test_the_likelihood_agrees_with_scikit_learn() -> None:
    x, y = data(25)
    gp = condition(KERNEL, THETA, x, y)
    kernel = ConstantKernel(math.exp(THETA[0])) * Matern(np.exp(THETA[1:-1]), nu=2.5) + WhiteKernel(math.exp(THETA[-1]))
    standardised = (y - gp.shift) / gp.scale - gp.constant  # scikit-learn has no mean parameter: subtract ours
    peer = GaussianProcessRegressor(kernel, alpha=1e-300, optimizer=None).fit(x, standardised)
    want_value, want_gradient = peer.log_marginal_likelihood(peer.kernel_.theta, eval_gradient=True)
    value, gradient = log_likelihood(gp)
    np.testing.assert_allclose(value, want_value - 0.5 * (gp.constant**2 + math.log(2 * math.pi)), rtol=1e-8)
    np.testing.assert_allclose(gradient, want_gradient, rtol=1e-8)


def test_likelihood_is_the_normal_density_and_its_gradient() -> None:
    kernel = Kernel((Block("matern52", (0, 2), tied=True), Block("se", (1,))))
    x, y = data(12)
    gp = condition(kernel, np.array([0.3, -0.6, 0.2, math.log(0.02)]), x, y)
    standard = (y - y.mean()) / y.std() - gp.constant
    a = kernel.matrix(gp.theta[:-1], x, x) + 0.02 * np.eye(12)
    want = -0.5 * (standard @ np.linalg.solve(a, standard) + np.linalg.slogdet(2 * np.pi * a)[1])
    want += -0.5 * gp.constant**2 - 0.5 * math.log(2 * math.pi)
    value, gradient = log_likelihood(gp)
    np.testing.assert_allclose(value, want, rtol=1e-12)

    def at(theta: Array) -> float:
        return log_likelihood(gp, theta)[0]

    steps = 1e-5 * np.eye(gp.theta.size)
    want_gradient = [(at(gp.theta + h) - at(gp.theta - h)) / 2e-5 for h in steps]
    np.testing.assert_allclose(gradient, want_gradient, rtol=1e-7, atol=1e-8)


def test_input_gradients_by_differences() -> None:
    kernel = Kernel((Block("matern52", (0,)), Block("hamming", (1,)), Block("matern32", (2,))))
    x, y = data()
    x[:, 1] = np.round(2 * x[:, 1])
    gp = condition(kernel, THETA, x, y)
    x_new = data(6, seed=1)[0]
    x_new[:, 1] = np.round(2 * x_new[:, 1])
    mean, variance, d_mean, d_variance = gp.predict_with_gradient(x_new)
    np.testing.assert_allclose(mean, gp.predict(x_new)[0], rtol=1e-13)
    np.testing.assert_allclose(variance, gp.predict(x_new)[1], rtol=1e-10)
    assert not d_mean[:, 1].any()
    assert not d_variance[:, 1].any()
    for j in (0, 2):
        h = 1e-5 * np.eye(3)[j]
        (up_mean, up_var), (down_mean, down_var) = gp.predict(x_new + h), gp.predict(x_new - h)
        np.testing.assert_allclose(d_mean[:, j], (up_mean - down_mean) / 2e-5, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(d_variance[:, j], (up_var - down_var) / 2e-5, rtol=1e-6, atol=1e-6)


@examples(10, thorough=30)
@given(st.integers(1, 12), st.integers(1, 12), st.integers(0, 10**6), st.sampled_from([1e-6, 1.0, 1e6]))
def test_appending_equals_conditioning_on_all(n: int, extra: int, seed: int, unit: float) -> None:
    x, y = data(n + extra, seed=seed)
    y *= unit
    gp = condition(KERNEL, THETA, x[:n], y[:n])
    for i in range(n, n + extra):
        gp = gp.append(x[i], float(y[i]))
    whole = condition(KERNEL, THETA, x, y)
    np.testing.assert_allclose(gp.factor, whole.factor, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(gp.weights, whole.weights, rtol=1e-9, atol=1e-9)
    assert (gp.shift, gp.scale) == (whole.shift, whole.scale)
    x_new = data(5, seed=1)[0]
    for got, want in zip(gp.predict(x_new), whole.predict(x_new), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9 * unit)


def test_appending_predicted_values_equals_conditioning_on_them() -> None:
    x, y = data(9)
    more, x_new = data(3, seed=1)[0], data(5, seed=2)[0]
    appended = condition(KERNEL, THETA, x, y).append_predicted(more)
    for point in more:  # the slow way: each prediction takes those before it as observed
        y = np.append(y, condition(KERNEL, THETA, x, y).predict(point[None])[0])
        x = np.vstack([x, point])
    for got, want in zip(appended.predict(x_new), condition(KERNEL, THETA, x, y).predict(x_new), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-9)


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10**6))
@examples(10, thorough=30)
def test_extending_by_several_rows_equals_conditioning_on_all(n: int, extra: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y, at = rng.random((n + extra, 3)), rng.standard_normal(n + extra), rng.random((7, 3))
    theta = np.log([1.3, 0.4, 0.6, 0.5, 1e-3])
    whole = condition(Kernel.ard("matern52", 3), theta, x, y)
    grown = condition(Kernel.ard("matern52", 3), theta, x[:n], y[:n]).extend(x[n:], y[n:])
    np.testing.assert_allclose(grown.factor, whole.factor, rtol=1e-9, atol=1e-11)
    for ours, theirs in zip(grown.predict(at), whole.predict(at), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


def test_appending_a_repeated_point_without_noise_adds_jitter() -> None:
    x, y = data(5)
    theta = np.append(THETA[:-1], -200.0)
    gp = condition(KERNEL, theta, x, y)
    assert gp.jitter == 0.0
    twice = gp.append(x[0], float(y[0]) + 1.0)
    assert twice.jitter > 0.0
    np.testing.assert_allclose(twice.predict(x[:1])[0], y[0] + 0.5, rtol=1e-6)  # between the two contradicting values
    extended = twice.append(np.array([0.1, 0.2, 0.3]), 41.0)
    np.testing.assert_allclose(extended.factor @ extended.factor.T, dense_covariance(extended), rtol=1e-9, atol=1e-12)


def dense_covariance(gp: GP) -> Array:
    noise = math.exp(gp.theta[-1]) + gp.jitter
    return np.asarray(gp.kernel.matrix(gp.theta[:-1], gp.x, gp.x) + noise * np.eye(gp.y.size))


DEGENERATE: dict[str, tuple[Array, Array]] = {
    "one point": (np.array([[0.5, 0.5, 0.5]]), np.array([3.0])),
    "two equal points": (np.full((2, 3), 0.5), np.array([3.0, 3.0])),
    "equal points, other values": (np.full((4, 3), 0.5), np.array([1.0, 2.0, 3.0, 4.0])),
    "many duplicates": (np.repeat(data(4)[0], 10, axis=0), np.repeat(data(4)[1], 10)),
    "constant outputs": (data(8)[0], np.full(8, 3.7)),
    "zeros": (data(8)[0], np.zeros(8)),
    "nearly constant": (data(8)[0], 1e6 + 1e-9 * data(8)[1]),
    "huge outputs": (data(10)[0], 1e6 * data(10)[1]),
    "tiny outputs": (data(10)[0], 1e-6 * data(10)[1]),
    "absurd outputs": (data(10)[0], 1e140 * data(10)[1]),
    "an outlier": (data(12)[0], np.append(data(11)[1], 1e9)),
    "a line of points": (np.linspace(0, 1, 60)[:, None] * np.ones(3), np.linspace(0, 1, 60)),
}


@pytest.mark.parametrize("name", DEGENERATE)
@pytest.mark.parametrize("log_noise", [None, -200.0])
def test_degenerate_data_give_finite_predictions(name: str, log_noise: float | None) -> None:
    """With fitted parameters, and with no noise and a long length-scale, where only the jitter makes a factor possible."""
    x, y = DEGENERATE[name]
    theta = np.array([0.0, 2.0, 2.0, 2.0, -200.0])
    gp = fit_gp(KERNEL, x, y, n_starts=1) if log_noise is None else condition(KERNEL, theta, x, y)
    assert np.all(np.isfinite(gp.theta))
    x_new = np.vstack([data(20, seed=1)[0], x, np.full((1, 3), 1e3)])
    mean, variance, d_mean, d_variance = gp.predict_with_gradient(x_new)
    for result in (mean, variance, d_mean, d_variance, gp.predict_joint(x_new)[1], gp.predict_observed()):
        assert np.all(np.isfinite(result))
    assert np.all(variance > 0.0)
    assert np.all(np.isfinite(gp.append(x[0], float(y[0])).predict(x_new)[1]))
    if log_noise is None:
        spread = max(float(np.ptp(y)), 1e-9 * float(np.abs(y).max()))
        assert np.all(np.abs(mean[:20] - y.mean()) <= 3 * spread)  # inside the cube nothing runs away


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_priors_keep_few_points_from_degenerating(n: int, seed: int) -> None:
    x, y = data(n, seed=seed)
    gp = fit_gp(KERNEL, x, y)
    assert np.exp(gp.theta[1:-1]).min() > 0.05
    assert np.exp(gp.theta[1:-1]).max() < 20.0
    assert np.exp(gp.theta[-1]) < 0.5 * np.exp(gp.theta[0])  # the data are not taken for noise
    assert gp.predict(np.full((1, 3), 9.0))[1][0] > 0.1 * y.var()  # and predictions far from the data stay uncertain


@examples(5, thorough=10)
@given(st.integers(0, 1000), st.sampled_from([1e-6, 1e-2, 1e6]), st.floats(-5, 5))
def test_fit_does_not_depend_on_the_unit_of_the_output(seed: int, unit: float, offset: float) -> None:
    x, y = data(12, seed=seed)
    x_new = data(5, seed=1)[0]
    plain = fit_gp(KERNEL, x, y, n_starts=1)
    other = fit_gp(KERNEL, x, unit * (y + offset), n_starts=1)
    np.testing.assert_allclose(other.theta, plain.theta, atol=0.02)  # where L-BFGS-B stops moves with the last digits
    np.testing.assert_allclose(other.predict(x_new)[0] / unit - offset, plain.predict(x_new)[0], rtol=1e-3)


def test_fit_finds_the_mode_and_which_inputs_matter() -> None:
    x, y = data(60)
    gp = fit_gp(KERNEL, x, y)

    def log_posterior(theta: Array) -> float:
        standard_score = (theta - np.log([1.0, *[0.5 * math.sqrt(3)] * 3, 3e-3])) / np.array([1.0, 1.2, 1.2, 1.2, 2.0])
        return log_likelihood(gp, theta)[0] - 0.5 * float(standard_score @ standard_score)

    here = log_posterior(gp.theta)
    rng = np.random.default_rng(0)
    assert all(log_posterior(gp.theta + 0.1 * rng.standard_normal(5)) <= here + 1e-3 for _ in range(100))
    assert all(log_posterior(gp.theta + rng.standard_normal(5)) <= here for _ in range(100))
    assert gp.theta[1] < gp.theta[2] < gp.theta[3]  # a sine, a parabola, nothing
    np.testing.assert_allclose(math.sqrt(gp.noise_variance), 0.3, rtol=0.35)


def test_without_priors_the_likelihood_alone_is_largest() -> None:
    rng = np.random.default_rng(4)
    x = rng.random((12, 2))
    y = np.sin(5.0 * x[:, 0]) + 0.05 * rng.standard_normal(12)
    kernel = Kernel.ard("matern52", 2)
    shift, scale = y.mean(), y.std()
    likelihood = make_log_likelihood(kernel, kernel.pairs(x), (y - shift) / scale)
    alone, weighed = fit_gp(kernel, x, y, with_priors=False), fit_gp(kernel, x, y)
    assert likelihood(alone.theta)[0] > likelihood(weighed.theta)[0] + 1e-3
    inside = (
        np.abs(alone.theta - np.log(200.0)) > 1e-6
    )  # the second column has no effect: its length-scale is at the bound
    np.testing.assert_allclose(likelihood(alone.theta)[1][inside], 0.0, atol=0.02)


def test_the_next_fit_starts_from_the_memo(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = data(30)
    gp = fit_gp(KERNEL, x, y)
    memo = gp.memo()
    assert [len(memo[name]) for name in ("log_signal_variance", "log_lengthscales", "log_noise_variance")] == [1, 3, 1]
    again = fit_gp(KERNEL, x, y, memo=memo, n_starts=0)
    np.testing.assert_allclose(again.theta, gp.theta, atol=0.02)
    monkeypatch.setattr(fit, "MAX_ITERATIONS", 1)
    from_memo = fit_gp(KERNEL, x, y, memo=memo, n_starts=0)
    from_medians = fit_gp(KERNEL, x, y, n_starts=0)
    np.testing.assert_allclose(from_memo.theta, gp.theta, atol=0.02)
    assert np.abs(from_medians.theta - gp.theta).max() > 0.5  # from other start values one step does not reach it


def test_with_very_many_observations_the_search_uses_a_part_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few evaluations use all observations, and the result is as probable as that of a full search."""
    x, y = data(fit.MAX_FULL_SEARCH + 60)
    sizes: list[int] = []

    def counted(kernel: Kernel, pairs: Pairs, scaled: Array) -> Callable[[Array], tuple[float, Array]]:
        evaluate = make_log_likelihood(kernel, pairs, scaled)

        def count(theta: Array) -> tuple[float, Array]:
            sizes.append(scaled.size)
            return evaluate(theta)

        return count

    monkeypatch.setattr(fit, "make_log_likelihood", counted)
    quick = fit_gp(KERNEL, x, y)
    assert 1 < sizes.count(y.size) < 12
    assert sizes.count(fit.MAX_FULL_SEARCH) > 20
    monkeypatch.setattr(fit, "MAX_FULL_SEARCH", 10**9)
    slow = fit_gp(KERNEL, x, y)
    assert log_likelihood(quick)[0] == pytest.approx(log_likelihood(slow)[0], abs=0.5)


def test_same_data_same_fit() -> None:
    x, y = data(20)
    assert np.array_equal(fit_gp(KERNEL, x, y).theta, fit_gp(KERNEL, x, y).theta)


def test_wrong_data_are_errors() -> None:
    x, y = data(4)
    with pytest.raises(ValueError, match=r"must be \(n, 3\) and \(n,\) with n >= 1"):
        condition(KERNEL, THETA, np.empty((0, 3)), np.empty(0))
    with pytest.raises(ValueError, match=r"one row and one output"):
        fit_gp(KERNEL, x[:, :2], y)
    with pytest.raises(ValueError, match="leave diverged observations out"):
        condition(KERNEL, THETA, x, np.array([1.0, 2.0, np.nan, 3.0]))
    with pytest.raises(ValueError, match="leave diverged observations out"):
        condition(KERNEL, THETA, x, y).append(x[0], math.inf)
    with pytest.raises(ValueError, match="must be 5 finite numbers"):
        condition(KERNEL, THETA[:-1], x, y)
    with pytest.raises(ValueError, match="Drop the memo when the space changes"):
        fit_gp(KERNEL, x, y, memo={"log_signal_variance": [0.0]})


def test_factorise_raises_for_a_matrix_that_is_no_covariance() -> None:
    with pytest.raises(ValueError, match="not positive definite even with"):
        factorise(np.array([[1.0, 2.0], [2.0, 1.0]]), typical=1.0)
    factor, jitter = factorise(np.ones((3, 3)), typical=1.0)
    assert 0.0 < jitter <= 1e-9
    np.testing.assert_allclose(factor @ factor.T, np.ones((3, 3)) + jitter * np.eye(3), rtol=1e-12)
