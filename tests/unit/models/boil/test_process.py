"""The GP over hyperparameters and time: likelihood, fit, predictions, cost and choice against slow references."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoestring.models.boil.choice import (
    LinearCost,
    choose,
    largest_mean,
    log_ratio,
    log_ratio_at,
    log_ratio_gradient_at,
    unit_time,
)
from shoestring.models.boil.compression import CurveMatrix, Preference, compress
from shoestring.models.boil.process import FITTED, ON_LOG_SCALE, Bounds, JointLikelihood, Parameters, fit, posterior

Array = NDArray[np.float64]
MIN_STEPS, MAX_STEPS = 5, 20
quick = settings(deadline=None, max_examples=25)


def pool(known: Array, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Random starts and the stored points, all free to move."""
    z = np.concatenate([np.random.default_rng(seed).random((300 * known.shape[1] ** 2, known.shape[1])), known])
    return z, np.ones(z.shape, dtype=bool)


def runs(seed: int, n: int = 10, dims: int = 2) -> tuple[Array, CurveMatrix, Array]:
    """Saturating curves whose height depends on x, their points z and costs."""
    rng = np.random.default_rng(seed)
    curves, z, cost = CurveMatrix(MAX_STEPS), [], []
    for _ in range(n):
        x, steps = rng.random(dims), int(rng.integers(MIN_STEPS, MAX_STEPS + 1))
        height = math.exp(-2.0 * float(((x - 0.6) ** 2).sum()))
        curves.append(height * (1.0 - np.exp(-np.arange(1, steps + 1) / 6.0)) + 0.02 * rng.random(steps))
        z.append([*x, unit_time(steps, MIN_STEPS, MAX_STEPS)])
        cost.append(1.0 + 0.5 * steps * (1.0 + x[0]))
    return np.array(z), curves, np.array(cost)


def plain_kernel(p: Parameters, a: Array, b: Array) -> Array:
    return np.array(
        [
            [
                math.exp(
                    -float(((u[:-1] - v[:-1]) ** 2).sum()) / (2 * p.lengthscale_x**2)
                    - (u[-1] - v[-1]) ** 2 / (2 * p.lengthscale_t**2)
                )
                for v in b
            ]
            for u in a
        ]
    )


def parameters(seed: int) -> Parameters:
    rng = np.random.default_rng(seed)
    return Parameters(
        lengthscale_x=rng.uniform(0.1, 0.9),
        lengthscale_t=rng.uniform(0.1, 0.9),
        noise_variance=10 ** rng.uniform(-4, -2),
        midpoint=rng.uniform(-2, 2),
        growth=rng.uniform(0.3, 2.5),
    )


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.sampled_from(["logistic", "tail_mean", "log"]))
@quick
def test_likelihood_is_the_dense_formula(seed: int, n: int, dims: int, preference: Preference) -> None:
    z, curves, _ = runs(seed, n, dims)
    p = parameters(seed)
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth, shift=0.5, preference=preference)
    y = (y - y.mean()) / y.std() if n > 1 else np.zeros(1)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(n)
    expected = -0.5 * y @ np.linalg.solve(a, y) - 0.5 * np.linalg.slogdet(a)[1] - 0.5 * n * math.log(2 * math.pi)
    likelihood = JointLikelihood(z, curves, shift=0.5, preference=preference)
    assert likelihood.value(p) == pytest.approx(expected, rel=1e-9)
    assert likelihood.value_and_gradient(p)[0] == likelihood.value(p)


@pytest.mark.parametrize("preference", ["logistic", "tail_mean", "log", "average"])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_is_finite_differences(seed: int, preference: Preference) -> None:
    z, curves, _ = runs(seed)
    likelihood = JointLikelihood(z, curves, shift=0.3, preference=preference)
    p = parameters(seed)
    _, gradient = likelihood.value_and_gradient(p)
    h = 1e-5
    for name, derivative in zip(FITTED, gradient, strict=True):
        value = getattr(p, name)
        up, down = (value * math.exp(h), value * math.exp(-h)) if name in ON_LOG_SCALE else (value + h, value - h)
        difference = likelihood.value(replace(p, **{name: up})) - likelihood.value(replace(p, **{name: down}))
        assert derivative == pytest.approx(difference / (2 * h), rel=1e-5, abs=1e-5), name


