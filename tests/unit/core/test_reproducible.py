"""Choosing among scores takes the first of those that are equal to the best; `polish` moves to the minimum itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shoestring.core.deciding.reproducible import (
    LOG_SPREAD,
    ROUNDING,
    TOLERANCE,
    Best,
    are_best,
    find_best,
    find_best_of_rows,
    measure_tolerance,
    polish,
    reaches,
    round_result,
    sort_best_first,
)
from shoestring.core.values.arrays import Floats, first_true, invert

NUMBERS = st.floats(-1e6, 1e6, allow_subnormal=False)
SCORES = arrays(
    np.float64, st.integers(1, 30), elements=st.one_of(NUMBERS, st.sampled_from([0.0, 1.0, np.inf, -np.inf]))
)
BEST = st.sampled_from(["highest", "lowest"])


def plain_best(scores: Floats, best_is: Best) -> int:
    """Return the best index by the rule as the docstring states it."""
    sign = 1.0 if best_is == "highest" else -1.0
    best = max(sign * scores)
    tolerance = measure_tolerance(scores, best_is)
    return next(i for i, score in enumerate(scores) if sign * score >= best - tolerance)


@given(SCORES, BEST)
def test_the_first_of_equal_scores_is_taken(scores: Floats, best_is: Best) -> None:
    assert find_best(scores, best_is) == plain_best(scores, best_is)
    assert find_best_of_rows(scores[None], best_is).tolist() == [plain_best(scores, best_is)]


@given(SCORES, BEST)
def test_exact_scores_are_compared_exactly(scores: Floats, best_is: Best) -> None:
    plain = np.argmax(scores) if best_is == "highest" else np.argmin(scores)
    assert find_best(scores, best_is, exact=True) == plain
    order = np.argsort(-scores if best_is == "highest" else scores, kind="stable")
    assert sort_best_first(scores, best_is, exact=True).tolist() == order.tolist()


@given(SCORES, BEST, st.integers(0, 40))
def test_sorting_begins_with_the_best_and_keeps_equal_scores_in_order(
    scores: Floats, best_is: Best, count: int
) -> None:
    order = sort_best_first(scores, best_is)
    assert sorted(order.tolist()) == list(range(scores.size))
    assert order[0] == find_best(scores, best_is)
    assert sort_best_first(scores, best_is, count).tolist() == order[:count].tolist()
    # a later score is never better by more than the tolerance
    heights = (scores if best_is == "highest" else -scores)[order]
    tolerance = measure_tolerance(scores, best_is)
    lowest_so_far = np.minimum.accumulate(heights)
    assert np.all(heights[1:] <= lowest_so_far[:-1] + tolerance)


@given(arrays(np.float64, st.integers(1, 20), elements=st.floats(-1.0, 1.0)), st.integers(0, 2**32 - 1), BEST)
def test_rounding_errors_change_nothing_unless_a_score_is_at_the_edge_of_the_tolerance(
    scores: Floats, seed: int, best_is: Best
) -> None:
    noise = np.random.default_rng(seed).uniform(-1.0, 1.0, scores.size) * 1e-13
    sign = 1.0 if best_is == "highest" else -1.0
    gaps = (sign * scores).max() - sign * scores
    at_the_edge = np.abs(gaps - measure_tolerance(scores, best_is)) < 1e-12
    if not at_the_edge.any():
        assert find_best(scores + noise, best_is) == find_best(scores, best_is)


def test_scores_that_differ_by_rounding_are_equal() -> None:
    assert find_best(np.array([0.1 + 0.2, 0.3, 0.0]), "highest") == 0
    assert find_best(np.array([0.3, 0.1 + 0.2, 0.0]), "highest") == 0
    assert find_best(np.array([0.3, 0.3 + 1e-6, 0.0]), "highest") == 1
    assert find_best(np.full(4, 1.0 / 3.0), "lowest") == 0


def test_the_spread_is_given_or_that_of_the_finite_scores() -> None:
    scores = np.array([-5000.0, -1.0, -1.0 - 1e-6, -np.inf])
    assert measure_tolerance(scores, "highest") == pytest.approx(TOLERANCE * 4999.0 + ROUNDING * 1.0)
    assert measure_tolerance(scores, "lowest") == pytest.approx(TOLERANCE * 4999.0 + ROUNDING * 5000.0)
    assert measure_tolerance(scores, "highest", spread=LOG_SPREAD) == pytest.approx(TOLERANCE + ROUNDING)
    assert are_best(scores, "highest").tolist() == [False, True, True, False]
    assert are_best(scores, "highest", spread=LOG_SPREAD).tolist() == [
        False,
        True,
        False,
        False,
    ]  # of logarithms, where a difference of 1e-6 matters
    assert find_best(np.array([np.inf, 3.0, np.inf]), "highest") == 0
    assert find_best(np.array([-np.inf, -np.inf]), "highest") == 0


@pytest.mark.parametrize("exact", [False, True])
def test_nan_is_the_worst_score(exact: bool) -> None:
    scores = np.array([np.nan, 2.0, 1.0, np.nan])
    assert find_best(scores, "highest", exact=exact) == 1
    assert find_best(scores, "lowest", exact=exact) == 2
    assert sort_best_first(scores, "lowest", exact=exact).tolist() == [2, 1, 0, 3]
    assert find_best(np.full(2, np.nan), "highest", exact=exact) == 0


@given(SCORES, st.sampled_from([1e-9, 1.0, 100.0]))
def test_the_chosen_score_reaches_the_best(scores: Floats, spread: float) -> None:
    """`find_best` and `reaches` agree, however bad the last candidate is."""
    best = scores.max()
    flags = are_best(scores, "highest", spread=spread)
    if np.isfinite(best):
        assert flags.tolist() == reaches(scores, best, spread=spread).tolist()
    assert reaches(scores[find_best(scores, "highest", spread=spread)], best, spread=spread)


@given(arrays(np.float64, (4, 7), elements=NUMBERS), BEST)
def test_each_row_is_judged_by_itself(scores: Floats, best_is: Best) -> None:
    assert find_best_of_rows(scores, best_is).tolist() == [find_best(row, best_is) for row in scores]


def test_a_number_equal_to_the_limit_reaches_it() -> None:
    assert reaches(0.9, 0.9)
    assert reaches(0.9 - 1e-12, 0.9)
    assert not reaches(0.9 - 1e-6, 0.9)
    assert reaches(np.array([1.0, 1.0 - 1e-9, 0.5]), 1.0).tolist() == [True, True, False]
    assert reaches(1e6, np.inf).tolist() is False
    assert reaches(np.inf, np.inf)
    assert reaches(-np.inf, -np.inf)
    assert reaches(1e-9, 1.5e-9)  # in units of 1
    assert not reaches(1e-9, 1.5e-9, spread=1e-9)


def test_the_result_of_a_search_is_rounded() -> None:
    assert round_result(np.array([0.12345678, -1e-9, 1.0]), 4).tolist() == [0.1235, 0.0, 1.0]
    assert np.signbit(round_result(np.array([-1e-9]), 4)).tolist() == [False]


@given(st.permutations(list(range(9))))
def test_an_inverted_permutation_has_the_position_of_each_index(order: list[int]) -> None:
    assert invert(np.array(order)).tolist() == [order.index(i) for i in range(9)]


def test_the_first_true_flag() -> None:
    assert first_true(np.array([[False, True, True], [False, False, False]])).tolist() == [1, 0]


# the result of a search ----------------------------------------------------------------------------------------------


WIDE = np.full(3, 10.0)


def bowl(seed: int) -> tuple[Floats, Floats]:
    """Return a centre (3,) and a positive definite matrix (3, 3) with curvatures between 0.5 and 4."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return rng.uniform(-1.0, 1.0, 3), (axes * rng.uniform(0.5, 4.0, 3)) @ axes.T


