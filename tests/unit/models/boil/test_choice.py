"""Cost plane, improvement per cost, and the search over configs and lengths, against slow references."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from shoestring.models.boil.choice import (
    ChosenPoint,
    CostPlane,
    Rule,
    Tradeoff,
    choose,
    find_largest_mean,
    log_ratio,
    log_softplus_ratio,
)
from shoestring.models.boil.score_process import ProcessParameters, TrainingLengths, product_kernel
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.posterior import GP, condition

Array = NDArray[np.float64]
LENGTHS = TrainingLengths(5, 20)
FINE = TrainingLengths(1, 1_000_001)  # so many steps that rounding has no effect


def model(seed: int, n: int = 10, dims: int = 2, **parameters: float) -> tuple[GP, CostPlane]:
    """Return a model of trials whose score grows with their length to a height that depends on x, and of their costs."""
    rng = np.random.default_rng(seed)
    x, steps = rng.random((n, dims)), rng.integers(LENGTHS.min_steps, LENGTHS.max_steps + 1, n)
    scores = np.exp(-2.0 * ((x - 0.6) ** 2).sum(axis=1)) * (1.0 - np.exp(-steps / 6.0)) + 0.02 * rng.random(n)
    z = np.column_stack([x, [LENGTHS.time_of(int(s)) for s in steps]])
    theta = ProcessParameters(**parameters).theta(dims)
    gp = condition(product_kernel(dims), theta, z, scores, mean="zero")
    return gp, CostPlane.of(z, 1.0 + 0.5 * steps * (1.0 + x[:, 0]))


def pool(gp: GP, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Return random starts and the stored points, all free to move."""
    columns = gp.x.shape[1]
    z = np.concatenate([np.random.default_rng(seed).random((300 * columns**2, columns)), gp.x])
    return z, np.ones(z.shape, dtype=bool)


def pool_and_stored(gp: GP, seed: int) -> tuple[Array, NDArray[np.bool_]]:
    """Return a pool with the stored points, and its free columns: all of them."""
    z, free = pool(gp, seed)
    return z, np.ones((len(z) + len(gp.x), free.shape[1]), dtype=bool)


def make_trade_off(gp: GP, plane: CostPlane, seed: int) -> Tradeoff:
    return Tradeoff(gp, plane, find_largest_mean(gp, *pool_and_stored(gp, seed)).mean)


def choose_point(
    trade_off: Tradeoff,
    seed: int,
    lengths: TrainingLengths,
    may_train: Callable[[Array, int], bool] = lambda x, start: True,
) -> ChosenPoint:
    return choose(trade_off, *pool(trade_off.gp, seed), lengths, may_train)


def test_cost_is_a_plane_with_intercept() -> None:
    rng = np.random.default_rng(0)
    z = rng.random((12, 4))
    cost = 5.0 + z @ np.array([1.0, -2.0, 0.5, 30.0])
    plane = CostPlane.of(z, cost)
    np.testing.assert_allclose(plane.coefficients, [5.0, 1.0, -2.0, 0.5, 30.0], rtol=1e-10)
    np.testing.assert_allclose(plane.share(plane.predict(z)), (cost - cost.min()) / np.ptp(cost), atol=1e-12)
    noisy = cost + rng.standard_normal(12)
    columns = np.column_stack([np.ones(12), z])
    expected = np.linalg.solve(columns.T @ columns, columns.T @ noisy)
    np.testing.assert_allclose(CostPlane.of(z, noisy).coefficients, expected, rtol=1e-9)


def test_cost_plane_of_one_or_two_points() -> None:
    one = CostPlane.of(np.array([[0.3, 0.8]]), np.array([7.0]))
    np.testing.assert_allclose(one.predict(np.array([[0.0, 0.0], [1.0, 1.0]])), 7.0)
    np.testing.assert_allclose(one.share(one.predict(np.array([[0.5, 0.5]]))), 0.0, atol=1e-12)
    same = CostPlane.of(np.array([[0.3, 0.8], [0.3, 0.8]]), np.array([6.0, 8.0]))
    np.testing.assert_allclose(same.predict(np.array([[0.9, 0.1]])), 7.0)
    for cost in (np.array([]), np.array([np.nan])):
        with pytest.raises(ValueError, match="finite cost"):
            CostPlane.of(np.zeros((len(cost), 2)), cost)


def test_log_ratio_where_the_improvement_underflows() -> None:
    log_ei = log_expected_improvement(np.array([100.0, 200.0]), np.ones(2), 0.0)
    far = log_ratio(log_ei, np.array([0.5, 0.5]))
    assert np.isfinite(far).all()
    assert far[0] > far[1]


def test_costs_below_the_cheapest_count_as_the_cheapest() -> None:
    floor = log_ratio(np.zeros(2), np.array([-3.0, 0.0]))
    assert floor[0] == floor[1] == pytest.approx(-math.log(0.1))


@pytest.mark.parametrize("rule", ["log_ratio", "softplus"])
@pytest.mark.parametrize("seed", range(3))
def test_gradient_of_the_ratio_equals_finite_differences(seed: int, rule: Rule) -> None:
    gp, plane = model(seed, noise_variance=1e-2)
    query = np.random.default_rng(seed).uniform(0.05, 0.95, (12, 3))
    plane = replace(plane, lowest=float(np.median(plane.predict(query))))  # so that the floor holds for half the points
    trade_off = replace(make_trade_off(gp, plane, seed), rule=rule)
    value, gradient = trade_off.smooth_log_ratio_with_gradient(query)
    h = 1e-6
    for j in range(3):
        step = h * np.eye(3)[j]
        difference = (
            trade_off.smooth_log_ratio_with_gradient(query + step)[0]
            - trade_off.smooth_log_ratio_with_gradient(query - step)[0]
        )
        np.testing.assert_allclose(gradient[:, j], difference / (2 * h), rtol=1e-4, atol=1e-4)
    plain = trade_off.predict(query).log_ratio
    if rule == "softplus":
        np.testing.assert_allclose(value, plain, rtol=1e-9)
    else:  # smooth at the cheapest cost, nowhere above the ratio itself, and equal to it far from the edge
        share = plane.share(plane.predict(query))
        assert np.all(value <= plain)
        np.testing.assert_allclose(value[np.abs(share) > 0.2], plain[np.abs(share) > 0.2], atol=2e-3)