@given(st.integers(0, 10**6), st.floats(1e-3, 1e6))
@quick
def test_the_unit_of_rewards_does_not_matter(seed: int, unit: float) -> None:
    z, curves, _ = runs(seed)
    scaled = CurveMatrix.of([unit * r[:t] for r, t in zip(curves.rewards, curves.lengths, strict=True)], MAX_STEPS)
    value = JointLikelihood(z, curves).value(parameters(seed))
    assert JointLikelihood(z, scaled).value(parameters(seed)) == pytest.approx(value, rel=1e-7)


def test_the_likelihood_does_not_grow_with_the_midpoint() -> None:
    """On scores that are not standardised it does, since late midpoints shrink every score."""
    z, curves, _ = runs(1)
    p = Parameters()
    likelihood = JointLikelihood(z, curves)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(len(z))
    raw, standardised = [], []
    for m0 in (-3.0, 0.0, 3.0, 6.0):
        y, _ = compress(curves, midpoint=m0, growth=p.growth)
        raw.append(-0.5 * y @ np.linalg.solve(a, y))
        standardised.append(likelihood.value(replace(p, midpoint=m0)))
    assert np.all(np.diff(raw) > 0.0)
    assert not np.all(np.diff(standardised) > 0.0)


def test_fit_beats_a_grid() -> None:
    z, curves, _ = runs(3, n=12)
    likelihood = JointLikelihood(z, curves)
    found = fit(likelihood, Parameters(), np.random.default_rng(0))
    grid = max(
        likelihood.value(Parameters(lengthscale_x=sx, lengthscale_t=st_, midpoint=m0, growth=g0))
        for sx in (0.1, 0.3, 0.6, 1.0)
        for st_ in (0.1, 0.3, 0.6, 1.0)
        for m0 in (-4.0, -2.0, 0.0, 2.0, 4.0)
        for g0 in (0.1, 1.0, 2.0, 3.0)
    )
    assert likelihood.value(found) >= grid
    assert found.noise_variance == Parameters().noise_variance


@given(st.integers(0, 10**6), st.booleans())
@settings(deadline=None, max_examples=6)
def test_fit_never_loses_stays_in_bounds_and_repeats(seed: int, learn_noise: bool) -> None:
    z, curves, _ = runs(seed, n=8)
    likelihood, previous, bounds = JointLikelihood(z, curves), Parameters(), Bounds()
    found = fit(likelihood, previous, np.random.default_rng(seed), learn_noise=learn_noise, random_starts=3)
    again = fit(likelihood, previous, np.random.default_rng(seed), learn_noise=learn_noise, random_starts=3)
    assert found == again
    assert likelihood.value(found) >= likelihood.value(previous)
    for name in FITTED:
        low, high = getattr(bounds, name)
        assert low <= getattr(found, name) <= high
    assert learn_noise or found.noise_variance == previous.noise_variance


def test_fit_starts_from_the_previous_values_too() -> None:
    z, curves, _ = runs(5)
    likelihood = JointLikelihood(z, curves)
    good = fit(likelihood, Parameters(), np.random.default_rng(1))
    climbed = fit(likelihood, Parameters(), np.random.default_rng(2), random_starts=0)
    assert likelihood.value(climbed) > likelihood.value(Parameters()) + 0.1
    kept = fit(likelihood, good, np.random.default_rng(2), random_starts=0)
    assert likelihood.value(kept) == pytest.approx(likelihood.value(good), rel=1e-6)


