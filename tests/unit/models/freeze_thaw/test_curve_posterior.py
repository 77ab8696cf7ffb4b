"""Freeze-thaw posterior and likelihood: comparison with one dense Gaussian over all losses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from thoroughness import examples

from shoestring.models.freeze_thaw.arm_curves import RELATIVE_JITTER, CurveParameters, Curves, whiten
from shoestring.models.freeze_thaw.curve_posterior import MIN_VARIANCE, FreezeThawPosterior, log_likelihood, sum_arms

Floats = NDArray[np.float64]
NAN = np.nan


@dataclass(frozen=True)
class Problem:
    losses: Floats  # (n_arms, n_steps)
    parameters: CurveParameters
    arm_kernel: Floats | None
    start: float | None

    @property
    def curves(self) -> Curves:
        return Curves.of(self.losses, self.start)

    @property
    def posterior(self) -> FreezeThawPosterior:
        return FreezeThawPosterior.from_curves(self.curves, self.parameters, self.arm_kernel)


class Dense:
    """The same model in full: every loss is one entry of one Gaussian vector.

    With a start value l_0 a curve at t has the weight 1 - w(t) on its asymptote and w(t) on l_0, w(t) = k(t, 0) / k(0, 0).
    """

    def __init__(self, problem: Problem) -> None:
        self.p, self.n_arms, self.start = problem.parameters, len(problem.losses), problem.start
        self.kx = self.p.sx2 * (np.eye(self.n_arms) if problem.arm_kernel is None else problem.arm_kernel)
        observations = [
            (arm, step + 1.0, loss)
            for arm, curve in enumerate(problem.losses)
            for step, loss in enumerate(curve)
            if not np.isnan(loss)
        ]
        self.where = [(arm, step) for arm, step, _ in observations]
        self.y = np.array([loss for *_, loss in observations])
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


def make_problem(seed: int, n_arms: int, n_steps: int, pattern: str, correlated: bool, with_start: bool) -> Problem:
    rng = np.random.default_rng(seed)
    parameters = CurveParameters(
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
    if pattern == "gaps":
        losses[rng.random(losses.shape) < 0.4] = NAN
    if pattern == "every other":
        losses[:, ::2] = NAN
    x = rng.random((n_arms, 2))
    arm_kernel = np.exp(-2.0 * ((x[:, None] - x) ** 2).sum(axis=-1)) if correlated else None
    return Problem(losses, parameters, arm_kernel, float(rng.normal()) if with_start else None)


def problems(patterns: tuple[str, ...] = ("whole", "gaps", "every other")) -> st.SearchStrategy[Problem]:
    return st.builds(
        make_problem,
        seed=st.integers(0, 2**32 - 1),
        n_arms=st.integers(1, 4),
        n_steps=st.integers(1, 7),
        pattern=st.sampled_from(patterns),
        correlated=st.booleans(),
        with_start=st.booleans(),
    )


def assert_same(a: FreezeThawPosterior, b: FreezeThawPosterior, tolerance: float) -> None:
    for name in ("asymptote_mean", "asymptote_variance"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=tolerance, atol=tolerance, err_msg=name)
    for x, y in zip(a.predict(), b.predict(), strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def likelihood_of(curves: Curves, parameters: CurveParameters, arm_kernel: Floats | None = None) -> float:
    shared = whiten(curves, parameters, parameters.mean, len(curves.order))
    return log_likelihood(sum_arms(curves, parameters, shared), parameters, arm_kernel)


@examples(27, thorough=80)
@given(problems())
def test_likelihood_equals_the_dense_gaussian(problem: Problem) -> None:
    got = likelihood_of(problem.curves, problem.parameters, problem.arm_kernel)
    assert got == pytest.approx(Dense(problem).log_likelihood(), rel=1e-7, abs=1e-7)


@examples(27, thorough=80)
@given(problems())
def test_asymptotes_equal_the_dense_gaussian(problem: Problem) -> None:
    posterior = problem.posterior
    mean, cov = Dense(problem).asymptotes()
    np.testing.assert_allclose(posterior.asymptote_mean, mean, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(posterior.asymptote_variance, np.diag(cov), rtol=1e-7, atol=1e-7)
    if posterior.asymptote_cov is not None:
        np.testing.assert_allclose(posterior.asymptote_cov, cov, rtol=1e-7, atol=1e-7)


@examples(27, thorough=80)
@given(problems())
def test_all_future_steps_equal_the_dense_gaussian(problem: Problem) -> None:
    mean, variance = problem.posterior.predict()
    last = problem.curves.last_step
    dense = Dense(problem)
    for arm in range(len(problem.losses)):
        assert np.isnan(mean[arm, : last[arm]]).all()
        assert np.isnan(variance[arm, : last[arm]]).all()
        steps = np.arange(last[arm] + 1, problem.losses.shape[1] + 1)
        expected, cov = dense.at([(arm, step) for step in steps])
        np.testing.assert_allclose(mean[arm, steps - 1], expected, rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(variance[arm, steps - 1], np.maximum(np.diag(cov), 1e-12), rtol=1e-6, atol=1e-7)


@examples(20, thorough=60)
@given(problems(), st.integers(0, 2**32 - 1), st.integers(0, 6))
def test_scattered_queries_equal_the_dense_gaussian(problem: Problem, seed: int, n_queries: int) -> None:
    rng = np.random.default_rng(seed)
    arms = rng.integers(0, len(problem.losses), n_queries).tolist()
    steps = rng.uniform(0.5, 60.0, n_queries).tolist()
    mean, cov = problem.posterior.predict_joint(arms, steps)
    expected, expected_cov = Dense(problem).at(list(zip(arms, steps, strict=True)))
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(cov, expected_cov, rtol=1e-6, atol=1e-7)


@examples(14, thorough=40)
@given(problems(), st.randoms(use_true_random=False))
def test_permuting_arms_permutes_the_posterior(problem: Problem, random: Any) -> None:
    order = list(range(len(problem.losses)))
    random.shuffle(order)
    kernel = None if problem.arm_kernel is None else problem.arm_kernel[np.ix_(order, order)]
    shuffled = replace(problem, losses=problem.losses[order], arm_kernel=kernel)
    for x, y in zip(shuffled.posterior.predict(), problem.posterior.predict(), strict=True):
        np.testing.assert_allclose(x, y[order], rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        shuffled.posterior.asymptote_mean, problem.posterior.asymptote_mean[order], rtol=1e-9, atol=1e-9
    )


@examples(14, thorough=40)
@given(problems(), st.sampled_from([1e-6, 1e6]), st.floats(-3.0, 3.0))
def test_the_unit_of_the_loss_does_not_matter(problem: Problem, scale: float, shift: float) -> None:
    p = problem.parameters
    scaled = replace(
        problem,
        losses=scale * (problem.losses + shift),
        start=None if problem.start is None else scale * (problem.start + shift),
        parameters=CurveParameters(
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
    plain = likelihood_of(problem.curves, p, problem.arm_kernel)
    other = likelihood_of(scaled.curves, scaled.parameters, scaled.arm_kernel)
    assert other + n_seen * np.log(scale) == pytest.approx(plain, rel=1e-7, abs=1e-6)
    np.testing.assert_allclose(
        scaled.posterior.asymptote_mean / scale - shift, problem.posterior.asymptote_mean, rtol=1e-7, atol=1e-7
    )


@examples(14, thorough=40)
@given(problems(), st.floats(-5.0, 5.0))
def test_likelihood_does_not_depend_on_the_centre_of_the_sums(problem: Problem, centre: float) -> None:
    shared = whiten(problem.curves, problem.parameters, centre, max(problem.curves.n_shared, 1))
    sums = sum_arms(problem.curves, problem.parameters, shared)
    got = log_likelihood(sums, problem.parameters, problem.arm_kernel)
    expected = likelihood_of(problem.curves, problem.parameters, problem.arm_kernel)
    assert got == pytest.approx(expected, rel=1e-7, abs=1e-6)


def test_independent_arms_are_the_identity_kernel() -> None:
    problem = make_problem(5, 4, 6, "gaps", False, True)
    assert_same(problem.posterior, replace(problem, arm_kernel=np.eye(4)).posterior, 1e-10)


def test_gaps_that_all_arms_share_need_no_second_factor() -> None:
    losses = np.array([[NAN, 1.0, NAN, 0.8, NAN, NAN], [NAN, 2.0, NAN, NAN, NAN, NAN], [NAN] * 6])
    curves = Curves.of(losses)
    assert curves.with_gaps.tolist() == []
    assert curves.order.tolist() == [2, 4, 1, 3, 5, 6]
    losses[1, 2] = 1.5  # now arm 0 has a gap at step 3
    assert Curves.of(losses).with_gaps.tolist() == [0]


def test_every_curve_begins_at_the_common_start() -> None:
    parameters = CurveParameters(1.5, 5.0, 10.0, 1e-4, 1.0, 0.0)
    losses = np.array([[1.5, NAN, NAN], [NAN, NAN, NAN]])
    mean, cov = FreezeThawPosterior.from_curves(Curves.of(losses, start=3.0), parameters).predict_joint(
        [0, 1], [0.0, 0.0]
    )
    np.testing.assert_allclose(mean, [3.0, 3.0], rtol=1e-6)
    assert (np.diag(cov) < 1e-6).all()


def test_the_common_start_does_not_change_the_asymptotes() -> None:
    parameters, kernel = CurveParameters(1.5, 5.0, 10.0, 1e-4, 1.0, 0.5), np.full((3, 3), 0.9) + 0.1 * np.eye(3)
    posterior = FreezeThawPosterior.from_curves(Curves.of(np.full((3, 4), NAN), start=30.0), parameters, kernel)
    np.testing.assert_allclose(posterior.asymptote_mean, 0.5)
    assert posterior.asymptote_cov is not None
    np.testing.assert_allclose(posterior.asymptote_cov, kernel)


def test_curves_without_noise_are_interpolated() -> None:
    steps = np.arange(1.0, 61.0)
    losses = np.where(steps <= 40, 0.3 + 2.0 / (1.0 + steps), NAN)[None, :]
    posterior = FreezeThawPosterior.from_curves(Curves.of(losses), CurveParameters(1.0, 1.0, 4.0, 0.0, 1.0, 0.0))
    mean, cov = posterior.predict_joint([0] * 40, steps[:40].tolist())
    np.testing.assert_allclose(mean, losses[0, :40], atol=1e-3)
    assert (np.diag(cov) >= MIN_VARIANCE).all()
    future, variance = posterior.predict()
    assert (variance[0, 40:] >= MIN_VARIANCE).all()
    np.testing.assert_allclose(future[0, 40:], 0.3 + 2.0 / (1.0 + steps[40:]), atol=1e-2)


@pytest.mark.parametrize("arm_kernel", [None, np.ones((3, 3))])
def test_without_losses_the_posterior_is_the_prior(arm_kernel: Floats | None) -> None:
    parameters = CurveParameters(1.5, 5.0, 2.0, 0.1, 0.7, 0.4)
    curves = Curves.of(np.full((3, 4), NAN))
    posterior = FreezeThawPosterior.from_curves(curves, parameters, arm_kernel)
    assert likelihood_of(curves, parameters, arm_kernel) == 0.0
    mean, variance = posterior.predict()
    np.testing.assert_array_equal(mean, np.full((3, 4), 0.4))
    t = np.arange(1.0, 5.0)
    np.testing.assert_allclose(variance, np.tile(0.7 + 2.0 * (5.0 / (2 * t + 5.0)) ** 1.5, (3, 1)), rtol=1e-12)


def test_identical_arms_have_the_same_asymptote() -> None:
    losses = np.array([[1.0, 0.9, 0.8, NAN], [NAN] * 4])
    posterior = FreezeThawPosterior.from_curves(
        Curves.of(losses), CurveParameters(1.0, 2.0, 1.0, 0.01, 1.0, 0.0), np.ones((2, 2))
    )
    assert posterior.asymptote_mean[0] == pytest.approx(posterior.asymptote_mean[1], rel=1e-12)
    assert posterior.asymptote_variance[0] == pytest.approx(posterior.asymptote_variance[1], rel=1e-12)


def test_constant_curves_are_expected_to_stay() -> None:
    losses = np.where(np.arange(30) < 25, 0.5, NAN)[None, :]
    mean, _ = FreezeThawPosterior.from_curves(
        Curves.of(losses), CurveParameters(1.0, 1.0, 1.0, 1e-4, 1.0, 0.5)
    ).predict()
    np.testing.assert_allclose(mean[0, 25:], 0.5, rtol=1e-12)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: CurveParameters(0.0, 1.0, 1.0, 0.1, 1.0, 0.0), "alpha=0.0"),
        (lambda: CurveParameters(1.0, 1.0, 1.0, -0.1, 1.0, 0.0), "noise=-0.1"),
        (lambda: CurveParameters(1.0, 1.0, 1.0, 0.1, 1.0, NAN), "mean=nan"),
        (lambda: CurveParameters(1.0, 1.0, 1.0, 0.1, 1.0, 0.0, -1.0), "drop=-1.0"),
        (lambda: Curves.of(np.zeros(3)), "n_arms, n_steps"),
        (lambda: Curves.of(np.zeros((0, 3))), "n_arms, n_steps"),
        (lambda: Curves.of(np.array([[np.inf]])), "inf"),
        (lambda: Curves.of(np.zeros((1, 1)), start=NAN), "start=nan"),
        (lambda: small_posterior(np.ones((3, 3))), "arm_kernel"),
        (lambda: small_posterior().predict_joint([0], [1.0, 2.0]), "one step"),
        (lambda: small_posterior().predict_joint([2], [1.0]), "arms 0..1"),
    ],
)
def test_invalid_arguments_raise_errors(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        make()


def small_posterior(arm_kernel: Floats | None = None) -> FreezeThawPosterior:
    curves = Curves.of(np.array([[1.0, 0.5], [1.0, NAN]]))
    return FreezeThawPosterior.from_curves(curves, CurveParameters(1.0, 1.0, 1.0, 0.1, 1.0, 0.0), arm_kernel)
