"""Parameters of the curve process: their prior, the most probable ones, and the slice sampler."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from shoestring.models.freeze_thaw.arm_curves import CurveParameters, Curves, whiten
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior, log_likelihood, sum_arms
from shoestring.models.freeze_thaw.parameter_fit import (
    CurvePrior,
    LogPosterior,
    find_most_probable,
    pack,
    sample_parameters,
    sweep_slices,
    unpack,
)

Floats = NDArray[np.float64]
NAN = np.nan


def likelihood_of(curves: Curves, parameters: CurveParameters, arm_kernel: Floats | None = None) -> float:
    shared = whiten(curves, parameters, parameters.mean, len(curves.order))
    return log_likelihood(sum_arms(curves, parameters, shared), parameters, arm_kernel)


def drawn_curves(seed: int, parameters: CurveParameters, n_arms: int = 12, n_steps: int = 20) -> Curves:
    rng = np.random.default_rng(seed)
    t = np.arange(1.0, n_steps + 1)
    kt = parameters.decay(t[:, None] + t) + parameters.noise * np.eye(n_steps)
    asymptotes = parameters.mean + np.sqrt(parameters.sx2) * rng.normal(size=(n_arms, 1))
    losses = asymptotes + (np.linalg.cholesky(kt) @ rng.normal(size=(n_steps, n_arms))).T
    losses[np.arange(n_steps) >= rng.integers(1, n_steps, n_arms)[:, None]] = NAN
    return Curves.of(losses)


TRUTH = CurveParameters(alpha=1.2, beta=3.0, s2=1.0, noise=1e-2, sx2=0.5, mean=0.4)


def test_prior_is_the_documented_one() -> None:
    losses = np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]])
    prior = CurvePrior.of(Curves.of(losses))
    variance = np.var([3.0, 1.0, 5.0])
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0])
    expected = (
        stats.norm.logpdf(theta[0])
        + stats.norm.logpdf(theta[1])
        + stats.norm.logpdf(theta[2], np.log(variance), 1.0)
        + stats.norm.logpdf(theta[3], np.log(1e-3 * variance), 1.0)
        + stats.norm.logpdf(theta[4], np.log(variance), 1.0)
        + stats.norm.logpdf(theta[5], (1.0 + 5.0) / 2, np.sqrt(variance))
    )
    assert prior.log_density(theta) == pytest.approx(expected, rel=1e-12)


def test_a_falling_prior_adds_the_drop_and_keeps_the_rest() -> None:
    curves = Curves.of(np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]]))
    plain, falling = CurvePrior.of(curves), CurvePrior.of(curves, falling=True)
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0, 0.7])
    drop = stats.norm.logpdf(0.7, np.log(2.0 * np.std([3.0, 1.0, 5.0])), 1.0)
    assert falling.log_density(theta) == pytest.approx(plain.log_density(theta[:6]) + drop, rel=1e-12)


def test_with_a_drop_the_level_is_that_at_the_last_observed_steps() -> None:
    curves = Curves.of(np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]]))
    prior = CurvePrior.of(curves, falling=True)
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0, 0.7])
    p = prior.parameters(theta)
    assert p.mean + p.fall(np.array([2.0, 1.0])).mean() == pytest.approx(2.0)
    np.testing.assert_allclose(prior.theta(pack(p).tolist()), theta, rtol=1e-14)
    assert LogPosterior(curves, prior)(theta) == pytest.approx(likelihood_of(curves, p) + prior.log_density(theta))


def test_a_fall_that_all_curves_share_is_found() -> None:
    steps = np.arange(1.0, 21.0)
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(15, 1)) + 4.0 / (1.0 + steps / 3.0) + 0.05 * rng.normal(size=(15, 20))
    losses[:, 3:] = np.where(np.arange(15)[:, None] < 3, losses[:, 3:], NAN)
    losses[10:] = NAN
    curves = Curves.of(losses)
    posterior = LogPosterior(curves, CurvePrior.of(curves, falling=True))
    samples = sample_parameters(posterior, np.random.default_rng(1), n_samples=20, burn_in=30)
    ends = [FreezeThawPosterior.from_curves(curves, p).predict()[0][:, -1] for p in samples]
    unseen = np.mean(ends, axis=0)[12]
    assert unseen < np.nanmean(losses[:, 0]) - 1.5  # also for a curve without losses
    assert find_most_probable(posterior, pack(samples[-1]).tolist()).drop > 1.0


@pytest.mark.parametrize("losses", [[[NAN, NAN]], [[2.0, NAN]], [[2.0, 2.0]]])
def test_prior_of_losses_without_spread_is_proper(losses: list[list[float]]) -> None:
    curves = Curves.of(np.array(losses))
    prior = CurvePrior.of(curves)
    assert (prior.spread == 1.0).all()
    assert np.isfinite(LogPosterior(curves, prior)(prior.centre))


def test_log_posterior_is_likelihood_plus_prior_in_any_order_of_calls() -> None:
    curves = drawn_curves(0, TRUTH)
    prior = CurvePrior.of(curves)
    posterior = LogPosterior(curves, prior)
    rng = np.random.default_rng(1)
    points = [prior.centre + prior.spread * rng.normal(size=6) for _ in range(5)]
    points += [np.array([*points[0][:4], *points[1][4:]]), points[0]]  # the same kernel, other sx2 and mean
    values = [posterior(theta) for theta in points]
    for theta, value in zip(points, values, strict=True):
        expected = likelihood_of(curves, unpack(theta)) + prior.log_density(theta)
        assert value == pytest.approx(expected, rel=1e-9)
        assert LogPosterior(curves, prior)(theta) == value


@pytest.mark.parametrize("theta", [[800.0, 0, 0, 0, 0, 0], [0, -800.0, 0, 0, 0, 0], [0, 0, 0, 0, 0, NAN]])
def test_outside_floating_point_the_density_is_zero(theta: list[float]) -> None:
    curves = drawn_curves(0, TRUTH)
    assert LogPosterior(curves, CurvePrior.of(curves))(np.array(theta)) == -np.inf


def test_pack_and_unpack_are_inverse() -> None:
    back = unpack(pack(TRUTH))
    for name in ("alpha", "beta", "s2", "noise", "sx2", "mean"):
        assert getattr(back, name) == pytest.approx(getattr(TRUTH, name), rel=1e-14)


def test_most_probable_is_a_peak() -> None:
    curves = drawn_curves(2, TRUTH)
    posterior = LogPosterior(curves, CurvePrior.of(curves))
    theta = pack(find_most_probable(posterior))
    top = posterior(theta)
    assert top > posterior(pack(TRUTH))
    for axis, side in itertools.product(range(6), (-1.0, 1.0)):
        moved = theta.copy()
        moved[axis] += side * 0.05 * posterior.prior.spread[axis]
        assert posterior(moved) < top
    again = find_most_probable(posterior, theta.tolist())
    np.testing.assert_allclose(pack(again), theta, atol=2e-2)


def test_samples_cover_the_truth_and_the_chain_continues() -> None:
    curves = drawn_curves(4, TRUTH, n_arms=30)
    posterior = LogPosterior(curves, CurvePrior.of(curves))
    samples = sample_parameters(posterior, np.random.default_rng(0), n_samples=60)
    assert len(samples) == 60
    thetas = np.array([pack(sample) for sample in samples])
    truth = pack(TRUTH)
    assert (np.abs(thetas.mean(axis=0) - truth) < 4.0 * thetas.std(axis=0)).all()

    start = thetas[-1].tolist()
    whole = sample_parameters(posterior, np.random.default_rng(9), n_samples=6, position=start)
    rng = np.random.default_rng(9)
    first = sample_parameters(posterior, rng, n_samples=2, position=start)
    second = sample_parameters(posterior, rng, n_samples=4, position=pack(first[-1]).tolist())
    np.testing.assert_allclose([pack(p) for p in first + second], [pack(p) for p in whole], rtol=1e-9)


def test_a_chain_without_density_starts_again() -> None:
    curves = drawn_curves(4, TRUTH)
    posterior = LogPosterior(curves, CurvePrior.of(curves))
    new = sample_parameters(posterior, np.random.default_rng(0), n_samples=2)
    lost = sample_parameters(posterior, np.random.default_rng(0), n_samples=2, position=[900.0, 0, 0, 0, 0, 0])
    assert new == lost


def test_invalid_arguments_of_the_sampler_raise_errors() -> None:
    posterior = LogPosterior(drawn_curves(4, TRUTH), CurvePrior.of(drawn_curves(4, TRUTH)))
    with pytest.raises(ValueError, match="n_samples=0"):
        sample_parameters(posterior, np.random.default_rng(0), n_samples=0)
    with pytest.raises(ValueError, match="6 floats"):
        sample_parameters(posterior, np.random.default_rng(0), position=[1.0])
    with pytest.raises(ValueError, match=r"noise=0\.0"):
        pack(CurveParameters(1.0, 1.0, 1.0, 0.0, 1.0, 0.0))
    with pytest.raises(ValueError, match="must start where it is finite"):
        sweep_slices(posterior, np.zeros(6), -np.inf, np.ones(6), np.random.default_rng(0), 10)


# the slice sampler ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "max_step_outs"), [(0.5, 2), (0.5, 10), (5.0, 0)])
def test_a_sweep_leaves_its_density_unchanged(width: float, max_step_outs: int) -> None:
    """Points with a skewed distribution must have the same distribution after one move.

    With this number of points two common mistakes, growing both ends up to the limit and a centred first interval, give
    p-values below 1e-5.
    """
    gamma = stats.gamma(2.0)

    def log_density(x: Floats) -> float:
        return math.log(x[0]) - float(x[0]) if x[0] > 0.0 else -math.inf

    rng = np.random.default_rng(0)
    before = gamma.ppf((np.arange(20_000) + 0.5) / 20_000)
    after = np.empty_like(before)
    for i, x in enumerate(before):
        start = np.array([x])
        position, value = sweep_slices(log_density, start, log_density(start), np.array([width]), rng, max_step_outs)
        assert value == log_density(position)
        after[i] = position[0]
    assert stats.kstest(after, gamma.cdf).pvalue > 1e-3
    assert np.mean(after != before) > 0.99


def test_the_interval_grows_no_more_than_allowed() -> None:
    """On a flat density only the limit ends the growth; the point stays within width * (1 + max_step_outs)."""
    rng = np.random.default_rng(0)
    n_calls = 0

    def flat(x: Floats) -> float:
        nonlocal n_calls
        n_calls += 1
        return 0.0

    moves = [sweep_slices(flat, np.zeros(1), 0.0, np.array([0.5]), rng, 10)[0][0] for _ in range(300)]
    assert n_calls == 300 * 11  # ten evaluations at the ends, one at the new point
    assert 2.75 < np.abs(moves).max() < 5.5


def test_a_slice_without_width_keeps_the_point() -> None:
    position, value = sweep_slices(
        lambda x: 0.0 if x[0] == 0.0 else -np.inf, np.zeros(1), 0.0, np.ones(1), np.random.default_rng(0), 10
    )
    assert (position[0], value) == (0.0, 0.0)