@given(st.integers(0, 10**6), st.floats(0.95, 1.05))
def test_polish_reaches_the_minimum_with_an_approximate_curvature(seed: int, factor: float) -> None:
    """The gradient is A d + d^3, where d is the distance from the centre; its derivative at the centre is A."""
    centre, a = bowl(seed)
    start = centre + np.random.default_rng(seed + 1).uniform(-1e-3, 1e-3, 3)
    found = polish(start, lambda p: a @ (p - centre) + (p - centre) ** 3, lambda _: factor * a, -WIDE, WIDE, 6)
    np.testing.assert_allclose(found, centre, atol=1e-9)


@given(st.integers(0, 10**6))
def test_polish_reaches_the_minimum_within_the_box(seed: int) -> None:
    centre, a = bowl(seed)
    lowest = centre + np.array([0.1, -5.0, -5.0])  # the first number cannot reach its best value
    start = lowest + np.array([0.0, 5.1, 4.9])

    def gradient(point: Floats) -> Floats:
        return a @ (point - centre)

    found = polish(start, gradient, lambda _: a, lowest, WIDE, 6)
    slope = gradient(found)
    assert np.all(found >= lowest)
    np.testing.assert_allclose(slope[found > lowest], 0.0, atol=1e-12)
    assert np.all(slope[found == lowest] >= 0.0)


def test_polish_stays_where_newton_steps_are_not_valid() -> None:
    start = np.array([1.0, 1.0])
    box = -np.full(2, 9.0), np.full(2, 9.0)
    flat = polish(start, lambda p: np.ones(2), lambda _: np.zeros((2, 2)), *box, 4)
    far = polish(start, lambda p: np.ones(2), lambda _: np.eye(2), *box, 4)
    broken = polish(start, lambda p: np.array([np.nan, 0.0]), lambda _: np.full((2, 2), np.nan), *box, 4)
    corner = polish(start, lambda p: np.ones(2), lambda _: np.eye(2), start, box[1], 4)
    for found in (flat, far, broken, corner):
        np.testing.assert_array_equal(found, start)
