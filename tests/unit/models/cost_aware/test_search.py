"""The search over a mixed space: gradients, improvement, feasibility, and the properties of the selection rules."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.reproducible import reaches
from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.models.cost_aware.candidate_search import (
    STARTS,
    Surface,
    choose_cheap_and_far,
    climb,
    find_cei,
    find_ei_alpha,
    slide,
)
from shoestring.models.cost_aware.trade_off import cei_threshold, choose_cei, is_efficient
from shoestring.models.gp.kernels import kernel_for
from shoestring.models.gp.posterior import condition
from shoestring.policies.config_table import draw_candidates

SPACE = Space(
    {
        "x": Float(0.0, 1.0),
        "z": Float(1e-3, 1.0, log=True),
        "n": Int(1, 5),
        "c": Choice(["a", "b"]),
        "y": Float(0.0, 1.0, when={"c": "b"}),
    }
)


def surface(seed: int, scale: float = 1.0) -> Surface:
    """Return a posterior on a few random points, and a smooth cost."""
    encoding = Encoding(SPACE)
    rng = np.random.default_rng(seed)
    x = encoding.features(encoding.snap(rng.random((8, SPACE.dims))))
    kernel = kernel_for(encoding)
    theta = np.concatenate([[0.0], np.log(rng.uniform(0.3, 1.5, kernel.n_parameters - 1)), [np.log(1e-3)]])
    gp = condition(kernel, theta, x, rng.normal(size=8))
    weights = rng.normal(size=SPACE.dims)

    def log_cost(points: Points) -> Any:
        return np.log(scale) + points.cube @ weights + 0.5 * np.sin(3.0 * points.cube[:, 0])

    return Surface(encoding, gp, float(gp.predict_observed().min()), log_cost)


def pool(seed: int, count: int = 60) -> Points:
    encoding = Encoding(SPACE)
    return draw_candidates(encoding, np.full((1, SPACE.dims), 0.3), count, seed, np.random.default_rng(seed))


def anything(points: Points) -> Any:
    return np.ones(len(points), dtype=bool)


@examples(10, thorough=30)
@given(st.integers(0, 10**6))
def test_gradients_equal_finite_differences(seed: int) -> None:
    here = surface(seed)
    points = pool(seed, 10).take(np.arange(10))
    points = Points(np.clip(points.cube, 1e-3, 1 - 1e-3), points.active)
    free = here.encoding.free(points)
    for value_of, index in ((here.log_ei_gradient, 0), (here.log_cost_gradient, 1)):
        value, gradient = value_of(points)
        np.testing.assert_allclose(value, here.scores(points)[index], rtol=1e-9, atol=1e-9)
        for j in range(SPACE.dims):
            step = np.zeros(SPACE.dims)
            step[j] = 1e-6
            rise = (
                here.scores(Points(points.cube + step, points.active))[index]
                - here.scores(Points(points.cube - step, points.active))[index]
            ) / 2e-6
            np.testing.assert_allclose(gradient[free[:, j], j], rise[free[:, j]], rtol=1e-4, atol=1e-4)


@examples(10, thorough=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]))
def test_climbing_never_ends_below_the_best_candidate(seed: int, alpha: float) -> None:
    here, from_these = surface(seed), pool(seed)
    log_ei, log_cost = here.scores(from_these)
    found = find_ei_alpha(here, from_these, alpha, is_allowed=anything, refine=True)
    score = found.log_ei - alpha * found.log_cost
    assert score.max() >= (log_ei - alpha * log_cost).max()
    assert reaches(score[found.index], score.max())
    # what cannot move did not
    start = from_these.take(np.arange(STARTS))
    end = climb(here, start, alpha)
    free = here.encoding.free(start)
    np.testing.assert_array_equal(end.cube[~free], start.cube[~free])
    assert np.all((end.cube >= 0) & (end.cube <= 1))


@examples(10, thorough=30)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0]))
def test_cei_is_feasible_on_the_front_and_no_more_expensive_than_without_refinement(seed: int, slack: float) -> None:
    here, from_these = surface(seed), pool(seed)
    found = find_cei(here, from_these, slack, is_allowed=anything, refine=True)
    assert found.threshold is not None
    assert reaches(found.log_ei[found.index], found.threshold)
    assert found.threshold == pytest.approx(
        cei_threshold(float(found.log_ei.max()), slack), rel=1e-12
    )  # one last digit
    assert is_efficient(found.log_ei, found.log_cost, found.index)
    if slack == 0.0:
        assert reaches(found.log_ei[found.index], found.log_ei.max())
    log_ei, log_cost = here.scores(from_these)
    admitted = log_ei >= found.threshold
    assert reaches(np.min(log_cost[admitted], initial=np.inf), found.log_cost[found.index])


@examples(10, thorough=30)
@given(st.integers(0, 10**6))
def test_sliding_keeps_the_threshold(seed: int) -> None:
    here, from_these = surface(seed), pool(seed)
    log_ei, _ = here.scores(from_these)
    threshold = cei_threshold(float(log_ei.max()), 0.5)
    starts = from_these.take(np.flatnonzero(log_ei >= threshold)[:STARTS])
    ends = slide(here, starts, threshold)
    assert np.all(reaches(here.scores(ends)[0], threshold))
    np.testing.assert_array_equal(ends.cube[~here.encoding.free(starts)], starts.cube[~here.encoding.free(starts)])


def test_sliding_finds_the_cheap_edge_of_a_wide_peak() -> None:
    space = Space({"x": Float(0, 1), "z": Float(0, 1)})
    encoding = Encoding(space)
    gp = condition(
        kernel_for(encoding, "se"),
        np.log([1.0, 0.5, 0.5, 1e-6]),
        np.array([[0.5, 0.5], [0.0, 0.0]]),
        np.array([-1.0, 1.0]),
        standardise=False,
    )
    here = Surface(encoding, gp, -1.0, lambda points: points.cube[:, 0])
    from_these = draw_candidates(encoding, np.full((1, 2), 0.5), 500, 1, np.random.default_rng(0))
    scanned = find_cei(here, from_these, 0.5, is_allowed=anything, refine=False)
    refined = find_cei(here, from_these, 0.5, is_allowed=anything, refine=True)
    grid = np.stack(np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401)), axis=-1).reshape(-1, 2)
    everywhere = Points(grid, np.empty((len(grid), 0), dtype=bool))
    log_ei, log_cost = here.scores(everywhere)
    best = log_cost[choose_cei(log_ei, log_cost, 0.5)]
    assert scanned.log_cost[scanned.index] > best
    assert refined.log_cost[refined.index] == pytest.approx(best, abs=0.01)


@examples(7, thorough=20)
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_the_unit_of_cost_makes_no_difference(seed: int, scale: float) -> None:
    from_these = pool(seed)
    for find, number in ((find_cei, 0.2), (find_ei_alpha, 0.5)):
        one = find(surface(seed), from_these, number, is_allowed=anything, refine=False)
        other = find(surface(seed, scale), from_these, number, is_allowed=anything, refine=False)
        assert one.index == other.index


@examples(7, thorough=20)
@given(st.integers(0, 10**6))
def test_cost_never_rises_with_slack_or_exponent(seed: int) -> None:
    here, from_these = surface(seed), pool(seed)
    for find, numbers in ((find_cei, (0.0, 0.1, 0.3, 0.6, 1.0)), (find_ei_alpha, (0.0, 0.1, 0.5, 1.0, 3.0))):
        found = [find(here, from_these, number, is_allowed=anything, refine=False) for number in numbers]
        costs = [f.log_cost[f.index] for f in found]
        assert all(reaches(a, b) for a, b in pairwise(costs))


def test_points_that_are_not_allowed_are_not_found() -> None:
    here, from_these = surface(3), pool(3)
    found = find_cei(here, from_these, 0.3, is_allowed=lambda points: np.zeros(len(points), dtype=bool), refine=True)
    assert len(found.points) == len(from_these)


@given(st.integers(0, 10**6), st.integers(1, 30))
def test_the_most_expensive_and_the_closest_are_removed_in_turn(seed: int, m: int) -> None:
    rng = np.random.default_rng(seed)
    x, tried, log_cost = rng.random((m, 2)), rng.random((3, 2)), rng.normal(size=m)
    left = list(range(m))
    while len(left) > 1:
        if (m - len(left)) % 2 == 0:
            left.remove(max(left, key=lambda i: log_cost[i]))
        else:
            left.remove(min(left, key=lambda i: float(np.linalg.norm(tried - x[i], axis=1).min())))
    assert choose_cheap_and_far(x, tried, log_cost) == left[0]
