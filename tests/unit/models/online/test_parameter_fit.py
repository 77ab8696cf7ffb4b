"""Parameters of the drifting GP by marginal likelihood: the density, the maximum within bounds, and why there are bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from scipy.stats import multivariate_normal
from thoroughness import examples

from shoestring.models.online.parameter_fit import (
    NOISE_BOUNDS,
    VARIANCE_BOUNDS,
    DriftParameters,
    Observations,
    fit_parameters,
    forgetting_bounds,
    lengthscale_bounds,
    log_likelihood,
)
from shoestring.models.online.query_rules import (
    beta_schedule,
    choose,
    other_arms,
    probability_better,
    query_by_confidence,
    upper_confidence,
)
from shoestring.models.online.time_varying import TimeKernel, TimeVaryingGP

Floats = NDArray[np.float64]
NOISE = 0.01

quick = examples(20, thorough=60)


def correlate(x: Floats) -> Floats:
    a = np.sqrt(5.0) * cdist(x, x) / 0.3
    return np.asarray((1.0 + a + a**2 / 3.0) * np.exp(-a))


def parameters(
    rate: float = 0.0, length: float = math.inf, variance: float = 2.0, noise: float = NOISE
) -> DriftParameters:
    return DriftParameters(rate, length, variance, noise)


def draw(p: DriftParameters, n: int, seed: int) -> Observations:
    """Return values of n random points in the rounds 1..n, drawn from the model."""
    rng = np.random.default_rng(seed)
    correlation, rounds = correlate(rng.random((n, 1))), np.arange(1, n + 1)
    full = p.variance * correlation * p.time.correlation(np.abs(rounds[:, None] - rounds)) + p.noise_variance * np.eye(
        n
    )
    return Observations.single(correlation, rounds, np.linalg.cholesky(full) @ rng.standard_normal(n))


@quick
@given(st.floats(0.0, 1.0), st.floats(0.5, 50.0), st.integers(1, 12), st.integers(0, 1000))
def test_likelihood_equals_the_normal_density(rate: float, length: float, n: int, seed: int) -> None:
    o, p = draw(parameters(0.05), n, seed), parameters(rate, length, 1.3, 0.02)
    lags = np.abs(o.rounds[:, None] - o.rounds)
    full = 1.3 * o.correlation * np.sqrt(1.0 - rate) ** lags * np.exp(-0.5 * (lags / length) ** 2) + 0.02 * np.eye(n)
    want = multivariate_normal(np.zeros(n), full).logpdf(o.values)
    assert log_likelihood(o, p) == pytest.approx(want, rel=1e-8, abs=1e-8)


def test_likelihood_of_sums_equals_the_normal_density() -> None:
    o, p = draw(parameters(0.05), 5, 0), parameters(0.1)
    member = np.array([[1.0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]])
    lags = np.abs(o.rounds[:, None] - o.rounds)
    full = member @ (2.0 * o.correlation * np.sqrt(0.9) ** lags) @ member.T + NOISE * np.eye(3)
    values = np.array([0.4, -1.0, 2.0])
    sums = Observations(o.correlation, o.rounds, values, np.array([0, 2, 3]))
    assert log_likelihood(sums, p) == pytest.approx(multivariate_normal(np.zeros(3), full).logpdf(values), rel=1e-9)


@examples(5, thorough=15)
@given(st.sampled_from([0.003, 0.02, 0.1, 0.4]), st.integers(2, 30), st.integers(0, 1000))
def test_no_rate_on_a_fine_grid_is_more_likely(rate: float, n: int, seed: int) -> None:
    o, bounds = draw(parameters(rate), n, seed), forgetting_bounds(500)
    found = fit_parameters(o, parameters(), {"forgetting_rate": bounds}).forgetting_rate
    assert bounds[0] <= found <= bounds[1]
    best = max(log_likelihood(o, parameters(r)) for r in np.geomspace(*bounds, 150))
    assert log_likelihood(o, parameters(found)) >= best - 1e-4


@examples(3, thorough=10)
@given(st.sampled_from([5.0, 20.0]), st.floats(0.2, 4.0), st.integers(8, 30), st.integers(0, 1000))
def test_no_triple_on_a_grid_is_more_likely(length: float, variance: float, n: int, seed: int) -> None:
    o = draw(parameters(0.0, length, variance, 0.05), n, seed)
    bounds = {"lengthscale": lengthscale_bounds(240), "variance": VARIANCE_BOUNDS, "noise_variance": NOISE_BOUNDS}
    found = fit_parameters(o, parameters(), bounds)
    assert all(low <= getattr(found, name) <= high for name, (low, high) in bounds.items())
    axes = [np.geomspace(*limits, 9) for limits in bounds.values()]
    best = max(
        log_likelihood(o, parameters(0.0, *(float(v) for v in p)))
        for p in np.stack(np.meshgrid(*axes), -1).reshape(-1, 3)
    )
    assert log_likelihood(o, found) >= best - 1e-3


def test_known_parameters_are_recovered() -> None:
    bounds = {"lengthscale": (1.0, 100.0), "variance": VARIANCE_BOUNDS, "noise_variance": NOISE_BOUNDS}
    for seed in range(3):
        found = fit_parameters(draw(parameters(0.0, 20.0, 1.5, 0.05), 200, seed), parameters(), bounds)
        assert 12.0 < found.lengthscale < 33.0
        assert 0.7 < found.variance < 3.5
        assert 0.03 < found.noise_variance < 0.08
        rate = fit_parameters(draw(parameters(0.05), 200, seed), parameters(), {"forgetting_rate": (1e-3, 0.5)})
        assert 0.025 < rate.forgetting_rate < 0.1


def test_a_constant_function_gets_the_lower_bound() -> None:
    bounds = forgetting_bounds(500)
    found = fit_parameters(draw(parameters(), 60, 3), parameters(), {"forgetting_rate": bounds}).forgetting_rate
    assert found == pytest.approx(bounds[0], rel=1e-3)
    assert found >= bounds[0]


@pytest.mark.parametrize("horizon", [1, 8, 20, 500, 2000])
def test_bounds_forget_within_an_eighth_of_the_horizon(horizon: int) -> None:
    low, high = forgetting_bounds(horizon)
    assert 0.0 < low <= high < 1.0
    assert float(TimeKernel(low).correlation(horizon / 8)) == pytest.approx(math.exp(-0.5)) or low == high
    low, high = lengthscale_bounds(horizon)
    assert 0.0 < low <= high <= max(horizon / 8, 1.0)


@pytest.mark.parametrize("bounded", [True, False])
def test_without_the_lower_bound_validation_stops(bounded: bool) -> None:
    """Three unrelated arms whose rewards are shifted sines; the rate is learned again every tenth query."""
    horizon = 600
    t = np.arange(horizon)[:, None]
    truth = 0.5 * np.sin(4.0 * np.pi * t / horizon + 2.0 * np.pi * np.arange(3) / 3.0)  # (horizon, 3)
    prior, rng = 0.25 * np.eye(3), np.random.default_rng(0)
    bounds = forgetting_bounds(horizon) if bounded else (1e-6, 0.5)

    def begin(rate: float) -> TimeVaryingGP:
        return TimeVaryingGP(prior.__getitem__, prior.diagonal(), forgetting_rate=rate, noise_variance=NOISE)

    gp, observations, regret = begin(0.02), list[tuple[int, int, float]](), 0.0
    for f in truth:
        mean, variance, now = gp.mean, gp.variance, gp.round
        arm = choose(upper_confidence(mean, variance, beta_schedule(now)))
        regret += (f.max() - f[arm]) / horizon
        if query_by_confidence(probability_better(mean, variance, arm, other_arms(3, arm)), 0.95):
            observations.append((arm, now, float(f[arm] + rng.normal(0.0, 0.1))))
            gp.observe(arm, observations[-1][2])
            if len(observations) % 10 == 0:
                arms, rounds, values = (np.array(column) for column in zip(*observations, strict=True))
                o = Observations.single(np.eye(3)[np.ix_(arms, arms)], rounds, values)
                gp = begin(fit_parameters(o, parameters(variance=0.25), {"forgetting_rate": bounds}).forgetting_rate)
                for earlier_arm, observed_in, value in observations:
                    if observed_in > gp.round:
                        gp.advance(observed_in - gp.round)
                    gp.observe(earlier_arm, value)
        gp.advance()
    silence = np.diff([observed_in for _, observed_in, _ in observations] + [horizon + 1]).max()
    assert (silence <= horizon / 8) == bounded
    assert regret < 0.06 if bounded else regret > 0.3  # random choices have about 0.41


def test_equal_bounds_leave_no_choice() -> None:
    found = fit_parameters(draw(parameters(0.1), 5, 0), parameters(), {"forgetting_rate": (0.2, 0.2)})
    assert found.forgetting_rate == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bounds": (0.0, 0.5)}, "forgetting_rate: .* 0 < low <= high"),
        ({"bounds": (0.5, 0.1)}, "forgetting_rate: .* 0 < low <= high"),
        ({"rounds": [4, 4]}, "at least two rounds"),
        ({"values": [1.0, math.nan]}, "n finite numbers"),
        ({"correlation": np.eye(3)}, "n finite numbers"),
        ({"correlation": -np.eye(2)}, "not positive definite"),
    ],
)
def test_inputs_are_checked(changes: dict[str, Any], message: str) -> None:
    given_: dict[str, Any] = {"correlation": np.eye(2), "rounds": [1, 2], "values": [0.1, 0.2], "bounds": (0.1, 0.5)}
    given_ |= changes
    bounds = given_.pop("bounds")
    with pytest.raises(ValueError, match=message):
        fit_parameters(Observations.single(**given_), parameters(), {"forgetting_rate": bounds})


def test_horizon_is_checked() -> None:
    for bounds in (forgetting_bounds, lengthscale_bounds):
        with pytest.raises(ValueError, match="horizon_rounds=0"):
            bounds(0)
