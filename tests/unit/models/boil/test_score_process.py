"""The GP over hyperparameters and time: likelihood, fit and predictions against slow references."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.boil.compression import CurveMatrix, Preference, compress
from shoestring.models.boil.score_process import (
    BOUNDS,
    ON_LOG_SCALE,
    CurveProcess,
    ProcessParameters,
    TrainingLengths,
    fit,
)

Array = NDArray[np.float64]
LENGTHS = TrainingLengths(5, 20)
quick = examples(9, thorough=25)


def make_points(seed: int, n: int = 10, dims: int = 2) -> tuple[Array, CurveMatrix]:
    """Return the points z of saturating curves whose height depends on x, and the curves."""
    rng = np.random.default_rng(seed)
    curves, z = [], []
    for _ in range(n):
        x, steps = rng.random(dims), int(rng.integers(LENGTHS.min_steps, LENGTHS.max_steps + 1))
        height = math.exp(-2.0 * float(((x - 0.6) ** 2).sum()))
        curves.append(height * (1.0 - np.exp(-np.arange(1, steps + 1) / 6.0)) + 0.02 * rng.random(steps))
        z.append([*x, LENGTHS.time_of(steps)])
    return np.array(z), CurveMatrix.of(curves, LENGTHS.max_steps)


def plain_kernel(p: ProcessParameters, a: Array, b: Array) -> Array:
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


def parameters(seed: int) -> ProcessParameters:
    rng = np.random.default_rng(seed)
    return ProcessParameters(
        lengthscale_x=rng.uniform(0.1, 0.9),
        lengthscale_t=rng.uniform(0.1, 0.9),
        noise_variance=10 ** rng.uniform(-4, -2),
        midpoint=rng.uniform(-2, 2),
        growth=rng.uniform(0.3, 2.5),
    )


@given(st.integers(0, 10**6), st.integers(1, 12), st.integers(1, 4), st.sampled_from(["logistic", "tail_mean", "log"]))
@quick
def test_likelihood_equals_the_dense_formula(seed: int, n: int, dims: int, preference: Preference) -> None:
    z, curves = make_points(seed, n, dims)
    p = parameters(seed)
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth, shift=0.5, preference=preference)
    y = (y - y.mean()) / y.std() if n > 1 else np.zeros(1)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(n)
    expected = -0.5 * y @ np.linalg.solve(a, y) - 0.5 * np.linalg.slogdet(a)[1] - 0.5 * n * math.log(2 * math.pi)
    process = CurveProcess(z, curves, shift=0.5, preference=preference)
    assert process.log_likelihood(p) == pytest.approx(expected, rel=1e-9)
    assert process.log_likelihood_and_gradient(p)[0] == process.log_likelihood(p)


@pytest.mark.parametrize("preference", ["logistic", "tail_mean", "log", "average"])
@pytest.mark.parametrize("seed", range(4))
def test_gradient_equals_finite_differences(seed: int, preference: Preference) -> None:
    z, curves = make_points(seed)
    process = CurveProcess(z, curves, shift=0.3, preference=preference)
    p = parameters(seed)
    _, gradient = process.log_likelihood_and_gradient(p)
    h = 1e-5
    for name, derivative in zip(BOUNDS, gradient, strict=True):
        value = getattr(p, name)
        above, below = (value * math.exp(h), value * math.exp(-h)) if name in ON_LOG_SCALE else (value + h, value - h)
        difference = process.log_likelihood(replace(p, **{name: above})) - process.log_likelihood(
            replace(p, **{name: below})
        )
        assert derivative == pytest.approx(difference / (2 * h), rel=1e-5, abs=1e-5), name


@given(st.integers(0, 10**6), st.floats(1e-3, 1e6))
@quick
def test_the_unit_of_rewards_does_not_matter(seed: int, unit: float) -> None:
    z, curves = make_points(seed)
    scaled = CurveMatrix.of(
        [unit * r[:t] for r, t in zip(curves.rewards, curves.lengths, strict=True)], LENGTHS.max_steps
    )
    value = CurveProcess(z, curves).log_likelihood(parameters(seed))
    assert CurveProcess(z, scaled).log_likelihood(parameters(seed)) == pytest.approx(value, rel=1e-7)


def test_the_likelihood_does_not_grow_with_the_midpoint() -> None:
    """Without standardisation it does, since late midpoints shrink every score."""
    z, curves = make_points(1)
    p = ProcessParameters()
    process = CurveProcess(z, curves)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(len(z))
    raw, standardised = [], []
    for m0 in (-3.0, 0.0, 3.0, 6.0):
        y, _ = compress(curves, midpoint=m0, growth=p.growth)
        raw.append(-0.5 * y @ np.linalg.solve(a, y))
        standardised.append(process.log_likelihood(replace(p, midpoint=m0)))
    assert np.all(np.diff(raw) > 0.0)
    assert not np.all(np.diff(standardised) > 0.0)


def test_fit_beats_a_grid() -> None:
    z, curves = make_points(3, n=12)
    process = CurveProcess(z, curves)
    found = fit(process, ProcessParameters(), np.random.default_rng(0))
    grid = max(
        process.log_likelihood(ProcessParameters(lengthscale_x=sx, lengthscale_t=st_, midpoint=m0, growth=g0))
        for sx in (0.1, 0.3, 0.6, 1.0)
        for st_ in (0.1, 0.3, 0.6, 1.0)
        for m0 in (-4.0, -2.0, 0.0, 2.0, 4.0)
        for g0 in (0.1, 1.0, 2.0, 3.0)
    )
    assert process.log_likelihood(found) >= grid
    assert found.noise_variance == ProcessParameters().noise_variance


@given(st.integers(0, 10**6), st.booleans())
@examples(5, thorough=6)
def test_fit_improves_stays_in_bounds_and_is_reproducible(seed: int, learn_noise: bool) -> None:
    z, curves = make_points(seed, n=8)
    process, previous = CurveProcess(z, curves), ProcessParameters()
    found = fit(process, previous, np.random.default_rng(seed), learn_noise=learn_noise, random_starts=3)
    again = fit(process, previous, np.random.default_rng(seed), learn_noise=learn_noise, random_starts=3)
    assert found == again
    assert process.log_likelihood(found) >= process.log_likelihood(previous)
    for name in BOUNDS:
        low, high = BOUNDS[name]
        assert low <= getattr(found, name) <= high
    assert learn_noise or found.noise_variance == previous.noise_variance


def test_fit_starts_from_the_previous_values_too() -> None:
    z, curves = make_points(5)
    process = CurveProcess(z, curves)
    good = fit(process, ProcessParameters(), np.random.default_rng(1))
    climbed = fit(process, ProcessParameters(), np.random.default_rng(2), random_starts=0)
    assert process.log_likelihood(climbed) > process.log_likelihood(ProcessParameters()) + 0.1
    again = fit(process, good, np.random.default_rng(2), random_starts=0)
    assert process.log_likelihood(again) == pytest.approx(process.log_likelihood(good), rel=1e-6)


@pytest.mark.parametrize("seed", [3, 6, 8])
def test_random_starts_leave_a_bad_corner(seed: int) -> None:
    z, curves = make_points(seed, n=20)
    process = CurveProcess(z, curves)
    corner = ProcessParameters(lengthscale_x=0.05, lengthscale_t=0.05, midpoint=4.0, growth=3.0)
    alone = process.log_likelihood(fit(process, corner, np.random.default_rng(0), random_starts=0))
    values = [process.log_likelihood(fit(process, corner, np.random.default_rng(i))) for i in range(4)]
    assert min(values) > alone + 1.0
    np.testing.assert_allclose(values, values[0], rtol=1e-6)  # the best of twenty starts leads to the same maximum


def test_a_failed_fit_returns_the_previous_values() -> None:
    z, curves = make_points(0)
    z[:] = z[0]  # one point ten times with almost no noise: no Cholesky factor
    previous = ProcessParameters(noise_variance=1e-300)
    process = CurveProcess(z, curves)
    with pytest.raises(np.linalg.LinAlgError):
        process.log_likelihood(previous)
    assert fit(process, previous, np.random.default_rng(0)) is previous


def test_one_curve_is_not_fitted() -> None:
    z, curves = make_points(0, n=1)
    previous = ProcessParameters()
    assert fit(CurveProcess(z, curves), previous, np.random.default_rng(0)) is previous


@pytest.mark.parametrize("preference", ["log", "average"])
def test_fit_does_not_change_an_unused_logistic(preference: Preference) -> None:
    z, curves = make_points(0)
    found = fit(CurveProcess(z, curves, preference=preference), ProcessParameters(), np.random.default_rng(0))
    assert (found.midpoint, found.growth) == (ProcessParameters().midpoint, ProcessParameters().growth)
    assert found.lengthscale_x != ProcessParameters().lengthscale_x


def test_parameters_survive_the_memo() -> None:
    p = parameters(7)
    memo = p.to_memo()
    assert all(isinstance(v, float) for values in memo.values() for v in values)
    assert ProcessParameters.from_memo(memo) == p
    assert set(memo) == set(asdict(p))
    with pytest.raises(ValueError, match="growth"):
        ProcessParameters.from_memo({name: values for name, values in memo.items() if name != "growth"})


@given(st.integers(0, 10**6), st.integers(2, 10))
@quick
def test_posterior_equals_the_dense_formula(seed: int, n: int) -> None:
    z, curves = make_points(seed, n)
    p = parameters(seed)
    query = np.random.default_rng(seed).random((4, 3))
    mean, variance = CurveProcess(z, curves).posterior(p).predict(query)
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth)
    a = plain_kernel(p, z, z) + p.noise_variance * np.eye(n)
    k = plain_kernel(p, query, z)
    expected = y.mean() + k @ np.linalg.solve(a, y - y.mean())
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-7 * y.std())
    left = 1.0 - np.einsum("qn,nq->q", k, np.linalg.solve(a, k.T))
    np.testing.assert_allclose(variance, left * y.std() ** 2, rtol=1e-6, atol=1e-9 * y.std() ** 2)


def test_appending_equals_conditioning_again() -> None:
    z, curves = make_points(2, n=9)
    p = ProcessParameters()
    y, _ = compress(curves, midpoint=p.midpoint, growth=p.growth)
    first = CurveMatrix.of(
        [r[:t] for r, t in zip(curves.rewards[:4], curves.lengths[:4], strict=True)], LENGTHS.max_steps
    )
    gp = CurveProcess(z[:4], first).posterior(p)
    for point, score in zip(z[4:], y[4:], strict=True):
        gp = gp.append(point, score)
    whole = CurveProcess(z, curves).posterior(p)
    query = np.random.default_rng(0).random((5, 3))
    np.testing.assert_allclose(gp.predict(query), whole.predict(query), rtol=1e-8)


def test_a_point_without_a_curve_is_refused() -> None:
    z, curves = make_points(0, n=3)
    with pytest.raises(ValueError, match="2 points and 3 curves"):
        CurveProcess(z[:2], curves)


def test_steps_survive_the_conversion_to_times() -> None:
    lengths = TrainingLengths(5, 15)
    assert [lengths.time_of(steps) for steps in (5, 10, 15)] == [0.0, 0.5, 1.0]
    assert [lengths.steps_at(lengths.time_of(steps)) for steps in range(5, 16)] == list(range(5, 16))
    assert [lengths.steps_at(time) for time in (0.04, 0.06, 0.94, 0.96)] == [5, 6, 14, 15]
    assert TrainingLengths(4, 4).time_of(4) == 1.0
    for steps in (4, 16):
        with pytest.raises(ValueError, match=f"steps={steps}"):
            lengths.time_of(steps)
