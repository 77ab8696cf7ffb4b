"""Parametric families against formulas in scalars, and the moves of the sampler against known distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import truncnorm
from thoroughness import examples

from shoestring.models.stopping import curve_families
from shoestring.models.stopping.curve_families import FAMILIES, LOG_SIGMA, CurveFamily, Walkers, stretch_move

BY_NAME = {family.name: family for family in FAMILIES}

# Each formula in scalars, at one point of its box.
WORKED = [
    ("vapor_pressure", (-0.6, -1.8, 0.05), lambda x: math.exp(-0.6 - 1.8 / x + 0.05 * math.log(x))),
    ("ilog2", (0.8, 0.4), lambda x: 0.8 - 0.4 / math.log(x + 1)),
    ("weibull", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 * math.exp(-((0.1 * x) ** 1.3))),
    ("pow3", (0.84, 0.52, 0.7), lambda x: 0.84 - 0.52 * x**-0.7),
    ("pow4", (0.9, math.log(2.0), 3.0, 0.5), lambda x: 0.9 - (2.0 * x + 3.0) ** -0.5),
    ("mmf", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 / (1 + (0.1 * x) ** 1.3)),
    ("janoschek", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 * math.exp(-0.1 * x**1.3)),
    ("loglog_linear", (0.2, 1.5), lambda x: math.log(0.2 * math.log(x) + 1.5)),
    ("log_power", (0.8, 1.0, -0.5), lambda x: 0.8 / (1 + (x / math.e**1.0) ** -0.5)),
    ("exp4", (0.8, math.log(0.4), 0.6, -0.8), lambda x: 0.8 - math.exp(-0.4 * x**0.6 - 0.8)),
    ("hill3", (0.8, math.log(2.0), 0.9), lambda x: 0.8 * x**0.9 / (2.0**0.9 + x**0.9)),
]


def test_there_are_eleven_families_each_with_a_formula_here() -> None:
    assert len(FAMILIES) == 11
    assert [name for name, _, _ in WORKED] == [family.name for family in FAMILIES]


@pytest.mark.parametrize(("name", "theta", "formula"), WORKED)
def test_a_family_equals_its_formula(name: str, theta: tuple[float, ...], formula: Any) -> None:
    steps = np.array([1.0, 2.0, 10.0, 50.0])
    got = {family.name: family for family in FAMILIES}[name].at(steps, np.array([theta, theta]))
    np.testing.assert_allclose(got, [[formula(x) for x in steps]] * 2, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@given(data=st.data())
@examples(14, thorough=40)
def test_within_its_box_a_family_is_finite_and_non_decreasing(family: CurveFamily, data: st.DataObject) -> None:
    theta = [data.draw(st.floats(low, high)) for low, high in zip(family.low, family.high, strict=True)]
    curve = family.at(np.arange(1.0, 201.0), np.array([theta]))[0]
    assert np.isfinite(curve).all()
    assert (np.diff(curve) >= -1e-12 * np.abs(curve[1:])).all()


# the sampler --------------------------------------------------------------------------------------------------------


def test_the_stretch_move_samples_a_correlated_normal() -> None:
    rng = np.random.default_rng(0)
    cov = np.array([[1.0, 0.9 * 5.0], [0.9 * 5.0, 25.0]])
    mean, precision = np.array([3.0, -2.0]), np.linalg.inv(cov)
    walkers = rng.standard_normal((40, 2))

    def log_density(points: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * np.einsum("mi,ij,mj->m", points - mean, precision, points - mean))

    recorded = []
    for step in range(4000):
        for mine, others in ((slice(20), slice(20, None)), (slice(20, None), slice(20))):
            proposal, log_weight = stretch_move(walkers[mine], walkers[others], rng)
            gain = log_density(proposal) - log_density(walkers[mine])
            accept = np.log1p(-rng.random(20)) < log_weight + gain
            walkers[mine] = np.where(accept[:, None], proposal, walkers[mine])
        if step >= 500:
            recorded.append(walkers.copy())
    samples = np.concatenate(recorded)  # 140,000, of which about 10,000 are independent
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * np.sqrt(np.diagonal(cov) / 10_000).max())
    np.testing.assert_allclose(np.cov(samples.T), cov, rtol=0.08)


@pytest.mark.parametrize(("first", "last"), [(-1.0, 2.0), (3.0, 9.0), (-9.0, -3.0), (0.0, 0.1), (14.0, 20.0)])
def test_truncated_draws_have_the_truncated_distribution(first: float, last: float) -> None:
    n, mean, spread = 20_000, 0.5, 1.5
    full = np.ones(n)
    drawn = curve_families._truncated_normal(
        mean * full, spread * full, first * full, last * full, np.random.default_rng(0)
    )
    expected = truncnorm((first - mean) / spread, (last - mean) / spread, mean, spread)
    assert ((drawn >= first) & (drawn <= last)).all()
    quantiles = np.array([0.1, 0.5, 0.9])
    error = 5.0 * np.sqrt(quantiles * (1 - quantiles) / n)
    np.testing.assert_array_less(np.abs(expected.cdf(np.quantile(drawn, quantiles)) - quantiles), error)


def test_an_interval_far_outside_gives_no_move() -> None:
    one = np.ones(1)
    assert curve_families._truncated_normal(0 * one, one, 100 * one, 101 * one, np.random.default_rng(0)) == 0.0


def ensemble(families: list[CurveFamily], y: np.ndarray, theta: list[np.ndarray], log_sigma: float) -> Walkers:
    """Return walkers with equal parameters and weights 0.1, over steps 1..n and step 20."""
    steps = np.append(np.arange(1.0, y.size + 1.0), 20.0)
    curves = np.stack([family.at(steps, points) for family, points in zip(families, theta, strict=True)], axis=1)
    n = theta[0].shape[0]
    weights = np.full((n, len(families)), 0.1)
    return Walkers(y, steps, theta, weights, np.full(n, log_sigma), curves)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_parameters_of_a_family_without_weight_keep_their_flat_prior(family: CurveFamily) -> None:
    rng = np.random.default_rng(0)
    low, high = np.array(family.low), np.array(family.high)
    walkers = ensemble(
        [family], np.array([0.4, 0.5]), [low + (high - low) * rng.uniform(0.4, 0.6, (400, low.size))], -2.0
    )
    walkers.weights[:] = 0.0
    recorded = []
    for sweep in range(250):
        walkers.move_family(0, family, rng)
        if sweep >= 50 and sweep % 10 == 0:
            recorded.append((walkers.theta[0] - low) / (high - low))
    samples = np.concatenate(recorded)  # 8000, of which about 3000 are independent
    np.testing.assert_array_equal(walkers.curves[:, 0], family.at(walkers.steps, walkers.theta[0]))
    for quantile in (0.25, 0.5, 0.75):
        np.testing.assert_allclose(np.quantile(samples, quantile, axis=0), quantile, atol=0.05)


@pytest.mark.parametrize(("level", "sigma"), [(0.6, 0.05), (0.95, 0.05), (0.3, 0.2), (1.4, 0.1)])
def test_weights_have_their_truncated_normal_distribution(level: float, sigma: float) -> None:
    """With two weights the distribution can be summed over a grid; a high level makes the end below 1 matter."""
    families = [BY_NAME["pow3"], BY_NAME["ilog2"]]
    theta = [np.tile(point, (2000, 1)) for point in ([0.9, 0.5, 0.6], [1.0, 0.5])]
    y = level * np.array([0.4, 0.55, 0.6, 0.7])
    walkers = ensemble(families, y, theta, math.log(sigma))
    rng = np.random.default_rng(0)
    for _ in range(100):
        walkers.draw_weights(rng)
    first, second = np.meshgrid(*[(np.arange(400) + 0.5) / 400] * 2, indexing="ij")
    curve = first[..., None] * walkers.curves[0, 0] + second[..., None] * walkers.curves[0, 1]  # (grid, grid, n + 1)
    density = np.exp(-0.5 * np.square(curve[..., :-1] - y).sum(axis=-1) / sigma**2) * (curve[..., -1] <= 1.0)
    density /= density.sum()
    for k, grid in enumerate((first, second)):
        mean = (density * grid).sum()
        deviation = math.sqrt((density * np.square(grid - mean)).sum())
        got = walkers.weights[:, k]
        assert got.mean() == pytest.approx(mean, abs=5 * deviation / math.sqrt(2000) + 0.002)
        assert got.std() == pytest.approx(deviation, rel=0.1)
    assert (walkers.weighted_sum()[:, -1] <= 1.0 + 1e-9).all()


def test_sigma_has_the_inverse_gamma_distribution_of_its_misfit() -> None:
    walkers = ensemble([BY_NAME["pow3"]], np.full(6, 0.2), [np.tile([0.9, 0.5, 0.6], (2000, 1))], -2.0)
    misfit = np.square(walkers.weighted_sum()[0, :-1] - walkers.y).sum()
    rng = np.random.default_rng(0)
    for _ in range(100):
        walkers.move_sigma(rng)
    grid = np.linspace(*LOG_SIGMA, 2001)
    density = np.exp(-0.5 * misfit * np.exp(-2 * grid) - 6 * grid)
    distribution = np.cumsum(density) / density.sum()
    for quantile in (0.1, 0.5, 0.9):
        at = np.interp(np.quantile(walkers.log_sigma, quantile), grid, distribution)
        assert at == pytest.approx(quantile, abs=5 * math.sqrt(quantile * (1 - quantile) / 2000))
