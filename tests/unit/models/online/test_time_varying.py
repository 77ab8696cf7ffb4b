"""The drifting GP, finite and continuous, against a dense solve written out here."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from thoroughness import examples

from shoestring.models.online.time_varying import TimeKernel, TimeVaryingGP
from shoestring.models.online.time_varying_continuous import ContinuousTimeVaryingGP, merge_modes

Floats = NDArray[np.float64]
NOISE = 0.01
DOMAIN = np.linspace(0.0, 1.0, 9)[:, None]

quick = examples(20, thorough=60)
rates = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(1e-4, 0.999))
# A round in the tests: the points observed in it, then the number of rounds to advance.
observed_rounds = st.lists(st.tuples(st.lists(st.integers(0, 8), max_size=3), st.integers(1, 6)), max_size=25)


def matern52(x: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Return the covariance (m, n) and its gradient in x, (m, n, d); length-scale 0.3, variance 2."""
    a = np.sqrt(5.0) * cdist(x, z) / 0.3
    value = 2.0 * (1.0 + a + a**2 / 3.0) * np.exp(-a)
    slope = -2.0 * 5.0 / 3.0 / 0.3**2 * (1.0 + a) * np.exp(-a)
    return value, slope[:, :, None] * (x[:, None] - z[None])


KERNEL = matern52(DOMAIN, DOMAIN)[0]


def of_matrix(kernel: Floats, **settings: float) -> TimeVaryingGP:
    """Return the process on points with this covariance matrix (N, N)."""
    return TimeVaryingGP(kernel.__getitem__, kernel.diagonal(), **settings)


def dense(
    kernel: Floats, history: list[tuple[int, int, float]], now: int, rate: float, noise: float = NOISE
) -> tuple[Floats, Floats]:
    """Return mean (N,) and covariance (N, N) in round `now` given (point, round, value) triples, by the formula."""
    x = np.array([point for point, _, _ in history], dtype=int)
    h = np.array([observed_in for _, observed_in, _ in history])
    y = np.array([value for _, _, value in history])
    if not history:
        return np.zeros(len(kernel)), kernel
    gram = kernel[np.ix_(x, x)] * np.sqrt(1.0 - rate) ** np.abs(h[:, None] - h[None, :])
    cross = kernel[x] * (np.sqrt(1.0 - rate) ** (now - h))[:, None]
    solved = np.linalg.solve(gram + noise * np.eye(len(x)), np.column_stack([y, cross]))
    return cross.T @ solved[:, 0], kernel - cross.T @ solved[:, 1:]


def play(
    gp: TimeVaryingGP, rounds_observed: list[tuple[list[int], int]], seed: int = 0
) -> list[tuple[int, int, float]]:
    rng = np.random.default_rng(seed)
    history = []
    for points, rounds in rounds_observed:
        for point in points:
            value = float(rng.normal(0.0, 1.5))
            gp.observe(point, value)
            history.append((point, gp.round, value))
        gp.advance(rounds)
    return history


