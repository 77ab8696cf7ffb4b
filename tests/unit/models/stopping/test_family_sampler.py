"""The moves of the sampler against known laws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import truncnorm

from shoestring.models.stopping import curve_families as family_sampler
from shoestring.models.stopping.curve_families import FAMILIES, LOG_SIGMA, CurveFamily, Walkers, stretch_move

BY_NAME = {family.name: family for family in FAMILIES}


def test_the_stretch_move_samples_a_correlated_normal() -> None:
    rng = np.random.default_rng(0)
    cov = np.array([[1.0, 0.9 * 5.0], [0.9 * 5.0, 25.0]])
    mean, precision = np.array([3.0, -2.0]), np.linalg.inv(cov)
    walkers = rng.standard_normal((40, 2))

    def log_density(points: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * np.einsum("mi,ij,mj->m", points - mean, precision, points - mean))

    kept = []
    for step in range(4000):
        for mine, others in ((slice(20), slice(20, None)), (slice(20, None), slice(20))):
            proposal, log_weight = stretch_move(walkers[mine], walkers[others], rng)
            gain = log_density(proposal) - log_density(walkers[mine])
            accept = np.log1p(-rng.random(20)) < log_weight + gain
            walkers[mine] = np.where(accept[:, None], proposal, walkers[mine])
        if step >= 500:
            kept.append(walkers.copy())
    samples = np.concatenate(kept)  # 140,000 of them, of which some 10,000 count as independent
    np.testing.assert_allclose(samples.mean(axis=0), mean, atol=5 * np.sqrt(np.diagonal(cov) / 10_000).max())
    np.testing.assert_allclose(np.cov(samples.T), cov, rtol=0.08)


@pytest.mark.parametrize(("first", "last"), [(-1.0, 2.0), (3.0, 9.0), (-9.0, -3.0), (0.0, 0.1), (14.0, 20.0)])
def test_truncated_draws_have_the_truncated_law(first: float, last: float) -> None:
    n, mean, spread = 20_000, 0.5, 1.5
    full = np.ones(n)
    drawn = family_sampler._truncated_normal(
        mean * full, spread * full, first * full, last * full, np.random.default_rng(0)
    )
    law = truncnorm((first - mean) / spread, (last - mean) / spread, mean, spread)
    assert ((drawn >= first) & (drawn <= last)).all()
    quantiles = np.array([0.1, 0.5, 0.9])
    error = 5.0 * np.sqrt(quantiles * (1 - quantiles) / n)
    np.testing.assert_array_less(np.abs(law.cdf(np.quantile(drawn, quantiles)) - quantiles), error)


def test_a_piece_beyond_the_reach_of_doubles_is_not_drawn_from() -> None:
    one = np.ones(1)
    assert family_sampler._truncated_normal(0 * one, one, 100 * one, 101 * one, np.random.default_rng(0)) == 0.0


def ensemble(families: list[CurveFamily], y: np.ndarray, theta: list[np.ndarray], log_sigma: float) -> Walkers:
    """Walkers with equal parameters and weights 0.1, over steps 1..n and step 20."""
    epochs = np.append(np.arange(1.0, y.size + 1.0), 20.0)
    curves = np.stack([family.at(epochs, points) for family, points in zip(families, theta, strict=True)], axis=1)
    n = theta[0].shape[0]
    weights = np.full((n, len(families)), 0.1)
    return Walkers(y, epochs, theta, weights, np.full(n, log_sigma), curves)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_the_parameters_of_a_family_without_weight_keep_their_flat_prior(family: CurveFamily) -> None:
    rng = np.random.default_rng(0)
    low, high = np.array(family.low), np.array(family.high)
    walkers = ensemble(
        [family], np.array([0.4, 0.5]), [low + (high - low) * rng.uniform(0.4, 0.6, (400, low.size))], -2.0
    )
    walkers.weights[:] = 0.0
    seen = []
    for sweep in range(250):
        walkers.move_family(0, family, rng)
        if sweep >= 50 and sweep % 10 == 0:
            seen.append((walkers.theta[0] - low) / (high - low))
    samples = np.concatenate(seen)  # 8000, some 3000 of them independent
    np.testing.assert_array_equal(walkers.curves[:, 0], family.at(walkers.epochs, walkers.theta[0]))
    for quantile in (0.25, 0.5, 0.75):
        np.testing.assert_allclose(np.quantile(samples, quantile, axis=0), quantile, atol=0.05)


@pytest.mark.parametrize(("level", "sigma"), [(0.6, 0.05), (0.95, 0.05), (0.3, 0.2), (1.4, 0.1)])
def test_weights_are_drawn_from_their_truncated_normal_law(level: float, sigma: float) -> None:
    """Two weights, so that their law can be summed over a grid; a high level brings in the end below 1."""
    families = [BY_NAME["pow3"], BY_NAME["ilog2"]]
    theta = [np.tile(point, (2000, 1)) for point in ([0.9, 0.5, 0.6], [1.0, 0.5])]
    y = level * np.array([0.4, 0.55, 0.6, 0.7])
    walkers = ensemble(families, y, theta, math.log(sigma))
    rng = np.random.default_rng(0)
    for _ in range(100):
        walkers.draw_weights(rng)
    first, second = np.meshgrid(*[(np.arange(400) + 0.5) / 400] * 2, indexing="ij")
    curve = first[..., None] * walkers.curves[0, 0] + second[..., None] * walkers.curves[0, 1]  # (grid, grid, n + 1)
    mass = np.exp(-0.5 * np.square(curve[..., :-1] - y).sum(axis=-1) / sigma**2) * (curve[..., -1] <= 1.0)
    mass /= mass.sum()
    for k, grid in enumerate((first, second)):
        mean = (mass * grid).sum()
        deviation = math.sqrt((mass * np.square(grid - mean)).sum())
        got = walkers.weights[:, k]
        assert got.mean() == pytest.approx(mean, abs=5 * deviation / math.sqrt(2000) + 0.002)
        assert got.std() == pytest.approx(deviation, rel=0.1)
    assert (walkers.weighted_sum()[:, -1] <= 1.0 + 1e-9).all()


def test_sigma_follows_the_inverse_gamma_law_of_its_misfit() -> None:
    walkers = ensemble([BY_NAME["pow3"]], np.full(6, 0.2), [np.tile([0.9, 0.5, 0.6], (2000, 1))], -2.0)
    misfit = np.square(walkers.weighted_sum()[0, :-1] - walkers.y).sum()
    rng = np.random.default_rng(0)
    for _ in range(100):
        walkers.move_sigma(rng)
    grid = np.linspace(*LOG_SIGMA, 2001)
    mass = np.exp(-0.5 * misfit * np.exp(-2 * grid) - 6 * grid)
    law = np.cumsum(mass) / mass.sum()
    for quantile in (0.1, 0.5, 0.9):
        at = np.interp(np.quantile(walkers.log_sigma, quantile), grid, law)
        assert at == pytest.approx(quantile, abs=5 * math.sqrt(quantile * (1 - quantile) / 2000))
