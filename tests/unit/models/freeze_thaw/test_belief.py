"""Freeze-thaw belief against one dense Gaussian over all losses; its parameters, their sampler, and the scale of losses."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from shoestring.models.freeze_thaw.belief import LEAST_VARIANCE, Belief
from shoestring.models.freeze_thaw.curves import RELATIVE_JITTER, Curves, Parameters
from shoestring.models.freeze_thaw.fit import LogPosterior, Prior, most_probable, pack, sample_parameters, unpack
from shoestring.models.freeze_thaw.slice_sampling import slice_sweep
from shoestring.models.freeze_thaw.sums import curve_sums, evidence, log_marginal_likelihood
from shoestring.models.loss_scaling import scaling

Floats = NDArray[np.float64]
NAN = np.nan


@dataclass(frozen=True)
class Problem:
    losses: Floats  # (n_arms, n_steps)
    parameters: Parameters
    arm_kernel: Floats | None
    unit: float
    start: float | None

    @property
    def curves(self) -> Curves:
        return Curves.of(self.losses, self.unit, self.start)

    @property
    def belief(self) -> Belief:
        return Belief.given(self.curves, self.parameters, self.arm_kernel)


class Dense:
    """The same model written out: every loss is one entry of one Gaussian vector.

    A start value l_0 is given: a curve at t has the weight 1 - w(t) on its asymptote and w(t) on l_0, w(t) = k(t, 0) / k(0, 0).
    """

    def __init__(self, problem: Problem) -> None:
        self.p, self.n_arms, self.start = problem.parameters, len(problem.losses), problem.start
        self.kx = self.p.sx2 * (np.eye(self.n_arms) if problem.arm_kernel is None else problem.arm_kernel)
        seen = [
            (arm, problem.unit * (step + 1), loss)
            for arm, curve in enumerate(problem.losses)
            for step, loss in enumerate(curve)
            if not np.isnan(loss)
        ]
        self.where = [(arm, epoch) for arm, epoch, _ in seen]
        self.y = np.array([loss for *_, loss in seen])
        extra = max(self.p.noise, RELATIVE_JITTER * self.p.s2)
        self.k = self.cross(self.where, self.where) + extra * np.eye(len(self.y))

    def kt(self, t: float, u: float) -> float:
        p = self.p
        return float(p.s2 * p.beta**p.alpha / (t + u + p.beta) ** p.alpha)

    def w(self, t: float) -> float:
        return 0.0 if self.start is None else self.kt(t, 0.0) / ((1.0 + RELATIVE_JITTER) * self.p.s2)

    def cross(self, a: Any, b: Any) -> Floats:
        return np.array(
            [
                [
                    (1.0 - self.w(t)) * self.kx[i, j] * (1.0 - self.w(u))
                    + (i == j) * (self.kt(t, u) - self.w(t) * self.kt(0.0, u))
                    for j, u in b
                ]
                for i, t in a
            ]
        ).reshape(len(a), len(b))

    def mean(self, where: Any) -> Floats:
        p = self.p
        level = 0.0 if self.start is None else self.start - p.mean - p.drop
        return np.array([p.mean + p.drop * (p.beta / (t + p.beta)) ** p.alpha + self.w(t) * level for _, t in where])

    def log_likelihood(self) -> float:
        if not len(self.y):
            return 0.0
        return float(stats.multivariate_normal.logpdf(self.y, self.mean(self.where), self.k))

    def condition(self, prior_mean: Floats, prior_cov: Floats, cross: Floats) -> tuple[Floats, Floats]:
        if not len(self.y):
            return prior_mean, prior_cov
        gain = np.linalg.solve(self.k, cross).T
        return prior_mean + gain @ (self.y - self.mean(self.where)), prior_cov - gain @ cross

    def at(self, queries: Any) -> tuple[Floats, Floats]:
        return self.condition(self.mean(queries), self.cross(queries, queries), self.cross(self.where, queries))

    def asymptotes(self) -> tuple[Floats, Floats]:
        cross = np.array([[(1.0 - self.w(t)) * self.kx[i, j] for j in range(self.n_arms)] for i, t in self.where])
        return self.condition(np.full(self.n_arms, self.p.mean), self.kx, cross.reshape(len(self.where), self.n_arms))


def make_problem(
    seed: int, n_arms: int, n_steps: int, pattern: str, correlated: bool, unit: float, with_start: bool
) -> Problem:
    rng = np.random.default_rng(seed)
    parameters = Parameters(
        alpha=rng.uniform(0.5, 2.5),
        beta=rng.uniform(0.5, 6.0),
        s2=rng.uniform(0.3, 5.0),
        noise=rng.uniform(0.01, 0.3),
        sx2=rng.uniform(0.2, 3.0),
        mean=rng.normal(),
        drop=float(rng.choice([0.0, rng.uniform(0.0, 4.0)])),
    )
    losses = rng.normal(size=(n_arms, n_steps)) + rng.normal(size=(n_arms, 1))
    counts = rng.integers(0, n_steps + 1, n_arms)
    losses[np.arange(n_steps) >= counts[:, None]] = NAN
    if pattern == "holes":
        losses[rng.random(losses.shape) < 0.4] = NAN
    if pattern == "every other":
        losses[:, ::2] = NAN
    x = rng.random((n_arms, 2))
    arm_kernel = np.exp(-2.0 * ((x[:, None] - x) ** 2).sum(axis=-1)) if correlated else None
    return Problem(losses, parameters, arm_kernel, unit, float(rng.normal()) if with_start else None)


def problems(patterns: tuple[str, ...] = ("whole", "holes", "every other")) -> st.SearchStrategy[Problem]:
    return st.builds(
        make_problem,
        seed=st.integers(0, 2**32 - 1),
        n_arms=st.integers(1, 4),
        n_steps=st.integers(1, 7),
        pattern=st.sampled_from(patterns),
        correlated=st.booleans(),
        unit=st.sampled_from([1.0, 6.0, 0.5]),
        with_start=st.booleans(),
    )


def assert_same(a: Belief, b: Belief, tolerance: float) -> None:
    for name in ("asymptote_mean", "asymptote_variance"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, err_msg=name)
    for name in ("lam", "gamma", "square", "logdet"):
        x, y = getattr(a.sums, name), getattr(b.sums, name)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=name)
    for x, y in zip(a.predict(), b.predict(), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


# --- the belief ---------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=80)
@given(problems())
def test_likelihood_equals_the_dense_gaussian(problem: Problem) -> None:
    got = log_marginal_likelihood(problem.curves, problem.parameters, problem.arm_kernel)
    assert got == pytest.approx(Dense(problem).log_likelihood(), rel=1e-7, abs=1e-7)


@settings(deadline=None, max_examples=80)
@given(problems())
def test_asymptotes_equal_the_dense_gaussian(problem: Problem) -> None:
    belief = problem.belief
    mean, cov = Dense(problem).asymptotes()
    np.testing.assert_allclose(belief.asymptote_mean, mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(belief.asymptote_variance, np.diag(cov), rtol=1e-7, atol=1e-7)
    if belief.asymptote_cov is not None:
        np.testing.assert_allclose(belief.asymptote_cov, cov, rtol=1e-7, atol=1e-7)


@settings(deadline=None, max_examples=80)
@given(problems())
def test_all_future_steps_equal_the_dense_gaussian(problem: Problem) -> None:
    mean, variance = problem.belief.predict()
    last = problem.curves.last_step
    dense = Dense(problem)
    for arm in range(len(problem.losses)):
        assert np.isnan(mean[arm, : last[arm]]).all()
        assert np.isnan(variance[arm, : last[arm]]).all()
        steps = np.arange(last[arm] + 1, problem.losses.shape[1] + 1)
        wanted, cov = dense.at([(arm, problem.unit * step) for step in steps])
        np.testing.assert_allclose(mean[arm, steps - 1], wanted, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(variance[arm, steps - 1], np.maximum(np.diag(cov), 1e-12), rtol=1e-6, atol=1e-7)


@settings(deadline=None, max_examples=60)
@given(problems(), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_scattered_queries_equal_the_dense_gaussian(problem: Problem, seed: int, n_queries: int) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, len(problem.losses), n_queries).tolist()
    epochs = rng.uniform(0.5, 60.0, n_queries).tolist()
    mean, cov = problem.belief.at(arms, epochs)
    wanted, wanted_cov = Dense(problem).at(list(zip(arms, epochs, strict=True)))
    np.testing.assert_allclose(mean, wanted, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(cov, wanted_cov, rtol=1e-6, atol=1e-7)


@settings(deadline=None, max_examples=60)
@given(problems(("whole",)), st.integers(0, 2**32 - 1))
def test_appending_one_by_one_equals_the_batch(problem: Problem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    turns = [arm for arm, n in enumerate(problem.curves.last_step) for _ in range(n)]
    rng.shuffle(turns)
    belief = replace(problem, losses=np.full_like(problem.losses, NAN)).belief
    trained = np.zeros(len(problem.losses), dtype=int)
    for arm in turns:
        before = belief.asymptote_mean.copy()
        longer = belief.append(arm, problem.losses[arm, trained[arm]])
        np.testing.assert_array_equal(belief.asymptote_mean, before)  # the old belief is not touched
        belief = longer
        trained[arm] += 1
    assert_same(belief, problem.belief, 1e-9)
    np.testing.assert_array_equal(belief.curves.losses, problem.losses)
    arms, epochs = list(range(len(problem.losses))), [3.7] * len(problem.losses)
    for x, y in zip(belief.at(arms, epochs), problem.belief.at(arms, epochs), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


def test_incremental_stays_exact_over_a_long_study() -> None:
    rng = np.random.default_rng(3)
    n_arms, n_steps = 20, 30
    x = rng.random((n_arms, 2))
    kernel = np.exp(-((x[:, None] - x) ** 2).sum(axis=-1))
    parameters = Parameters(1.5, 5.0, 10.0, 1e-4, 1.0, 0.0)
    losses = np.full((n_arms, n_steps), NAN)
    belief = Belief.given(Curves.of(losses), parameters, kernel)
    for step, arm in itertools.product(range(20), range(n_arms)):
        losses[arm, step] = x[arm, 0] + 3.0 / (step + 2.0) + 0.01 * rng.normal()
        belief = belief.append(arm, losses[arm, step])
    assert_same(belief, Belief.given(Curves.of(losses), parameters, kernel), 1e-9)


@settings(deadline=None, max_examples=40)
@given(problems(), st.randoms(use_true_random=False))
def test_permuting_arms_permutes_the_belief(problem: Problem, random: Any) -> None:
    order = list(range(len(problem.losses)))
    random.shuffle(order)
    kernel = None if problem.arm_kernel is None else problem.arm_kernel[np.ix_(order, order)]
    shuffled = replace(problem, losses=problem.losses[order], arm_kernel=kernel)
    for x, y in zip(shuffled.belief.predict(), problem.belief.predict(), strict=True):
        np.testing.assert_allclose(x, y[order], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        shuffled.belief.asymptote_mean, problem.belief.asymptote_mean[order], rtol=1e-9, atol=1e-9
    )


@settings(deadline=None, max_examples=40)
@given(problems(), st.sampled_from([1e-6, 1e6]), st.floats(-3.0, 3.0))
def test_units_of_the_loss_do_not_matter(problem: Problem, scale: float, shift: float) -> None:
    p = problem.parameters
    scaled = replace(
        problem,
        losses=scale * (problem.losses + shift),
        start=None if problem.start is None else scale * (problem.start + shift),
        parameters=Parameters(
            p.alpha,
            p.beta,
            scale**2 * p.s2,
            scale**2 * p.noise,
            scale**2 * p.sx2,
            scale * (p.mean + shift),
            scale * p.drop,
        ),
    )
    n_seen = np.isfinite(problem.losses).sum()
    plain = log_marginal_likelihood(problem.curves, p, problem.arm_kernel)
    other = log_marginal_likelihood(scaled.curves, scaled.parameters, scaled.arm_kernel)
    assert other + n_seen * np.log(scale) == pytest.approx(plain, rel=1e-7, abs=1e-6)
    np.testing.assert_allclose(
        scaled.belief.asymptote_mean / scale - shift, problem.belief.asymptote_mean, rtol=1e-7, atol=1e-7
    )


@settings(deadline=None, max_examples=40)
@given(problems(), st.floats(-5.0, 5.0))
def test_likelihood_does_not_depend_on_the_centre_of_the_sums(problem: Problem, centre: float) -> None:
    sums = curve_sums(problem.curves, problem.parameters, centre)
    got = evidence(sums, problem.parameters, problem.arm_kernel)
    wanted = log_marginal_likelihood(problem.curves, problem.parameters, problem.arm_kernel)
    assert got == pytest.approx(wanted, rel=1e-7, abs=1e-6)


def test_independent_arms_are_the_identity_kernel() -> None:
    problem = make_problem(5, 4, 6, "holes", False, 1.0, True)
    assert_same(problem.belief, replace(problem, arm_kernel=np.eye(4)).belief, 1e-10)


def test_holes_shared_by_all_arms_cost_no_factor_of_their_own() -> None:
    losses = np.array([[NAN, 1.0, NAN, 0.8, NAN, NAN], [NAN, 2.0, NAN, NAN, NAN, NAN], [NAN] * 6])
    curves = Curves.of(losses)
    assert curves.gappy.tolist() == []
    assert curves.order.tolist() == [2, 4, 1, 3, 5, 6]
    losses[1, 2] = 1.5  # now arm 0 has a hole at step 3
    assert Curves.of(losses).gappy.tolist() == [0]


def test_common_start_pulls_every_curve_to_it() -> None:
    parameters = Parameters(1.5, 5.0, 10.0, 1e-4, 1.0, 0.0)
    losses = np.array([[1.5, NAN, NAN], [NAN, NAN, NAN]])
    mean, cov = Belief.given(Curves.of(losses, unit=6.0, start=3.0), parameters).at([0, 1], [0.0, 0.0])
    np.testing.assert_allclose(mean, [3.0, 3.0], rtol=1e-6)
    assert (np.diag(cov) < 1e-6).all()


def test_common_start_says_nothing_of_the_asymptotes() -> None:
    parameters, kernel = Parameters(1.5, 5.0, 10.0, 1e-4, 1.0, 0.5), np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    belief = Belief.given(Curves.of(np.full((3, 4), NAN), start=30.0), parameters, kernel)
    np.testing.assert_allclose(belief.asymptote_mean, 0.5)
    assert belief.asymptote_cov is not None
    np.testing.assert_allclose(belief.asymptote_cov, kernel)


def test_curves_without_noise_are_interpolated() -> None:
    steps = np.arange(1.0, 61.0)
    losses = np.where(steps <= 40, 0.3 + 2.0 / (1.0 + steps), NAN)[None, :]
    belief = Belief.given(Curves.of(losses), Parameters(1.0, 1.0, 4.0, 0.0, 1.0, 0.0))
    mean, cov = belief.at([0] * 40, steps[:40].tolist())
    np.testing.assert_allclose(mean, losses[0, :40], atol=1e-3)
    assert (np.diag(cov) >= LEAST_VARIANCE).all()
    future, variance = belief.predict()
    assert (variance[0, 40:] >= LEAST_VARIANCE).all()
    np.testing.assert_allclose(future[0, 40:], 0.3 + 2.0 / (1.0 + steps[40:]), atol=1e-2)


@pytest.mark.parametrize("arm_kernel", [None, np.ones((3, 3))])
def test_nothing_seen_is_the_prior(arm_kernel: Floats | None) -> None:
    parameters = Parameters(1.5, 5.0, 2.0, 0.1, 0.7, 0.4)
    curves = Curves.of(np.full((3, 4), NAN))
    belief = Belief.given(curves, parameters, arm_kernel)
    assert log_marginal_likelihood(curves, parameters, arm_kernel) == 0.0
    mean, variance = belief.predict()
    np.testing.assert_array_equal(mean, np.full((3, 4), 0.4))
    t = np.arange(1.0, 5.0)
    np.testing.assert_allclose(variance, np.tile(0.7 + 2.0 * (5.0 / (2 * t + 5.0)) ** 1.5, (3, 1)), rtol=1e-12)


def test_identical_arms_share_what_one_of_them_shows() -> None:
    losses = np.array([[1.0, 0.9, 0.8, NAN], [NAN] * 4])
    belief = Belief.given(Curves.of(losses), Parameters(1.0, 2.0, 1.0, 0.01, 1.0, 0.0), np.ones((2, 2)))
    assert belief.asymptote_mean[0] == pytest.approx(belief.asymptote_mean[1], rel=1e-12)
    assert belief.asymptote_variance[0] == pytest.approx(belief.asymptote_variance[1], rel=1e-12)


def test_constant_curves_are_expected_to_stay() -> None:
    losses = np.where(np.arange(30) < 25, 0.5, NAN)[None, :]
    mean, _ = Belief.given(Curves.of(losses), Parameters(1.0, 1.0, 1.0, 1e-4, 1.0, 0.5)).predict()
    np.testing.assert_allclose(mean[0, 25:], 0.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Parameters(0.0, 1.0, 1.0, 0.1, 1.0, 0.0), "alpha=0.0"),
        (lambda: Parameters(1.0, 1.0, 1.0, -0.1, 1.0, 0.0), "noise=-0.1"),
        (lambda: Parameters(1.0, 1.0, 1.0, 0.1, 1.0, NAN), "mean=nan"),
        (lambda: Parameters(1.0, 1.0, 1.0, 0.1, 1.0, 0.0, -1.0), "drop=-1.0"),
        (lambda: Curves.of(np.zeros(3)), "n_arms, n_steps"),
        (lambda: Curves.of(np.zeros((0, 3))), "n_arms, n_steps"),
        (lambda: Curves.of(np.array([[np.inf]])), "inf"),
        (lambda: Curves.of(np.zeros((1, 1)), unit=0.0), "unit=0.0"),
        (lambda: Curves.of(np.zeros((1, 1)), start=NAN), "start=nan"),
        (lambda: small_belief(np.ones((3, 3))), "arm_kernel"),
        (lambda: small_belief().at([0], [1.0, 2.0]), "one epoch"),
        (lambda: small_belief().at([2], [1.0]), "arms 0..1"),
        (lambda: small_belief().append(0, 1.0), "complete"),
        (lambda: small_belief().append(1, NAN), "loss=nan"),
        (lambda: small_belief().append(2, 1.0), "arm=2"),
        (lambda: pack(Parameters(1.0, 1.0, 1.0, 0.0, 1.0, 0.0)), "noise=0.0"),
    ],
)
def test_misuse_is_explained(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


def small_belief(arm_kernel: Floats | None = None) -> Belief:
    curves = Curves.of(np.array([[1.0, 0.5], [1.0, NAN]]))
    return Belief.given(curves, Parameters(1.0, 1.0, 1.0, 0.1, 1.0, 0.0), arm_kernel)


# --- parameters ---------------------------------------------------------------------------------------------------


def drawn_curves(seed: int, parameters: Parameters, n_arms: int = 12, n_steps: int = 20) -> Curves:
    rng = np.random.default_rng(seed)
    t = np.arange(1.0, n_steps + 1)
    kt = parameters.decay(t[:, None] + t) + parameters.noise * np.eye(n_steps)
    asymptotes = parameters.mean + np.sqrt(parameters.sx2) * rng.normal(size=(n_arms, 1))
    losses = asymptotes + (np.linalg.cholesky(kt) @ rng.normal(size=(n_steps, n_arms))).T
    losses[np.arange(n_steps) >= rng.integers(1, n_steps, n_arms)[:, None]] = NAN
    return Curves.of(losses)


TRUTH = Parameters(alpha=1.2, beta=3.0, s2=1.0, noise=1e-2, sx2=0.5, mean=0.4)


def test_prior_is_the_documented_one() -> None:
    losses = np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]])
    prior = Prior.of(Curves.of(losses))
    variance = np.var([3.0, 1.0, 5.0])
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0])
    wanted = (
        stats.norm.logpdf(theta[0])
        + stats.norm.logpdf(theta[1])
        + stats.norm.logpdf(theta[2], np.log(variance), 1.0)
        + stats.norm.logpdf(theta[3], np.log(1e-3 * variance), 1.0)
        + stats.norm.logpdf(theta[4], np.log(variance), 1.0)
        + stats.norm.logpdf(theta[5], (1.0 + 5.0) / 2, np.sqrt(variance))
    )
    assert prior.log_density(theta) == pytest.approx(wanted, rel=1e-12)


def test_a_falling_prior_adds_the_drop_and_keeps_the_rest() -> None:
    curves = Curves.of(np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]]))
    plain, falling = Prior.of(curves), Prior.of(curves, falling=True)
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0, 0.7])
    drop = stats.norm.logpdf(0.7, np.log(2.0 * np.std([3.0, 1.0, 5.0])), 1.0)
    assert falling.log_density(theta) == pytest.approx(plain.log_density(theta[:6]) + drop, rel=1e-12)


def test_with_a_drop_the_level_is_where_curves_were_seen_last() -> None:
    curves = Curves.of(np.array([[3.0, 1.0, NAN], [5.0, NAN, NAN], [NAN, NAN, NAN]]))
    prior = Prior.of(curves, falling=True)
    theta = np.array([0.3, -0.2, 0.5, -5.0, 0.1, 2.0, 0.7])
    p = prior.parameters(theta)
    assert p.mean + p.fall(np.array([2.0, 1.0])).mean() == pytest.approx(2.0)
    np.testing.assert_allclose(prior.theta(prior.packed(theta)), theta, rtol=1e-14)
    np.testing.assert_allclose(pack(p), prior.packed(theta), rtol=1e-14)
    assert LogPosterior(curves, prior)(theta) == pytest.approx(
        log_marginal_likelihood(curves, p) + prior.log_density(theta)
    )


def test_a_fall_that_all_curves_share_is_found() -> None:
    steps = np.arange(1.0, 21.0)
    rng = np.random.default_rng(0)
    losses = rng.normal(size=(15, 1)) + 4.0 / (1.0 + steps / 3.0) + 0.05 * rng.normal(size=(15, 20))
    losses[:, 3:] = np.where(np.arange(15)[:, None] < 3, losses[:, 3:], NAN)
    losses[10:] = NAN
    curves = Curves.of(losses)
    posterior = LogPosterior(curves, Prior.of(curves, falling=True))
    samples, position = sample_parameters(posterior, np.random.default_rng(1), n_samples=20, burn_in=30)
    ends = [Belief.given(curves, p).predict()[0][:, -1] for p in samples]
    unseen = np.mean(ends, axis=0)[12]
    assert unseen < np.nanmean(losses[:, 0]) - 1.5  # of a curve not seen yet, too
    assert len(position) == 7
    assert most_probable(posterior, position).drop > 1.0


@pytest.mark.parametrize("losses", [[[NAN, NAN]], [[2.0, NAN]], [[2.0, 2.0]]])
def test_prior_of_losses_without_spread_is_proper(losses: list[list[float]]) -> None:
    curves = Curves.of(np.array(losses))
    prior = Prior.of(curves)
    assert (prior.spread == 1.0).all()
    assert np.isfinite(LogPosterior(curves, prior)(prior.centre))


def test_log_posterior_is_likelihood_plus_prior_in_any_order_of_asking() -> None:
    curves = drawn_curves(0, TRUTH)
    prior = Prior.of(curves)
    posterior = LogPosterior(curves, prior)
    rng = np.random.default_rng(1)
    points = [prior.centre + prior.spread * rng.normal(size=6) for _ in range(5)]
    points += [np.array([*points[0][:4], *points[1][4:]]), points[0]]  # the same kernel, other sx2 and mean
    values = [posterior(theta) for theta in points]
    for theta, value in zip(points, values, strict=True):
        wanted = log_marginal_likelihood(curves, unpack(theta)) + prior.log_density(theta)
        assert value == pytest.approx(wanted, rel=1e-9)
        assert LogPosterior(curves, prior)(theta) == value


@pytest.mark.parametrize("theta", [[800.0, 0, 0, 0, 0, 0], [0, -800.0, 0, 0, 0, 0], [0, 0, 0, 0, 0, NAN]])
def test_no_density_beyond_floating_point(theta: list[float]) -> None:
    curves = drawn_curves(0, TRUTH)
    assert LogPosterior(curves, Prior.of(curves))(np.array(theta)) == -np.inf


def test_pack_and_unpack_are_inverse() -> None:
    back = unpack(pack(TRUTH))
    for name in ("alpha", "beta", "s2", "noise", "sx2", "mean"):
        assert getattr(back, name) == pytest.approx(getattr(TRUTH, name), rel=1e-14)


def test_most_probable_is_a_peak() -> None:
    curves = drawn_curves(2, TRUTH)
    posterior = LogPosterior(curves, Prior.of(curves))
    theta = pack(most_probable(posterior))
    top = posterior(theta)
    assert top > posterior(pack(TRUTH))
    for axis, side in itertools.product(range(6), (-1.0, 1.0)):
        moved = theta.copy()
        moved[axis] += side * 0.05 * posterior.prior.spread[axis]
        assert posterior(moved) < top
    again = most_probable(posterior, theta.tolist())
    np.testing.assert_allclose(pack(again), theta, atol=2e-2)


def test_samples_cover_the_truth_and_the_chain_goes_on() -> None:
    curves = drawn_curves(4, TRUTH, n_arms=30)
    posterior = LogPosterior(curves, Prior.of(curves))
    samples, position = sample_parameters(posterior, np.random.default_rng(0), n_samples=60)
    assert len(samples) == 60
    np.testing.assert_array_equal(pack(samples[-1]), np.array(pack(unpack(position))))
    thetas = np.array([pack(sample) for sample in samples])
    truth = pack(TRUTH)
    assert (np.abs(thetas.mean(axis=0) - truth) < 4.0 * thetas.std(axis=0)).all()

    rng = np.random.default_rng(9)
    whole, end = sample_parameters(posterior, rng, n_samples=6, position=position)
    rng = np.random.default_rng(9)
    first, middle = sample_parameters(posterior, rng, n_samples=2, position=position)
    second, same_end = sample_parameters(posterior, rng, n_samples=4, position=middle)
    assert first + second == whole
    assert same_end == end
    assert all(type(x) is float for x in end)


def test_a_chain_lost_by_new_losses_starts_anew() -> None:
    curves = drawn_curves(4, TRUTH)
    posterior = LogPosterior(curves, Prior.of(curves))
    fresh = sample_parameters(posterior, np.random.default_rng(0), n_samples=2)
    lost = sample_parameters(posterior, np.random.default_rng(0), n_samples=2, position=[900.0, 0, 0, 0, 0, 0])
    assert fresh == lost


def test_sampler_misuse_is_explained() -> None:
    posterior = LogPosterior(drawn_curves(4, TRUTH), Prior.of(drawn_curves(4, TRUTH)))
    with pytest.raises(ValueError, match="n_samples=0"):
        sample_parameters(posterior, np.random.default_rng(0), n_samples=0)
    with pytest.raises(ValueError, match="6 floats"):
        sample_parameters(posterior, np.random.default_rng(0), position=[1.0])
    with pytest.raises(ValueError, match="must start where it is finite"):
        slice_sweep(posterior, np.zeros(6), -np.inf, np.ones(6), np.random.default_rng(0))


# --- the slice sampler --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("width", "max_step_outs"), [(0.5, 2), (0.5, 10), (5.0, 0)])
def test_a_sweep_leaves_its_density_unchanged(width: float, max_step_outs: int) -> None:
    """Points laid out as a skewed density, moved once, must still be laid out so: a move that is not reversible shows.

    At this number of points, growing both ends up to the limit, or a centred first interval, gives p-values below 1e-5.
    """
    gamma = stats.gamma(2.0)

    def log_density(x: Floats) -> float:
        return math.log(x[0]) - float(x[0]) if x[0] > 0.0 else -math.inf

    rng = np.random.default_rng(0)
    before = gamma.ppf((np.arange(20_000) + 0.5) / 20_000)
    after = np.empty_like(before)
    for i, x in enumerate(before):
        start = np.array([x])
        position, value = slice_sweep(log_density, start, log_density(start), np.array([width]), rng, max_step_outs)
        assert value == log_density(position)
        after[i] = position[0]
    assert stats.kstest(after, gamma.cdf).pvalue > 1e-3
    assert np.mean(after != before) > 0.99


def test_the_interval_grows_no_more_than_allowed() -> None:
    """On a flat density nothing else ends the growth; the point stays within width * (1 + max_step_outs)."""
    rng = np.random.default_rng(0)
    n_calls = 0

    def flat(x: Floats) -> float:
        nonlocal n_calls
        n_calls += 1
        return 0.0

    moves = [slice_sweep(flat, np.zeros(1), 0.0, np.array([0.5]), rng, 10)[0][0] for _ in range(300)]
    assert n_calls == 300 * 11  # ten looks at the ends, one at the new point
    assert 2.75 < np.abs(moves).max() < 5.5


def test_a_slice_without_width_keeps_the_point() -> None:
    position, value = slice_sweep(
        lambda x: 0.0 if x[0] == 0.0 else -np.inf, np.zeros(1), 0.0, np.ones(1), np.random.default_rng(0)
    )
    assert (position[0], value) == (0.0, 0.0)


# --- the scale of losses ------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([1e-9, 1.0, 1e12]),
    st.sampled_from([-2.0, 0.0, 5.0]),
    st.booleans(),
)
def test_scaling_standardises_and_goes_back(seed: int, size: float, shift: float, log: bool) -> None:
    rng = np.random.default_rng(seed)
    losses = size * (shift + rng.random((4, 6)))
    reported = rng.random((4, 6)) < 0.7
    reported[0, :2] = True
    scale = scaling(losses, reported, log=log)
    z = scale.apply(losses)[reported]
    assert z.mean() == pytest.approx(0.0, abs=1e-8)
    assert z.std() == pytest.approx(1.0, rel=1e-8)
    told = losses[reported]
    assert (np.diff(z[np.argsort(told)]) >= 0.0).all()
    wanted = np.minimum(told, scale.undo(np.array((scale.fence - scale.centre) / scale.scale)))
    if log and shift < 0.0:  # the smallest loss is the floor itself: it comes back as the next one
        wanted = np.maximum(wanted, np.sort(told)[1])
    np.testing.assert_allclose(scale.undo(z), wanted, rtol=1e-6, atol=1e-7 * size)


@pytest.mark.parametrize("diverged", [np.inf, -np.inf, NAN, 1e200, 1e30])
@pytest.mark.parametrize("log", [False, True])
def test_diverged_losses_are_bad_and_leave_the_scale_alone(diverged: float, log: bool) -> None:
    rng = np.random.default_rng(0)
    curves = 0.2 + 2.0 / (1.0 + np.arange(8)) + 0.1 * rng.random((6, 8))
    reported = np.ones_like(curves, dtype=bool)
    wrecked = curves.copy()
    wrecked[2, 5:] = diverged
    z, plain = scaling(wrecked, reported, log=log).apply(wrecked), scaling(curves, reported, log=log).apply(curves)
    assert np.isfinite(z).all()
    assert (z[2, 5:] >= np.delete(z, 2, axis=0).max() - 1e-12).all()
    assert np.ptp(np.delete(z, 2, axis=0)) > 0.2 * np.ptp(np.delete(plain, 2, axis=0))


def test_one_good_arm_with_most_losses_does_not_push_the_others_over_the_fence() -> None:
    losses = np.full((6, 100), NAN)
    losses[0] = np.linspace(2.3, 0.3, 100)
    losses[0, 10:] = np.linspace(0.301, 0.3, 90)
    losses[1:, 0] = [2.3, 2.31, 2.2, 3.0, 5.0]
    reported = ~np.isnan(losses)
    scale = scaling(losses, reported)
    np.testing.assert_allclose(scale.undo(scale.apply(losses))[reported], losses[reported], rtol=1e-12)


def test_losses_over_decades_are_told_apart_in_log() -> None:
    losses = np.array([[1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5]])
    z = scaling(losses, np.ones_like(losses, dtype=bool), log=True).apply(losses)
    np.testing.assert_allclose(np.diff(z[0]), np.diff(z[0])[0], rtol=1e-9)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "losses", [[[0.3]], [[0.3, 0.3]], [[0.0, 0.0]], [[-1.0, -1.0]], [[NAN]], [[np.inf, NAN]], [[0.1, np.inf]]]
)
def test_losses_that_do_not_vary_scale_to_zero(losses: list[list[float]], log: bool) -> None:
    table = np.array(losses)
    z = scaling(table, np.ones_like(table, dtype=bool), log=log).apply(table)
    np.testing.assert_array_equal(z, np.zeros_like(table))


def test_nothing_reported_scales_by_one() -> None:
    scale = scaling(np.full((2, 3), NAN), np.zeros((2, 3), dtype=bool))
    assert (scale.centre, scale.scale) == (0.0, 1.0)
    with pytest.raises(ValueError, match="the same"):
        scaling(np.zeros((2, 3)), np.zeros((2, 2), dtype=bool))
