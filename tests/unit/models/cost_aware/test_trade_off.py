"""The rules that trade improvement against cost, compared with brute force."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.cost_aware.trade_off import (
    ImpliedAlpha,
    choose_cei,
    choose_ei_alpha,
    cooling_exponent,
    find_implied_alpha,
    pareto_front,
)

Array = NDArray[np.float64]
candidates = st.lists(
    st.tuples(st.integers(-6, 6), st.integers(-5, 5)), min_size=1, max_size=25
)  # few values, many ties


def split(rows: list[tuple[int, int]]) -> tuple[Array, Array]:
    log_ei, log_cost = np.array(rows, dtype=float).T / 4
    return np.ascontiguousarray(log_ei), np.ascontiguousarray(log_cost)


def brute_front(log_ei: Array, log_cost: Array) -> list[int]:
    pairs = list(zip(log_ei.tolist(), log_cost.tolist(), strict=True))
    return [
        i for i, (e, c) in enumerate(pairs) if not any(e2 >= e and c2 <= c and (e2 > e or c2 < c) for e2, c2 in pairs)
    ]


@examples(34, thorough=100)
@given(candidates)
def test_the_front_has_the_points_that_no_other_dominates(rows: list[tuple[int, int]]) -> None:
    log_ei, log_cost = split(rows)
    assert pareto_front(log_ei, log_cost).tolist() == brute_front(log_ei, log_cost)
    log_ei[log_ei < 0] = -np.inf
    assert pareto_front(log_ei, log_cost).tolist() == brute_front(log_ei, log_cost)


@examples(34, thorough=100)
@given(candidates, st.sampled_from([0.0, 0.05, 0.3, 0.6, 0.9, 1.0]))
def test_cei_is_the_cheapest_admissible_point(rows: list[tuple[int, int]], slack: float) -> None:
    log_ei, log_cost = split(rows)
    best = math.exp(log_ei.max())
    admissible = [i for i in range(len(rows)) if math.exp(log_ei[i]) >= (1 - slack) * best * (1 - 1e-12)]
    want = min(admissible, key=lambda i: (log_cost[i], -log_ei[i], i))
    assert choose_cei(log_ei, log_cost, slack) == want
    assert want in brute_front(log_ei, log_cost)


@examples(20, thorough=60)
@given(candidates)
def test_every_front_point_is_reached_by_some_slack(rows: list[tuple[int, int]]) -> None:
    log_ei, log_cost = split(rows)
    choices = set()
    for i in pareto_front(log_ei, log_cost):
        chosen = choose_cei(log_ei, log_cost, float(-np.expm1(log_ei[i] - log_ei.max())))
        assert (log_ei[chosen], log_cost[chosen]) == (log_ei[i], log_cost[i])
        choices.add(chosen)
    assert choose_cei(log_ei, log_cost, 0.0) in choices


@examples(20, thorough=60)
@given(candidates, st.lists(st.floats(0, 4), min_size=2, max_size=6))
def test_choices_get_cheaper_as_cost_counts_more(rows: list[tuple[int, int]], alphas: list[float]) -> None:
    log_ei, log_cost = split(rows)
    by_alpha = [log_cost[choose_ei_alpha(log_ei, log_cost, a)] for a in sorted(alphas)]
    by_slack = [log_cost[choose_cei(log_ei, log_cost, a / 4)] for a in sorted(alphas)]
    assert all(later <= earlier + 1e-12 for earlier, later in pairwise(by_alpha))
    assert all(later <= earlier for earlier, later in pairwise(by_slack))


@examples(14, thorough=40)
@given(st.integers(0, 10**6), st.floats(-20, 20), st.floats(0, 3), st.floats(0, 1))
def test_the_unit_of_cost_does_not_matter(seed: int, log_unit: float, alpha: float, slack: float) -> None:
    log_ei, log_cost = np.random.default_rng(seed).standard_normal((2, 50))
    other = log_cost + log_unit
    assert choose_cei(log_ei, log_cost, slack) == choose_cei(log_ei, other, slack)
    assert choose_ei_alpha(log_ei, log_cost, alpha) == choose_ei_alpha(log_ei, other, alpha)
    assert pareto_front(log_ei, log_cost).tolist() == pareto_front(log_ei, other).tolist()
    chosen = choose_cei(log_ei, log_cost, slack)
    first, second = find_implied_alpha(log_ei, log_cost, chosen), find_implied_alpha(log_ei, other, chosen)
    assert first.supported == second.supported
    np.testing.assert_allclose(second.alpha, first.alpha, rtol=1e-9, atol=1e-12)


@examples(27, thorough=80)
@given(candidates)
def test_implied_alpha_against_every_crossing(rows: list[tuple[int, int]]) -> None:
    """The gap to the best score is convex and piecewise linear in alpha: its minimum is at 0 or where two scores cross."""
    log_ei, log_cost = split(rows)
    differences = log_cost[:, None] - log_cost[None, :]
    slopes = (log_ei[:, None] - log_ei[None, :])[differences > 0] / differences[differences > 0]
    alphas = np.concatenate([[0.0], slopes[slopes > 0], [1e3]])
    scores = log_ei[:, None] - alphas * log_cost[:, None]  # (m, n_alphas)
    for i in range(len(rows)):
        gaps = (scores - scores[i]).max(axis=0)
        implied = find_implied_alpha(log_ei, log_cost, i)
        assert implied.supported == (gaps.min() <= 1e-9)
        np.testing.assert_allclose(implied.gap, gaps.min() if not implied.supported else 0.0, rtol=1e-9, atol=1e-9)
        score = log_ei - implied.alpha * log_cost
        np.testing.assert_allclose(score.max() - score[i], implied.gap, atol=1e-9)
        if implied.supported:
            for alpha in (implied.low, min(implied.high, 1e3)):
                score = log_ei - alpha * log_cost
                assert score[i] >= score.max() - 1e-9


def test_points_without_improvement() -> None:
    nothing = np.full(3, -np.inf)
    log_cost = np.array([1.0, 0.0, 2.0])
    assert choose_ei_alpha(nothing, log_cost, 0.0) == choose_ei_alpha(nothing, log_cost, 1.0) == 1
    assert choose_cei(nothing, log_cost, 0.1) == 1
    scores = np.array([0.0, -np.inf, 2.0, 0.5])
    log_cost = np.array([1.0, 0.0, 2.0, 1.5])
    assert choose_cei(scores, log_cost, 0.999) == 0
    assert choose_cei(scores, log_cost, 1.0) == 1
    implied = find_implied_alpha(scores, log_cost, 3)
    assert not implied.supported
    np.testing.assert_allclose([implied.alpha, implied.gap], [2.0, 0.5])
    with pytest.raises(ValueError, match="without improvement there is no alpha"):
        find_implied_alpha(scores, log_cost, 1)


def test_one_candidate() -> None:
    one, cost = np.array([-5.0]), np.array([3.0])
    assert choose_ei_alpha(one, cost, 0.0) == choose_cei(one, cost, 0.3) == 0
    assert pareto_front(one, cost).tolist() == [0]
    assert find_implied_alpha(one, cost, 0) == ImpliedAlpha(0.0, math.inf, True, 0.0, 0.0)


def test_underflowing_ei_is_still_ranked() -> None:
    log_ei = np.array([-5000.0, -5000.05, -9000.0])
    log_cost = np.array([2.0, 1.0, 0.0])
    assert choose_cei(log_ei, log_cost, 0.1) == 1
    assert choose_ei_alpha(log_ei, log_cost, 1.0) == 1


def test_the_cooling_exponent_is_0_when_the_budget_is_spent() -> None:
    assert cooling_exponent(10.0, 10.0, 10.0) == 0.0
    assert cooling_exponent(10.0, 12.0, 12.0) == 0.0
    assert cooling_exponent(10.0, 2.0, 1.0) == 1.0


def test_wrong_arguments_are_errors() -> None:
    a, b = np.zeros(2), np.zeros(2)
    with pytest.raises(ValueError, match=r"alpha=-1.0 must be >= 0"):
        choose_ei_alpha(a, b, -1.0)
    with pytest.raises(ValueError, match=r"slack=1.5 must lie in 0..1"):
        choose_cei(a, b, 1.5)
    with pytest.raises(ValueError, match="one number for each candidate"):
        choose_ei_alpha(a, np.zeros(3), 0.0)
    with pytest.raises(ValueError, match="one number for each candidate"):
        pareto_front(np.empty(0), np.empty(0))
    with pytest.raises(ValueError, match="floor the costs above 0"):
        choose_ei_alpha(np.zeros(2), np.array([0.0, -np.inf]), 0.0)
    with pytest.raises(ValueError, match="no NaN"):
        choose_cei(np.array([0.0, np.nan]), np.zeros(2), 0.5)