def test_the_printed_ratio_does_not_depend_on_the_unit_of_scores() -> None:
    gp, plane = model(0)
    query = np.random.default_rng(0).random((6, 3))
    trade_off = Tradeoff(gp, plane, float(gp.y.max()), "softplus")
    ei = np.exp(trade_off.predict(query).log_ei) / gp.scale
    plain = np.log1p(np.exp(ei)) / np.log1p(np.exp(plane.share(plane.predict(query))))
    np.testing.assert_allclose(np.exp(trade_off.predict(query).log_ratio), plain, rtol=1e-9)
    larger = condition(gp.kernel, gp.theta, gp.x, 1000.0 * gp.y, mean="zero")
    again = Tradeoff(larger, plane, 1000.0 * float(gp.y.max()), "softplus")
    np.testing.assert_allclose(again.predict(query).log_ratio, trade_off.predict(query).log_ratio, rtol=1e-9)


def test_the_printed_ratio_prefers_cheap_points_without_improvement() -> None:
    """Soft-plus of an improvement is between ln 2 and about 1; that of a cost between ln 2 and 1.3: so cost decides."""
    bad_and_cheap, good_and_expensive = 0, 1
    log_ei, share = np.log([1e-9, 0.3]), np.array([0.0, 1.0])
    assert np.argmax(log_softplus_ratio(log_ei, share)) == bad_and_cheap
    assert np.argmax(log_ratio(log_ei, share)) == good_and_expensive


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_at_least_the_best_of_a_fine_grid(seed: int) -> None:
    trade_off = make_trade_off(*model(seed, dims=1), seed)
    axis = np.linspace(0.0, 1.0, 81)
    grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    assert trade_off.best_mean >= trade_off.gp.predict(grid)[0].max() - 1e-9
    assert choose_point(trade_off, seed, FINE).prediction.log_ratio >= trade_off.predict(grid).log_ratio.max() - 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_largest_mean_finds_narrow_peaks_between_random_points(seed: int) -> None:
    gp, _ = model(seed, n=30, dims=5, lengthscale_x=0.08, lengthscale_t=0.08)
    few = np.random.default_rng(seed).random((50, 6))
    peak = find_largest_mean(gp, few, np.ones((len(few) + len(gp.x), 6), dtype=bool))
    assert peak.mean >= gp.predict(gp.x)[0].max() > gp.predict(few)[0].max()
    assert peak.mean == pytest.approx(gp.predict(peak.z[None])[0][0])
    assert peak.start >= len(few)  # a stored point led to it


def test_time_is_rounded_to_the_nearest_step() -> None:
    trade_off = make_trade_off(*model(2, dims=1, lengthscale_t=0.2), 0)
    time = choose_point(trade_off, 0, FINE).z[-1]
    assert 0.0 < time < 1.0
    exact = [1 + time * (longest - 1) for longest in range(2, 12)]
    assert any(t % 1.0 > 0.5 for t in exact)  # some are rounded up
    steps = [choose_point(trade_off, 0, TrainingLengths(1, longest)).steps for longest in range(2, 12)]
    assert steps == [math.floor(t + 0.5) for t in exact]


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_in_bounds_and_reproducible(seed: int) -> None:
    trade_off = make_trade_off(*model(seed, n=6, dims=1), seed)
    first, second = (choose_point(trade_off, seed, LENGTHS) for _ in range(2))
    assert isinstance(first.steps, int)
    assert LENGTHS.min_steps <= first.steps <= LENGTHS.max_steps
    assert first.z[-1] == LENGTHS.time_of(first.steps)
    assert np.all((first.z >= 0.0) & (first.z <= 1.0))
    assert first.prediction.log_ratio == trade_off.predict(first.z[None]).log_ratio[0]
    assert first.prediction.score == trade_off.gp.predict(first.z[None])[0][0]
    assert (first.z.tolist(), first.steps) == (second.z.tolist(), second.steps)


def test_only_free_columns_move_and_only_to_allowed_configs() -> None:
    gp, plane = model(1)
    starts, free = pool(gp, 1)
    free[:, 0] = False
    trade_off = Tradeoff(gp, plane, find_largest_mean(gp, starts, free).mean)
    moved = choose(trade_off, starts, free, LENGTHS, lambda x, start: True)
    assert moved.z[0] == starts[moved.start, 0]
    assert moved.z[1] != starts[moved.start, 1]
    refused = choose(trade_off, starts, free, LENGTHS, lambda x, start: False)
    assert refused.z[:-1].tolist() == starts[refused.start, :-1].tolist()


@pytest.mark.parametrize("n", [1, 3])
def test_choice_from_one_point_and_from_equal_scores(n: int) -> None:
    gp, plane = model(0, n=n)
    gp = condition(gp.kernel, gp.theta, gp.x, np.full(n, gp.y[0]), mean="zero")
    assert np.isfinite(choose_point(make_trade_off(gp, plane, 0), 0, LENGTHS).prediction).all()