@pytest.mark.parametrize("seed", [3, 6, 8])
def test_random_starts_lead_out_of_a_poor_corner(seed: int) -> None:
    z, curves, _ = runs(seed, n=20)
    likelihood = JointLikelihood(z, curves)
    corner = Parameters(lengthscale_x=0.05, lengthscale_t=0.05, midpoint=4.0, growth=3.0)
    alone = likelihood.value(fit(likelihood, corner, np.random.default_rng(0), random_starts=0))
    values = [likelihood.value(fit(likelihood, corner, np.random.default_rng(i))) for i in range(4)]
    assert min(values) > alone + 1.0
    np.testing.assert_allclose(values, values[0], rtol=1e-6)  # the best of twenty leads to the same top


def test_fit_keeps_the_previous_values_on_failure() -> None:
    z, curves, _ = runs(0)
    z[:] = z[0]  # one point ten times, and no noise worth the name: no Cholesky factor
    previous = Parameters(noise_variance=1e-300)
    likelihood = JointLikelihood(z, curves)
    with pytest.raises(np.linalg.LinAlgError):
        likelihood.value(previous)
    assert fit(likelihood, previous, np.random.default_rng(0)) is previous


def test_fit_learns_nothing_from_one_curve() -> None:
    z, curves, _ = runs(0, n=1)
    previous = Parameters()
    assert fit(JointLikelihood(z, curves), previous, np.random.default_rng(0)) is previous


@pytest.mark.parametrize("preference", ["log", "average"])
def test_fit_leaves_a_logistic_that_is_not_used(preference: Preference) -> None:
    z, curves, _ = runs(0)
    found = fit(JointLikelihood(z, curves, preference=preference), Parameters(), np.random.default_rng(0))
    assert (found.midpoint, found.growth) == (Parameters().midpoint, Parameters().growth)
    assert found.lengthscale_x != Parameters().lengthscale_x


def test_memo_and_back() -> None:
    p = parameters(7)
    memo = p.to_memo()
    assert all(isinstance(v, float) for values in memo.values() for v in values)
    assert Parameters.from_memo(memo) == p
    assert set(memo) == set(asdict(p))
    with pytest.raises(ValueError, match="growth"):
        Parameters.from_memo({name: values for name, values in memo.items() if name != "growth"})


@given(st.integers(0, 10**6), st.integers(2, 10))
@quick
def test_posterior_is_the_dense_formula(seed: int, n: int) -> None:
    z, curves, _ = runs(seed, n)
    p = parameters(seed)
    query = np.random.default_rng(seed).random((4, 3))
    mean, variance = posterior(p, z, curves).predict(query)
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(n)
    k = plain_kernel(p, query, z)
    expected = y.mean() + k @ np.linalg.solve(a, y - y.mean())
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-7 * y.std())
    left = 1.0 - np.einsum("qn,nq->q", k, np.linalg.solve(a, k.T))
    np.testing.assert_allclose(variance, left * y.std() ** 2, rtol=1e-6, atol=1e-9 * y.std() ** 2)


def test_appending_equals_conditioning_anew() -> None:
    z, curves, _ = runs(2, n=9)
    p = Parameters()
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth)
    first = CurveMatrix.of([r[:t] for r, t in zip(curves.rewards[:4], curves.lengths[:4], strict=True)], MAX_STEPS)
    gp = posterior(p, z[:4], first)
    for point, score in zip(z[4:], y[4:], strict=True):
        gp = gp.append(point, score)
    whole = posterior(p, z, curves)
    query = np.random.default_rng(0).random((5, 3))
    np.testing.assert_allclose(gp.predict(query), whole.predict(query), rtol=1e-8)


def test_cost_is_a_plane_with_intercept() -> None:
    rng = np.random.default_rng(0)
    z = rng.random((12, 4))
    cost = 5.0 + z @ np.array([1.0, -2.0, 0.5, 30.0])
    plane = LinearCost.of(z, cost)
    np.testing.assert_allclose(plane.coefficients, [5.0, 1.0, -2.0, 0.5, 30.0], rtol=1e-10)
    np.testing.assert_allclose(plane.scaled(z), (cost - cost.min()) / np.ptp(cost), atol=1e-12)
    noisy = cost + rng.standard_normal(12)
    columns = np.column_stack([np.ones(12), z])
    expected = np.linalg.solve(columns.T @ columns, columns.T @ noisy)
    np.testing.assert_allclose(LinearCost.of(z, noisy).coefficients, expected, rtol=1e-9)


