"""Choice, competitors and query rules, against their definitions written out slowly."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.stats import norm
from thoroughness import examples

from shoestring.models.online import query_rules

Floats = NDArray[np.float64]

quick = examples(34, thorough=100)
few_levels = st.integers(-2, 2).map(float)  # many ties, so many plateaus
lines = arrays(np.float64, st.integers(1, 12), elements=few_levels)
posteriors = st.integers(1, 8).flatmap(
    lambda n: st.tuples(
        arrays(np.float64, n, elements=st.floats(-3, 3)), arrays(np.float64, n, elements=st.floats(1e-3, 4))
    )
)


class TestSchedules:
    def test_beta_grows_with_the_round(self) -> None:
        assert query_rules.beta_schedule(1) == pytest.approx(0.8 * math.log(4.0))
        betas = [query_rules.beta_schedule(t) for t in range(1, 100)]
        assert np.all(np.diff(betas) > 0.0)

    @pytest.mark.parametrize(
        ("rate", "horizon", "block"), [(0.0, 500, 500), (1.0, 500, 12), (1.0, 5, 5), (1e-12, 70, 70)]
    )
    def test_reset_block_at_its_limits(self, rate: float, horizon: int, block: int) -> None:
        assert query_rules.reset_block(rate, horizon) == block


class TestAcquisition:
    @quick
    @given(posteriors, st.floats(0.0, 10.0))
    def test_upper_confidence_equals_the_formula_to_ten_digits(
        self, posterior: tuple[Floats, Floats], beta: float
    ) -> None:
        mean, variance = posterior
        slow = [m + math.sqrt(beta * v) for m, v in zip(mean, variance, strict=True)]
        np.testing.assert_allclose(query_rules.upper_confidence(mean, variance, beta), slow, rtol=0, atol=6e-11)

    def test_rounding_noise_does_not_break_a_tie(self) -> None:
        mean = np.array([0.3, 0.3 + 1e-13, 0.3 - 1e-13])
        ucb = query_rules.upper_confidence(mean, np.ones(3), 2.0)
        assert query_rules.choose(ucb) == 0
        assert query_rules.local_maxima(ucb).tolist() == [2]  # one plateau

    @examples(5, thorough=15)
    @given(posteriors)
    def test_improvements_equal_their_integrals(self, posterior: tuple[Floats, Floats]) -> None:
        mean, variance = posterior
        best = mean.max()
        for m, v, probability, improvement in zip(
            mean,
            variance,
            query_rules.probability_of_improvement(mean, variance),
            query_rules.expected_improvement(mean, variance),
            strict=True,
        ):
            normal = norm(m, math.sqrt(v))
            assert probability == pytest.approx(normal.sf(best), rel=1e-9)
            top = max(best, m + 12.0 * math.sqrt(v))
            want = quad(lambda f, b=normal: (f - best) * b.pdf(f), best, top, epsabs=1e-13)[0]
            assert improvement == pytest.approx(want, rel=1e-6, abs=1e-11)

    def test_far_points_have_no_improvement(self) -> None:
        improvement = query_rules.expected_improvement(np.array([0.0, -1e3, -30.0]), np.array([1.0, 1.0, 1.0]))
        assert improvement[1] == 0.0
        assert 0.0 < improvement[2] < 1e-190

    @quick
    @given(posteriors)
    def test_probability_of_improvement_is_greedy(self, posterior: tuple[Floats, Floats]) -> None:
        mean, variance = posterior
        chosen = query_rules.choose(query_rules.probability_of_improvement(mean, variance))
        tied = 3e-10 * math.sqrt(
            variance.max()
        )  # at this distance from the best mean, probabilities are equal to ten digits
        assert mean[chosen] >= mean.max() - tied


def is_local_maximum(u: Floats, i: int) -> bool:
    return (i == 0 or u[i] >= u[i - 1]) and (i == u.size - 1 or u[i] > u[i + 1])


def kappa_equivalent(beta: float) -> float:
    """Return the confidence at which the kappa rule equals LCB-UCB for two equal standard deviations."""
    return float(norm.cdf(math.sqrt(2.0 * beta)))


class TestCompetitors:
    @quick
    @given(lines)
    def test_local_maxima_match_their_definition(self, u: Floats) -> None:
        assert query_rules.local_maxima(u).tolist() == [i for i in range(u.size) if is_local_maximum(u, i)]

    @pytest.mark.parametrize(
        ("u", "peaks"),
        [
            ([1.0], [0]),
            ([2.0, 1.0, 3.0], [0, 2]),
            ([0.0, 1.0, 0.0], [1]),
            ([0.0, 1.0, 1.0, 0.0], [2]),
            ([1.0, 1.0, 1.0], [2]),
            ([3.0, 2.0, 2.0, 1.0], [0, 2]),
        ],
    )
    def test_ends_and_plateaus(self, u: list[float], peaks: list[int]) -> None:
        assert query_rules.local_maxima(np.array(u)).tolist() == peaks

    @quick
    @given(lines)
    def test_the_chosen_point_is_not_its_own_competitor(self, u: Floats) -> None:
        chosen = query_rules.choose(u)
        others = query_rules.other_maxima(u, chosen)
        assert chosen not in others
        assert set(others) | {chosen} >= set(query_rules.local_maxima(u))

    @pytest.mark.parametrize(("n_arms", "chosen", "others"), [(1, 0, []), (3, 0, [1, 2]), (3, 2, [0, 1])])
    def test_other_arms(self, n_arms: int, chosen: int, others: list[int]) -> None:
        assert query_rules.other_arms(n_arms, chosen).tolist() == others

    def test_along_one_number_they_are_the_other_local_maxima(self) -> None:
        rng = np.random.default_rng(0)
        shuffled = rng.permutation(40)
        points = np.column_stack([np.linspace(0.0, 1.0, 40)[shuffled], np.full(40, 0.5)])
        competitors = query_rules.Competitors(points, np.array([0, 1]))
        for _ in range(20):
            height = rng.normal(size=40)
            chosen = int(np.argmax(height[shuffled]))
            peaks = [p for p in query_rules.local_maxima(height) if p != shuffled[chosen]]
            assert sorted(shuffled[competitors.of(chosen, height[shuffled])]) == sorted(peaks)

    def test_on_a_grid_they_are_the_other_modes_within_equal_labels(self) -> None:
        a, b, label = (column.ravel() for column in np.meshgrid(np.arange(1, 22), np.arange(1, 22), [0, 1]))
        hills = np.exp(-((a - 6) ** 2 + (b - 6) ** 2) / 9) + 0.9 * np.exp(-((a - 16) ** 2 + (b - 15) ** 2) / 9)
        height = np.where(label == 0, hills, 0.5 * np.exp(-((a - 11) ** 2 + (b - 11) ** 2) / 30))
        competitors = query_rules.Competitors(np.column_stack([a / 21, b / 21, label / 2]), np.array([0, 1]))
        chosen = int(np.argmax(height))
        assert (a[chosen], b[chosen], label[chosen]) == (6, 6, 0)
        others = competitors.of(chosen, height)
        assert {(a[i], b[i], label[i]) for i in others} == {(16, 15, 0), (11, 11, 1)}

    def test_if_only_labels_vary_all_others_compete(self) -> None:
        points = np.column_stack([np.full(3, 0.5), [0.2, 0.5, 0.8]])
        assert query_rules.Competitors(points, np.array([0])).of(1, np.array([0.0, 1.0, 0.0])).tolist() == [0, 2]

    def test_a_single_point_has_no_competitor(self) -> None:
        assert query_rules.Competitors(np.zeros((1, 1)), np.array([0])).of(0, np.zeros(1)).size == 0


class TestQueryRules:
    @quick
    @given(posteriors)
    def test_probability_is_that_of_a_normal_difference(self, posterior: tuple[Floats, Floats]) -> None:
        mean, variance = posterior
        others = query_rules.other_arms(mean.size, 0)
        got = query_rules.probability_better(mean, variance, 0, others)
        want = [norm(mean[0] - mean[i], math.sqrt(variance[0] + variance[i])).sf(0.0) for i in others]
        np.testing.assert_allclose(got, want, rtol=1e-9)

    def test_exact_covariance_is_used(self) -> None:
        mean, variance = np.array([1.0, 0.5, 0.4]), np.array([1.0, 4.0, 1.0])
        covariance = np.array([1.0, 1.2, -0.5])  # of point 0 with all
        got = query_rules.probability_better(mean, variance, 0, np.array([1, 2]), covariance)
        want = norm.cdf([0.5 / math.sqrt(1.0 + 4.0 - 2.4), 0.6 / math.sqrt(1.0 + 1.0 + 1.0)])
        np.testing.assert_allclose(got, want, rtol=1e-12)

    @quick
    @given(posteriors)
    def test_without_covariance_values_are_independent(self, posterior: tuple[Floats, Floats]) -> None:
        mean, variance = posterior
        others = query_rules.other_arms(mean.size, 0)
        exact = query_rules.probability_better(mean, variance, 0, others, np.zeros(mean.size))
        np.testing.assert_array_equal(exact, query_rules.probability_better(mean, variance, 0, others))

    def test_identical_points_have_probability_one_half(self) -> None:
        mean, variance = np.full(2, 0.3), np.ones(2)
        assert query_rules.probability_better(mean, variance, 0, np.array([1]), np.ones(2)).tolist() == [0.5]

    @quick
    @given(posteriors, st.floats(0.01, 8.0))
    def test_bounds_skip_whenever_the_equivalent_confidence_does(
        self, posterior: tuple[Floats, Floats], beta: float
    ) -> None:
        mean, variance = posterior
        chosen = query_rules.choose(query_rules.upper_confidence(mean, variance, beta))
        others = query_rules.other_arms(mean.size, chosen)
        probability = query_rules.probability_better(mean, variance, chosen, others)
        confidence = kappa_equivalent(beta)
        if not query_rules.query_by_confidence(probability, confidence):
            assert not query_rules.query_by_bounds(mean, variance, chosen, others, beta * (1.0 - 1e-9))

    @quick
    @given(st.floats(0.0, 3.0), st.floats(0.01, 3.0), st.floats(0.01, 5.0))
    def test_with_equal_deviations_both_rules_agree(self, difference: float, sigma: float, beta: float) -> None:
        assume(abs(difference - 2.0 * math.sqrt(beta) * sigma) > 1e-6)
        mean, variance, others = np.array([difference, 0.0]), np.full(2, sigma**2), np.array([1])
        probability = query_rules.probability_better(mean, variance, 0, others)
        confidence = kappa_equivalent(beta)
        assert query_rules.query_by_confidence(probability, confidence) == query_rules.query_by_bounds(
            mean, variance, 0, others, beta
        )

    @quick
    @given(arrays(np.float64, st.integers(1, 6), elements=st.floats(0.0, 1.0)), st.floats(0.01, 1.0))
    def test_one_doubtful_competitor_is_enough(self, probability: Floats, confidence: float) -> None:
        assert query_rules.query_by_confidence(probability, confidence) == any(p < confidence for p in probability)

    def test_at_confidence_one_half_the_best_mean_is_not_validated(self) -> None:
        mean, variance = np.array([0.1, 0.0]), np.array([9.0, 9.0])
        probability = query_rules.probability_better(mean, variance, 0, np.array([1]))
        assert not query_rules.query_by_confidence(probability, 0.5)

    def test_without_competitors_both_rules_query(self) -> None:
        none = np.empty(0, dtype=np.intp)
        mean, variance = np.array([5.0, 0.0]), np.full(2, 1e-6)
        probability = query_rules.probability_better(mean, variance, 0, none)
        assert query_rules.query_by_confidence(probability, 0.9)
        assert query_rules.query_by_bounds(mean, variance, 0, none, 1.0)

    def test_chance_queries_with_its_probability(self) -> None:
        rng = np.random.default_rng(0)
        queries = sum(query_rules.query_by_chance(0.2, rng) for _ in range(4000))
        assert abs(queries - 800) < 4.0 * math.sqrt(4000 * 0.2 * 0.8)
        assert not any(query_rules.query_by_chance(0.0, rng) for _ in range(100))
        assert all(query_rules.query_by_chance(1.0, rng) for _ in range(100))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: query_rules.beta_schedule(0), "round=0 must be at least 1"),
        (lambda: query_rules.reset_block(-0.1, 10), "forgetting_rate=-0.1"),
        (lambda: query_rules.reset_block(0.1, 0), "horizon_rounds=0"),
        (lambda: query_rules.upper_confidence(np.zeros(1), np.ones(1), -1.0), "beta=-1.0 must be at least 0"),
        (lambda: query_rules.local_maxima(np.empty(0)), "at least one point"),
        (lambda: query_rules.other_arms(3, 3), r"chosen=3 must be an arm in 0..2"),
        (lambda: query_rules.query_by_confidence(np.array([0.5]), 0.0), r"confidence=0.0 must be in \(0, 1\]"),
        (lambda: query_rules.query_by_chance(1.1, np.random.default_rng(0)), r"probability=1.1 must be in \[0, 1\]"),
    ],
)
def test_inputs_are_checked(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