def agrees(gp: TimeVaryingGP, mean: Floats, covariance: Floats) -> None:
    np.testing.assert_allclose(gp.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(gp.variance, np.diag(covariance), rtol=0, atol=1e-9)
    np.testing.assert_allclose([gp.covariance(i) for i in range(gp.n_points)], covariance, rtol=0, atol=1e-9)


class TestFiniteDomain:
    @quick
    @given(rates, observed_rounds)
    def test_recursion_equals_the_dense_posterior(
        self, rate: float, rounds_observed: list[tuple[list[int], int]]
    ) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=1e-30)
        history = play(gp, rounds_observed)
        agrees(gp, *dense(KERNEL, history, gp.round, rate))

    @quick
    @given(st.floats(0.05, 0.999), observed_rounds)
    def test_dropping_leaves_the_posterior_of_the_rest(
        self, rate: float, rounds_observed: list[tuple[list[int], int]]
    ) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=0.01)
        history = play(gp, rounds_observed)
        in_force = [entry for entry in history if entry[1] >= gp.round - TimeKernel(rate).lifetime_rounds(0.01)]
        assert len(in_force) <= gp.n_observations <= 2 * len(in_force)
        agrees(gp, *dense(KERNEL, history[len(history) - gp.n_observations :], gp.round, rate))

    def test_dropping_at_the_default_threshold_changes_little(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.3, noise_variance=NOISE)
        history = play(gp, [([t % 7], 1) for t in range(200)])
        assert gp.n_observations < 100
        mean, covariance = dense(KERNEL, history, gp.round, 0.3)
        np.testing.assert_allclose(gp.mean, mean, rtol=0, atol=1e-3)  # sqrt(forget_below) of values of order 1
        np.testing.assert_allclose(gp.variance, np.diag(covariance), rtol=0, atol=2e-6)  # forget_below * k(x, x)

    @quick
    @given(rates, observed_rounds)
    def test_a_skipped_round_shrinks_mean_and_restores_variance(
        self, rate: float, rounds_observed: list[tuple[list[int], int]]
    ) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=1e-30)
        play(gp, rounds_observed)
        mean, variance, covariance = gp.mean, gp.variance, gp.covariance(3)
        gp.advance()
        np.testing.assert_allclose(gp.mean, np.sqrt(1.0 - rate) * mean, atol=1e-10)
        np.testing.assert_allclose(gp.variance, (1.0 - rate) * variance + rate * np.diag(KERNEL), atol=1e-10)
        np.testing.assert_allclose(gp.covariance(3), (1.0 - rate) * covariance + rate * KERNEL[3], atol=1e-10)

    @quick
    @given(rates, observed_rounds, st.integers(1, 50))
    def test_many_rounds_at_once_equal_single_rounds(
        self, rate: float, rounds_observed: list[tuple[list[int], int]], rounds: int
    ) -> None:
        one, other = (
            of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=1e-30) for _ in range(2)
        )  # with a higher threshold the two may drop stale observations in different rounds
        play(one, rounds_observed)
        play(other, rounds_observed)
        one.advance(rounds)
        for _ in range(rounds):
            other.advance()
        np.testing.assert_allclose(one.mean, other.mean, atol=1e-10)
        np.testing.assert_allclose(one.variance, other.variance, atol=1e-10)

    def test_without_forgetting_time_changes_nothing(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.0, noise_variance=NOISE)
        gp.observe(2, 1.0)
        before = gp.mean, gp.variance
        gp.advance(10**6)
        assert gp.n_observations == 1
        np.testing.assert_array_equal(gp.mean, before[0])
        np.testing.assert_array_equal(gp.variance, before[1])

    def test_full_forgetting_returns_to_the_prior_every_round(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=1.0, noise_variance=NOISE)
        for _ in range(3):
            agrees(gp, np.zeros(9), KERNEL)
            gp.observe(4, 1.0)
            assert gp.mean[4] == pytest.approx(2.0 / 2.01)
            gp.advance()

    @pytest.mark.parametrize("skipped_rounds", [1, 10**5])
    def test_many_rounds_without_observations(self, skipped_rounds: int) -> None:
        """The decay of 10^5 rounds underflows; the first observation after them must not divide by it."""
        gp = of_matrix(KERNEL, forgetting_rate=0.4, noise_variance=NOISE)
        gp.observe(1, 5.0)
        for _ in range(skipped_rounds // 100):
            gp.advance(100)
        gp.advance()
        gp.observe(6, -1.0)
        history = [(1, 1, 5.0), (6, gp.round, -1.0)]
        agrees(gp, *dense(KERNEL, history, gp.round, 0.4))

    def test_reset_returns_to_the_prior_and_keeps_the_round(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.0, noise_variance=NOISE)
        play(gp, [([0, 3], 1), ([5], 4)])
        gp.reset()
        assert (gp.round, gp.n_observations) == (6, 0)
        agrees(gp, np.zeros(9), KERNEL)
        gp.observe(2, 0.7)
        agrees(gp, *dense(KERNEL, [(2, 6, 0.7)], 6, 0.0))

    @quick
    @given(rates, observed_rounds)
    def test_rows_from_a_function_equal_the_matrix(
        self, rate: float, rounds_observed: list[tuple[list[int], int]]
    ) -> None:
        def rows(points: NDArray[np.intp]) -> Floats:
            return matern52(DOMAIN[points], DOMAIN)[0]

        by_matrix = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE)
        by_rows = TimeVaryingGP(rows, np.full(9, 2.0), forgetting_rate=rate, noise_variance=NOISE)
        play(by_matrix, rounds_observed)
        play(by_rows, rounds_observed)
        np.testing.assert_array_equal(by_rows.mean, by_matrix.mean)
        np.testing.assert_array_equal(by_rows.variance, by_matrix.variance)

    @quick
    @given(observed_rounds, st.sampled_from([1e-8, 1e-3, 1e6, 1e9]))
    def test_units_do_not_matter(self, rounds_observed: list[tuple[list[int], int]], unit: float) -> None:
        plain = of_matrix(KERNEL, forgetting_rate=0.1, noise_variance=NOISE)
        scaled = of_matrix(KERNEL * unit**2, forgetting_rate=0.1, noise_variance=NOISE * unit**2)
        for point, observed_in, value in play(plain, rounds_observed):
            if observed_in > scaled.round:
                scaled.advance(observed_in - scaled.round)
            scaled.observe(point, value * unit)
        if plain.round > scaled.round:
            scaled.advance(plain.round - scaled.round)
        np.testing.assert_allclose(scaled.mean / unit, plain.mean, atol=1e-9)
        np.testing.assert_allclose(scaled.variance / unit**2, plain.variance, atol=1e-9)

    def test_a_point_observed_many_times_has_a_positive_variance(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.0, noise_variance=1e-14)
        for _ in range(200):
            gp.observe(4, 3.0)
        assert np.all(gp.variance > 0.0)
        assert gp.mean[4] == pytest.approx(3.0, abs=1e-9)

    def test_one_point(self) -> None:
        gp = of_matrix(np.array([[2.0]]), forgetting_rate=0.5, noise_variance=2.0)
        gp.observe(0, 1.0)
        assert (gp.mean[0], gp.variance[0]) == (pytest.approx(0.5), pytest.approx(1.0))
        gp.advance(2)
        assert (gp.mean[0], gp.variance[0]) == (pytest.approx(0.25), pytest.approx(1.75))

    def test_unrelated_arms_do_not_affect_each_other(self) -> None:
        gp = of_matrix(0.25 * np.eye(3), forgetting_rate=0.1, noise_variance=NOISE)
        gp.observe(1, 0.4)
        assert gp.mean[[0, 2]].tolist() == [0.0, 0.0]
        assert gp.variance[[0, 2]].tolist() == [0.25, 0.25]
        assert gp.variance[1] < 0.25

    def test_returned_arrays_do_not_change(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.1, noise_variance=NOISE)
        gp.observe(0, 1.0)
        mean, variance = gp.mean, gp.variance
        copies = mean.copy(), variance.copy()
        gp.advance()
        gp.observe(5, -2.0)
        np.testing.assert_array_equal(mean, copies[0])
        np.testing.assert_array_equal(variance, copies[1])
        with pytest.raises(ValueError, match="read-only"):
            mean[0] = 1.0

    @pytest.mark.parametrize(
        ("settings_", "message"),
        [
            ({"forgetting_rate": -0.1}, r"forgetting_rate=-0.1 must be in \[0, 1\]"),
            ({"forgetting_rate": math.nan}, r"forgetting_rate=nan must be in \[0, 1\]"),
            ({"noise_variance": 0.0}, "noise_variance=0.0 must be positive"),
            ({"forget_below": 1.0}, r"forget_below=1.0 must be in \(0, 1\)"),
            ({"prior_variance": np.array([1.0, 0.0])}, "positive, finite variance for each point"),
            ({"prior_variance": np.array([1.0, math.inf])}, "positive, finite variance for each point"),
            ({"prior_variance": np.eye(2)}, "positive, finite variance for each point"),
        ],
    )
    def test_settings_are_checked(self, settings_: dict[str, Any], message: str) -> None:
        plain: dict[str, Any] = {"prior_variance": KERNEL.diagonal(), "forgetting_rate": 0.1, "noise_variance": NOISE}
        with pytest.raises(ValueError, match=message):
            TimeVaryingGP(KERNEL.__getitem__, **(plain | settings_))

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda gp: gp.observe(9, 0.0), r"point=9 must be an index in 0..8"),
            (lambda gp: gp.observe(-1, 0.0), r"point=-1 must be an index"),
            (lambda gp: gp.observe(0, math.inf), "value=inf at point 0 must be finite"),
            (lambda gp: gp.covariance(9), "point=9"),
            (lambda gp: gp.advance(0), "rounds=0 must be at least 1"),
        ],
    )
    def test_calls_are_checked(self, call: Callable[[TimeVaryingGP], object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            call(of_matrix(KERNEL, forgetting_rate=0.1, noise_variance=NOISE))


# Rounds in the tests of sums: the point of each, and whether its observation is made there.
summed_rounds = st.lists(st.tuples(st.integers(0, 8), st.booleans()), max_size=25)


def dense_sums(
    kernel: Floats, sums: list[tuple[list[tuple[int, int]], float]], now: int, time: TimeKernel
) -> tuple[Floats, Floats]:
    """Return mean (N,) and covariance (N, N) in round `now` given sums of (point, round) terms, by the formula."""
    terms = [term for one, _ in sums for term in one]
    if not terms:
        return np.zeros(len(kernel)), kernel
    x, h = np.array(terms).T
    member = np.array([[term in one for term in terms] for one, _ in sums], dtype=float)  # rounds differ, so terms do
    gram = member @ (kernel[np.ix_(x, x)] * time.correlation(np.abs(h[:, None] - h))) @ member.T
    cross = member @ (kernel[x] * time.correlation(now - h)[:, None])
    y = np.array([value for _, value in sums])
    solved = np.linalg.solve(gram + NOISE * np.eye(len(y)), np.column_stack([y, cross]))
    return cross.T @ solved[:, 0], kernel - cross.T @ solved[:, 1:]


def play_sums(
    gp: TimeVaryingGP | ContinuousTimeVaryingGP, rounds: list[tuple[int, bool]], place: Callable[[int], Any]
) -> list[tuple[list[tuple[int, int]], float]]:
    """Skip or observe one point in each round; return the terms and the value of each observation."""
    rng = np.random.default_rng(len(rounds))
    sums: list[tuple[list[tuple[int, int]], float]] = []
    terms: list[tuple[int, int]] = []
    for point, observed in rounds:
        terms.append((point, gp.round))
        if observed:
            sums.append((terms, float(rng.normal(0.0, 2.0))))
            gp.observe(place(point), sums[-1][1])
            terms = []
        else:
            gp.skip(place(point))
        gp.advance()
    return sums


class TestSums:
    """An observation of the sum of the function over several rounds."""

    @quick
    @given(rates, summed_rounds)
    def test_a_finite_domain_equals_the_dense_posterior(self, rate: float, rounds: list[tuple[int, bool]]) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=1e-30)
        sums = play_sums(gp, rounds, int)
        agrees(gp, *dense_sums(KERNEL, sums[len(sums) - gp.n_observations :], gp.round, TimeKernel(rate)))

    @quick
    @given(st.floats(0.05, 0.5), summed_rounds)
    def test_dropping_changes_little(self, rate: float, rounds: list[tuple[int, bool]]) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=1e-5)
        sums = play_sums(gp, rounds, int)
        mean, covariance = dense_sums(KERNEL, sums, gp.round, TimeKernel(rate))
        np.testing.assert_allclose(gp.mean, mean, rtol=0, atol=0.1)
        np.testing.assert_allclose(gp.variance, np.diag(covariance), rtol=0, atol=1e-3)

    @quick
    @given(
        st.builds(TimeKernel, rates, st.one_of(st.just(math.inf), st.floats(0.5, 100.0))),
        summed_rounds,
        st.sampled_from([1e-30, 0.01]),
    )
    def test_the_cube_equals_the_dense_posterior(
        self, time: TimeKernel, rounds: list[tuple[int, bool]], forget_below: float
    ) -> None:
        gp = ContinuousTimeVaryingGP(
            matern52, n_dims=1, variance=2.0, time=time, noise_variance=NOISE, forget_below=forget_below
        )
        sums = play_sums(gp, rounds, lambda point: DOMAIN[point])
        mean, covariance = dense_sums(KERNEL, sums[len(sums) - gp.n_observations :], gp.round, time)
        np.testing.assert_allclose(gp.predict(DOMAIN)[0], mean, atol=1e-8)
        np.testing.assert_allclose(gp.predict(DOMAIN)[1], np.diag(covariance), atol=1e-8)
        np.testing.assert_allclose(gp.covariance(DOMAIN[:4], DOMAIN), covariance[:4], atol=1e-8)

    def test_the_gradient_has_all_terms(self) -> None:
        gp = continuous(0.1, n_dims=1)
        play_sums(gp, [(2, False), (5, True), (7, False), (1, False), (8, True)], lambda point: DOMAIN[point])
        for x in (0.07, 0.4, 0.81):
            numeric = (
                gp.ucb_and_gradient(np.array([x + 1e-6]), 2.0)[0] - gp.ucb_and_gradient(np.array([x - 1e-6]), 2.0)[0]
            )
            assert gp.ucb_and_gradient(np.array([x]), 2.0)[1][0] == pytest.approx(numeric / 2e-6, rel=1e-5)

    def test_a_reset_keeps_the_skipped_rounds(self) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.2, noise_variance=NOISE)
        play_sums(gp, [(3, True), (4, False), (2, False)], int)
        gp.reset()
        gp.observe(6, 1.5)
        agrees(gp, *dense_sums(KERNEL, [([(4, 2), (2, 3), (6, 4)], 1.5)], 4, TimeKernel(0.2)))

    @pytest.mark.parametrize("place", [int, lambda point: DOMAIN[point]])
    def test_a_new_sum_begins_without_the_skipped_rounds(self, place: Callable[[int], Any]) -> None:
        gp = of_matrix(KERNEL, forgetting_rate=0.2, noise_variance=NOISE) if place is int else continuous(0.2)
        gp.skip(place(3))
        gp.advance()
        gp.drop_skipped()
        gp.observe(place(6), 1.5)
        mean = gp.mean if isinstance(gp, TimeVaryingGP) else gp.predict(DOMAIN)[0]
        np.testing.assert_allclose(mean, dense_sums(KERNEL, [([(6, 2)], 1.5)], 2, TimeKernel(0.2))[0], atol=1e-10)

    def test_one_config_for_several_rounds_is_known_better_than_its_last_round(self) -> None:
        """Four rounds of gain 1 at one point: their sum has the noise of one observation, not of one round in four."""
        gp = of_matrix(KERNEL, forgetting_rate=0.0, noise_variance=1.0)
        play_sums(gp, [(4, False)] * 3, int)
        gp.observe(4, 4.0)
        assert gp.mean[4] == pytest.approx(4.0 * 4.0 * 2.0 / (16.0 * 2.0 + 1.0))