def test_cost_from_hardly_any_points() -> None:
    one = LinearCost.of(np.array([[0.3, 0.8]]), np.array([7.0]))
    np.testing.assert_allclose(one.predict(np.array([[0.0, 0.0], [1.0, 1.0]])), 7.0)
    np.testing.assert_allclose(one.scaled(np.array([[0.5, 0.5]])), 0.0, atol=1e-12)
    same = LinearCost.of(np.array([[0.3, 0.8], [0.3, 0.8]]), np.array([6.0, 8.0]))
    np.testing.assert_allclose(same.predict(np.array([[0.9, 0.1]])), 7.0)
    for cost in (np.array([]), np.array([np.nan])):
        with pytest.raises(ValueError, match="finite cost"):
            LinearCost.of(np.zeros((len(cost), 2)), cost)


def test_log_ratio_where_the_improvement_underflows() -> None:
    far = log_ratio(np.array([-100.0, -200.0]), np.array([1.0, 1.0]), 0.0, np.array([0.5, 0.5]))
    assert np.isfinite(far).all()
    assert far[0] > far[1]
    floor = log_ratio(np.zeros(2), np.ones(2), 0.0, np.array([-3.0, 0.0]))
    assert floor[0] == floor[1] == pytest.approx(math.log(1.0 / math.sqrt(2.0 * math.pi)) - math.log(0.1))


