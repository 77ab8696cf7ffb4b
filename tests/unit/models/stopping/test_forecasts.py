"""Forecasts of curves whose end is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from shoestring.models.stopping.curve_families import FAMILIES, LOG_SIGMA
from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, fit_curve
from shoestring.models.stopping.forecasts import forecast_by_families, forecast_by_process

BY_NAME = {family.name: family for family in FAMILIES}
ERRORS = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]


@pytest.mark.parametrize("names", [("pow3",), ("pow3", "ilog2")])
def test_the_sampler_agrees_with_weighted_draws_from_the_prior(names: tuple[str, ...]) -> None:
    """Importance sampling needs no Markov chain: a second method for the same posterior, for one or two families."""
    families = [BY_NAME[name] for name in names]
    errors, n_max, incumbent = np.array([0.62, 0.38, 0.45, 0.30, 0.36]), 20, 0.28
    y, steps = 1.0 - errors, np.array([1.0, 2.0, 3.0, 4.0, 5.0, 20.0])
    rng, n = np.random.default_rng(1), 600_000
    total = np.zeros((n, steps.size))
    for family in families:
        total += rng.random((n, 1)) * family.at(steps, rng.uniform(family.low, family.high, (n, len(family.low))))
    log_sigma = rng.uniform(*LOG_SIGMA, n)
    log_weight = -0.5 * np.square(total[:, :-1] - y).sum(axis=1) * np.exp(-2 * log_sigma) - y.size * log_sigma
    log_weight[total[:, -1] > 1.0] = -np.inf
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    assert 1.0 / np.square(weight).sum() > 1000  # effective number of draws: the reference has an error of about 0.02
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
    curve = 0.1 + 0.5 * np.exp(-n / 5.0)  # 0.1012 after the observed steps, 0.1000 at the end
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


def test_the_process_forecast_is_the_share_of_winning_paths() -> None:
    mean, cov = curve_posterior(ERRORS, range(9, 51), fit_curve(ERRORS))
    final = draw_paths(mean, cov, 40_000, np.random.default_rng(0))[:, -1]
    for incumbent in (0.04, 0.08, 0.15):
        found = forecast_by_process(ERRORS, 50, incumbent)
        assert found.prob_better == pytest.approx((final < incumbent).mean(), abs=5 * 0.5 / math.sqrt(final.size))
    assert found.mean_error == pytest.approx(mean[-1])
    assert found.std_error == pytest.approx(math.sqrt(cov[-1, -1]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: forecast_by_process([], 50, 0.1), "from 1 to n_max=50"),
        (lambda: forecast_by_process([0.1] * 51, 50, 0.1), "from 1 to n_max=50"),
        (lambda: forecast_by_process([math.inf], 50, 0.1), "not finite, inf"),
        (lambda: forecast_by_families([0.1], 50, 0.1, np.random.default_rng(0), n_walkers=11), "n_walkers=11"),
        (lambda: forecast_by_families([0.1], 50, 0.1, np.random.default_rng(0), n_sweeps=1), "n_sweeps=1"),
    ],
)
def test_invalid_arguments_raise_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