class TestHighestMeans:
    def test_they_are_found_from_observed_points(self) -> None:
        gp = scattered(0.01, 2, 12, 0)
        found = gp.highest_means()
        grid = np.random.default_rng(1).random((4000, 2))
        assert found.mean[0] >= gp.predict(grid)[0].max() - 1e-6

    def test_there_are_none_without_an_observation(self) -> None:
        with pytest.raises(ValueError, match="without an observation"):
            continuous(0.1).highest_means()


def continuous(rate: float, *, n_dims: int = 1, forget_below: float = 1e-6) -> ContinuousTimeVaryingGP:
    return ContinuousTimeVaryingGP(
        matern52, n_dims=n_dims, variance=2.0, time=TimeKernel(rate), noise_variance=NOISE, forget_below=forget_below
    )


def scattered(rate: float, n_dims: int, n: int, seed: int) -> ContinuousTimeVaryingGP:
    gp = continuous(rate, n_dims=n_dims)
    rng = np.random.default_rng(seed)
    for _ in range(n):
        gp.observe(rng.random(n_dims), float(rng.normal()))
        gp.advance(int(rng.integers(1, 4)))
    return gp


class TestContinuousDomain:
    @quick
    @given(rates, observed_rounds, st.sampled_from([1e-30, 0.01]))
    def test_posterior_equals_that_of_the_finite_domain(
        self, rate: float, rounds_observed: list[tuple[list[int], int]], forget_below: float
    ) -> None:
        finite = of_matrix(KERNEL, forgetting_rate=rate, noise_variance=NOISE, forget_below=forget_below)
        cube = continuous(rate, forget_below=forget_below)
        history = play(finite, rounds_observed)
        for point, observed_in, value in history:
            while observed_in > cube.round:
                cube.advance()
            cube.observe(DOMAIN[point], value)
        while finite.round > cube.round:
            cube.advance()
        assert cube.round == finite.round
        recent = history[len(history) - cube.n_observations :]
        mean, covariance = dense(KERNEL, recent, cube.round, rate)
        got_mean, got_variance = cube.predict(DOMAIN)
        np.testing.assert_allclose(got_mean, mean, atol=1e-9)
        np.testing.assert_allclose(got_variance, np.diag(covariance), atol=1e-9)
        np.testing.assert_allclose(cube.covariance(DOMAIN[:4], DOMAIN), covariance[:4], atol=1e-9)

    @quick
    @given(st.integers(1, 4), st.integers(0, 12), st.floats(0.0, 6.0), st.integers(0, 1000))
    def test_gradient_equals_finite_differences(self, n_dims: int, n: int, beta: float, seed: int) -> None:
        gp = scattered(0.05, n_dims, n, seed)
        x = np.random.default_rng(seed + 1).random(n_dims)
        value, gradient = gp.ucb_and_gradient(x, beta)
        mean, variance = gp.predict(x[None])
        assert value == pytest.approx(mean[0] + math.sqrt(beta * variance[0]), abs=1e-12)
        step = 1e-6 * np.eye(n_dims)
        differences = [(gp.ucb_and_gradient(x + h, beta)[0] - gp.ucb_and_gradient(x - h, beta)[0]) / 2e-6 for h in step]
        np.testing.assert_allclose(gradient, differences, atol=1e-6)

    @examples(5, thorough=10)
    @given(st.integers(1, 15), st.integers(0, 1000))
    def test_modes_on_a_line_are_its_local_maxima(self, n: int, seed: int) -> None:
        gp = scattered(0.02, 1, n, seed)
        modes = gp.modes(2.0, np.random.default_rng(seed + 1))  # no start is an observation, where u has a dip
        line = np.linspace(0.0, 1.0, 2001)[:, None]
        mean, variance = gp.predict(line)
        u = mean + math.sqrt(2.0) * np.sqrt(variance)
        assert modes.ucb[0] >= u.max() - 1e-5  # the highest mode is found
        assert np.all(np.diff(modes.ucb) <= 0.0)
        for x, height in zip(modes.points[:, 0], modes.ucb, strict=True):
            near = np.clip([x - 1e-5, x + 1e-5], 0.0, 1.0)[:, None]  # modes can be narrow: a dip may begin 4e-4 away
            near_mean, near_variance = gp.predict(near)
            assert height >= (near_mean + math.sqrt(2.0) * np.sqrt(near_variance)).max() - 1e-7
        np.testing.assert_allclose(modes.ucb, modes.mean + math.sqrt(2.0) * np.sqrt(modes.variance))

    def test_two_hills_are_two_modes(self) -> None:
        gp = continuous(0.0, n_dims=2)
        for x, y in (([0.1, 0.1], 2.0), ([0.9, 0.9], 3.0), ([0.5, 0.5], -3.0), ([0.1, 0.9], -3.0), ([0.9, 0.1], -3.0)):
            gp.observe(np.array(x), y)
        modes = gp.modes(0.01, np.random.default_rng(0))
        np.testing.assert_allclose(modes.points[:2], [[0.9, 0.9], [0.1, 0.1]], atol=0.1)
        assert np.all(modes.ucb[2:] < 0.0)  # low modes in the corners with few observations
        gaps = cdist(modes.points, modes.points)[np.triu_indices(len(modes.points), 1)]
        assert gaps.min() > 0.2

    def test_one_start_gives_one_mode_within_the_cube(self) -> None:
        modes = scattered(0.01, 3, 6, 0).modes(1.0, np.random.default_rng(1), n_starts=1)
        assert modes.points.shape == (1, 3)
        assert np.all((modes.points >= 0.0) & (modes.points <= 1.0))

    def test_the_prior_is_flat(self) -> None:
        modes = continuous(0.1, n_dims=2).modes(4.0, np.random.default_rng(0))
        np.testing.assert_allclose(modes.ucb, 2.0 * math.sqrt(2.0))
        assert not modes.mean.any()

    def test_reset_returns_to_the_prior(self) -> None:
        gp = scattered(0.01, 2, 5, 0)
        now = gp.round
        gp.reset()
        mean, variance = gp.predict(np.array([[0.2, 0.3]]))
        assert (mean[0], variance[0], gp.round, gp.n_observations) == (0.0, 2.0, now, 0)

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda gp: gp.observe(np.array([0.5, 0.5]), 0.0), r"must be 1 coordinates in \[0, 1\]"),
            (lambda gp: gp.observe(np.array([1.5]), 0.0), r"must be 1 coordinates in \[0, 1\]"),
            (lambda gp: gp.observe(np.array([0.5]), math.nan), "value=nan"),
            (lambda gp: gp.advance(0), "rounds=0"),
            (lambda gp: gp.modes(-1.0, np.random.default_rng(0)), "beta=-1.0"),
            (lambda gp: gp.modes(1.0, np.random.default_rng(0), n_starts=0), "n_starts=0"),
            (lambda gp: gp.modes(1.0, np.random.default_rng(0), bandwidth=0.0), "bandwidth=0.0"),
        ],
    )
    def test_calls_are_checked(self, call: Callable[[ContinuousTimeVaryingGP], object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            call(continuous(0.1))

    @pytest.mark.parametrize(("name", "value"), [("n_dims", 0), ("variance", 0.0), ("noise_variance", -1.0)])
    def test_settings_are_checked(self, name: str, value: float) -> None:
        arguments: dict[str, Any] = {"n_dims": 1, "variance": 2.0, "time": TimeKernel(0.1), "noise_variance": NOISE}
        with pytest.raises(ValueError, match=f"{name}={value}"):
            ContinuousTimeVaryingGP(matern52, **(arguments | {name: value}))


def shift_to_mode(start: Floats, points: Floats, bandwidth: float) -> Floats:
    """Return the end of one point under mean shift, computed step by step."""
    centre = start
    while True:
        near = [p for p in points if math.dist(p, centre) <= bandwidth]
        mean = np.asarray(sum(near[1:], near[0]) / len(near))
        if math.dist(mean, centre) < 1e-9:
            return mean
        centre = mean


class TestMergeModes:
    @quick
    @given(st.integers(1, 40), st.integers(1, 3), st.integers(0, 10**6))
    def test_every_point_ends_in_one_mode(self, n: int, n_dims: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        points, heights = rng.random((n, n_dims)), rng.normal(size=n)
        modes = merge_modes(points, heights, 0.2)
        assert modes[0] == np.argmax(heights)
        assert np.all(np.diff(heights[modes]) < 0.0)
        gaps = cdist(*[[shift_to_mode(p, points, 0.2) for p in points]] * 2)  # (n, n)
        assert gaps[:, modes].min(axis=1).max() <= 0.2 + 1e-6
        assert np.all(gaps[np.ix_(modes, modes)][np.triu_indices(len(modes), 1)] > 0.2 - 1e-6)
        for i in range(n):  # no member of a mode is higher than its representative
            assert heights[modes][gaps[i, modes] <= 0.2 + 1e-6].max() >= heights[i]

    @quick
    @given(st.permutations(range(12)))
    def test_distant_points_are_not_merged(self, order: list[int]) -> None:
        points = np.column_stack([np.array(order) * 0.3, np.zeros(12)])
        modes = merge_modes(points, np.arange(12.0), 0.2)
        assert modes.tolist() == list(range(11, -1, -1))

    def test_duplicates_and_near_duplicates_are_merged(self) -> None:
        points = np.array([[0.5, 0.5], [0.5, 0.5], [0.52, 0.5], [0.9, 0.1]])
        assert merge_modes(points, np.array([1.0, 1.0, 2.0, 0.0]), 0.2).tolist() == [2, 3]