@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_ratio_is_finite_differences(seed: int) -> None:
    z, curves, cost = runs(seed)
    gp, plane = posterior(Parameters(noise_variance=1e-2), z, curves), LinearCost.of(z, cost)
    plane = replace(plane, lowest=float(np.median(cost)))  # so that the floor holds for about half the points
    best, _ = largest_mean(gp, *pool(gp.x, seed))
    query = np.random.default_rng(seed).uniform(0.05, 0.95, (12, 3))
    assert 0 < np.count_nonzero(plane.scaled(query) > 0.0) < 12
    value, gradient = log_ratio_gradient_at(gp, plane, best, query)
    np.testing.assert_allclose(value, log_ratio_at(gp, plane, best, query), rtol=1e-9)
    h = 1e-6
    for j in range(3):
        step = h * np.eye(3)[j]
        difference = log_ratio_at(gp, plane, best, query + step) - log_ratio_at(gp, plane, best, query - step)
        np.testing.assert_allclose(gradient[:, j], difference / (2 * h), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_the_best_of_a_fine_grid(seed: int) -> None:
    z, curves, cost = runs(seed, dims=1)
    gp, plane = posterior(Parameters(), z, curves), LinearCost.of(z, cost)
    axis = np.linspace(0.0, 1.0, 81)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    best, where = largest_mean(gp, *pool(gp.x, seed))
    assert best >= gp.predict(grid)[0].max() - 1e-9
    assert best == pytest.approx(gp.predict(where[None])[0][0])

    # so many steps that rounding moves nothing
    choice = choose(gp, plane, best, *pool(gp.x, seed), min_steps=1, max_steps=1_000_001)
    assert choice.log_ratio >= log_ratio_at(gp, plane, best, grid).max() - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_largest_mean_finds_narrow_peaks_between_random_points(seed: int) -> None:
    z, curves, _ = runs(seed, n=30, dims=5)
    gp = posterior(Parameters(lengthscale_x=0.08, lengthscale_t=0.08), z, curves)
    best, where = largest_mean(gp, *pool(gp.x, seed))
    assert best >= gp.predict(z)[0].max()
    assert best == pytest.approx(gp.predict(where[None])[0][0])


def test_time_is_rounded_to_the_nearest_step() -> None:
    z, curves, cost = runs(2, dims=1)
    gp, plane = posterior(Parameters(lengthscale_t=0.2), z, curves), LinearCost.of(z, cost)
    best, _ = largest_mean(gp, *pool(gp.x, 0))
    fine, *coarse = (
        choose(gp, plane, best, *pool(gp.x, 0), min_steps=1, max_steps=longest)
        for longest in (1_000_001, 2, 3, 4, 5, 6, 7)
    )
    assert 0.0 < fine.time < 1.0
    exact = [1 + fine.time * (longest - 1) for longest in (2, 3, 4, 5, 6, 7)]
    assert any(t % 1.0 > 0.5 for t in exact)  # some are rounded up
    assert [choice.steps for choice in coarse] == [math.floor(t + 0.5) for t in exact]


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_whole_steps_inside_the_box_and_repeats(seed: int) -> None:
    z, curves, cost = runs(seed, n=6, dims=1)
    gp, plane = posterior(Parameters(), z, curves), LinearCost.of(z, cost)
    best, _ = largest_mean(gp, *pool(gp.x, seed))
    first, second = (
        choose(gp, plane, best, *pool(gp.x, seed), min_steps=MIN_STEPS, max_steps=MAX_STEPS) for _ in range(2)
    )
    assert isinstance(first.steps, int)
    assert MIN_STEPS <= first.steps <= MAX_STEPS
    assert first.time == unit_time(first.steps, MIN_STEPS, MAX_STEPS)
    assert np.all((first.x >= 0.0) & (first.x <= 1.0))
    query = np.append(first.x, first.time)[None]
    assert first.log_ratio == log_ratio_at(gp, plane, best, query)[0]
    assert first.mean == gp.predict(query)[0][0]
    assert first.x.tolist() == second.x.tolist()
    assert first.steps == second.steps


def test_only_free_columns_move_and_only_to_what_is_allowed() -> None:
    z, curves, cost = runs(1, dims=2)
    gp, plane = posterior(Parameters(), z, curves), LinearCost.of(z, cost)
    starts, free = pool(gp.x, 1)
    free[:, 0] = False
    best, where = largest_mean(gp, starts, free)
    assert where[0] in starts[:, 0]
    moved = choose(gp, plane, best, starts, free, min_steps=MIN_STEPS, max_steps=MAX_STEPS)
    assert moved.x[0] == starts[moved.start, 0]
    assert moved.x[1] != starts[moved.start, 1]
    refused = choose(
        gp, plane, best, starts, free, min_steps=MIN_STEPS, max_steps=MAX_STEPS, allowed=lambda x, start: False
    )
    assert refused.x.tolist() == starts[refused.start, :-1].tolist()


@pytest.mark.parametrize("same_curve", [True, False])
def test_choice_from_one_point_and_from_equal_curves(same_curve: bool) -> None:
    z, curves, cost = runs(0, n=3)
    n = 3 if same_curve else 1
    rewards = curves.rewards[0, : curves.lengths[0]]
    gp = posterior(Parameters(), z[:n], CurveMatrix.of([rewards] * n, MAX_STEPS))
    best, _ = largest_mean(gp, *pool(gp.x, 0))
    choice = choose(gp, LinearCost.of(z[:n], cost[:n]), best, *pool(gp.x, 0), min_steps=5, max_steps=20)
    assert np.isfinite([choice.log_ratio, choice.mean, choice.std, choice.log_ei]).all()


def test_a_point_without_a_curve_is_refused() -> None:
    z, curves, _ = runs(0, n=3)
    with pytest.raises(ValueError, match="2 points and 3 curves"):
        JointLikelihood(z[:2], curves)


def test_time_of_steps() -> None:
    assert [unit_time(t, 5, 15) for t in (5, 10, 15)] == [0.0, 0.5, 1.0]
    assert unit_time(4, 4, 4) == 1.0
    for steps in (4, 16):
        with pytest.raises(ValueError, match=f"steps={steps}"):
            unit_time(steps, 5, 15)
