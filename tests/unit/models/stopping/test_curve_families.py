"""The parametric families, the moves of the sampler against known laws, and forecasts with a known answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import truncnorm

from shoestring.models.stopping import curve_families
from shoestring.models.stopping.curve_families import (
    FAMILIES,
    CurveFamily,
    forecast_by_families,
    forecast_by_process,
    stretch_move,
)
from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, fit_curve

BY_NAME = {family.name: family for family in FAMILIES}
ERRORS = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]

# Each formula once more, in scalars, at one point of its box.
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


def test_there_are_eleven_families_each_with_a_worked_formula() -> None:
    assert len(FAMILIES) == 11
    assert [name for name, _, _ in WORKED] == [family.name for family in FAMILIES]


@pytest.mark.parametrize(("name", "theta", "formula"), WORKED)
def test_the_formula(name: str, theta: tuple[float, ...], formula: Any) -> None:
    epochs = np.array([1.0, 2.0, 10.0, 50.0])
    got = BY_NAME[name].at(epochs, np.array([theta, theta]))
    np.testing.assert_allclose(got, [[formula(x) for x in epochs]] * 2, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@given(data=st.data())
@settings(deadline=None, max_examples=40)
def test_within_its_box_a_family_is_finite_and_never_falls(family: CurveFamily, data: st.DataObject) -> None:
    theta = [data.draw(st.floats(low, high)) for low, high in zip(family.low, family.high, strict=True)]
    curve = family.at(np.arange(1.0, 201.0), np.array([theta]))[0]
    assert np.isfinite(curve).all()
    assert (np.diff(curve) >= -1e-12 * np.abs(curve[1:])).all()


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
    drawn = curve_families._truncated_normal(
        mean * full, spread * full, first * full, last * full, np.random.default_rng(0)
    )
    law = truncnorm((first - mean) / spread, (last - mean) / spread, mean, spread)
    assert ((drawn >= first) & (drawn <= last)).all()
    quantiles = np.array([0.1, 0.5, 0.9])
    error = 5.0 * np.sqrt(quantiles * (1 - quantiles) / n)
    np.testing.assert_array_less(np.abs(law.cdf(np.quantile(drawn, quantiles)) - quantiles), error)


def test_a_piece_beyond_the_reach_of_doubles_is_not_drawn_from() -> None:
    one = np.ones(1)
    assert curve_families._truncated_normal(0 * one, one, 100 * one, 101 * one, np.random.default_rng(0)) == 0.0


def ensemble(families: list[CurveFamily], y: np.ndarray, theta: list[np.ndarray], log_sigma: float) -> Any:
    """Walkers with equal parameters and weights 0.1, over steps 1..n and step 20."""
    epochs = np.append(np.arange(1.0, y.size + 1.0), 20.0)
    curves = np.stack([family.at(epochs, points) for family, points in zip(families, theta, strict=True)], axis=1)
    n = theta[0].shape[0]
    weights = np.full((n, len(families)), 0.1)
    return curve_families._Walkers(y, epochs, theta, weights, np.full(n, log_sigma), curves)


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
    assert (walkers.combined()[:, -1] <= 1.0 + 1e-9).all()


def test_sigma_follows_the_inverse_gamma_law_of_its_misfit() -> None:
    walkers = ensemble([BY_NAME["pow3"]], np.full(6, 0.2), [np.tile([0.9, 0.5, 0.6], (2000, 1))], -2.0)
    misfit = np.square(walkers.combined()[0, :-1] - walkers.y).sum()
    rng = np.random.default_rng(0)
    for _ in range(100):
        walkers.move_sigma(rng)
    grid = np.linspace(*curve_families._LOG_SIGMA, 2001)
    mass = np.exp(-0.5 * misfit * np.exp(-2 * grid) - 6 * grid)
    law = np.cumsum(mass) / mass.sum()
    for quantile in (0.1, 0.5, 0.9):
        at = np.interp(np.quantile(walkers.log_sigma, quantile), grid, law)
        assert at == pytest.approx(quantile, abs=5 * math.sqrt(quantile * (1 - quantile) / 2000))


@pytest.mark.parametrize("names", [("pow3",), ("pow3", "ilog2")])
def test_the_sampler_agrees_with_weighted_draws_from_the_prior(names: tuple[str, ...]) -> None:
    """Importance sampling needs no chain: a second way to the same posterior, affordable for one or two families."""
    families = [BY_NAME[name] for name in names]
    errors, n_max, incumbent = np.array([0.62, 0.38, 0.45, 0.30, 0.36]), 20, 0.28
    y, epochs = 1.0 - errors, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 20.0])
    rng, n = np.random.default_rng(1), 600_000
    total = np.zeros((n, epochs.size))
    for family in families:
        total += rng.random((n, 1)) * family.at(epochs, rng.uniform(family.low, family.high, (n, len(family.low))))
    log_sigma = rng.uniform(*curve_families._LOG_SIGMA, n)
    log_weight = -0.5 * np.square(total[:, :-1] - y).sum(axis=1) * np.exp(-2 * log_sigma) - y.size * log_sigma
    log_weight[total[:, -1] > 1.0] = -np.inf
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1.0 / np.square(weight).sum() > 1000  # effective draws: the reference itself is good to about 0.02
    final = 1.0 - total[:, -1]
    want = weight @ ndtr((incumbent - final) / np.exp(log_sigma))
    want_mean = weight @ final
    got = forecast_by_families(errors, n_max, incumbent, np.random.default_rng(2), n_sweeps=1500, families=families)
    want_std = np.sqrt(weight @ (np.square(final - want_mean) + np.exp(2 * log_sigma)))
    assert got.prob_better == pytest.approx(want, abs=0.04)
    assert got.mean_error == pytest.approx(want_mean, abs=0.02)
    assert got.std_error == pytest.approx(want_std, rel=0.15)


def test_a_clear_curve_is_forecast_by_all_families_together() -> None:
    n = np.arange(1, 31)
    curve = 0.1 + 0.5 * np.exp(-n / 5.0)  # 0.1012 after the steps seen, 0.1000 at the end
    found = forecast_by_families(curve, 50, 0.15, np.random.default_rng(0), n_sweeps=60)
    assert found.mean_error == pytest.approx(0.1, abs=0.02)
    assert found.prob_better > 0.95
    assert forecast_by_families(curve, 50, 0.05, np.random.default_rng(0), n_sweeps=60).prob_better < 0.05


def test_forecasts_repeat_with_the_seed_and_grow_with_the_incumbent() -> None:
    probabilities = [
        forecast_by_families(ERRORS, 50, incumbent, np.random.default_rng(0), n_sweeps=20).prob_better
        for incumbent in (0.05, 0.10, 0.15, 0.15, 0.20)
    ]
    assert probabilities == sorted(probabilities)
    assert probabilities[2] == probabilities[3]
    assert probabilities[0] < probabilities[4]


@pytest.mark.parametrize("errors", [[0.5], [0.0] * 5, [1.0] * 5, [0.1, 0.2, 0.3], [3.0, 2.0, 1e6], [0.3] * 50])
def test_degenerate_curves_give_probabilities(errors: list[float]) -> None:
    for found in (
        forecast_by_families(errors, 50, 0.15, np.random.default_rng(0), n_sweeps=10),
        forecast_by_process(errors, 50, 0.15),
    ):
        assert 0.0 <= found.prob_better <= 1.0
        assert math.isfinite(found.mean_error)
        assert found.std_error > 0.0


def test_the_process_forecast_is_the_share_of_its_paths_that_win() -> None:
    mean, cov = curve_posterior(ERRORS, range(9, 51), fit_curve(ERRORS))
    final = draw_paths(mean, cov, 40_000, np.random.default_rng(0))[:, -1]
    for incumbent in (0.04, 0.08, 0.15):
        found = forecast_by_process(ERRORS, 50, incumbent)
        assert found.prob_better == pytest.approx((final < incumbent).mean(), abs=5 * 0.5 / math.sqrt(final.size))
    assert found.mean_error == pytest.approx(mean[-1])
    assert found.std_error == pytest.approx(math.sqrt(cov[-1, -1]))


def test_with_an_asymptote_the_process_doubts_a_high_floor() -> None:
    floor = [0.4 + 0.3 * math.exp(-0.8 * n) for n in range(1, 9)]
    plain, doubting = (forecast_by_process(floor, 50, 0.35, with_asymptote=on) for on in (False, True))
    assert doubting.prob_better < plain.prob_better


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: forecast_by_process([], 50, 0.1), "from 1 to n_max=50"),
        (lambda: forecast_by_process([0.1] * 51, 50, 0.1), "from 1 to n_max=50"),
        (lambda: forecast_by_process([math.inf], 50, 0.1), "not finite, inf"),
        (lambda: forecast_by_families([0.1], 50, 0.1, np.random.default_rng(0), n_walkers=11), "n_walkers=11"),
        (lambda: forecast_by_families([0.1], 50, 0.1, np.random.default_rng(0), n_sweeps=1), "n_sweeps=1"),
    ],
)
def test_misuse_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
