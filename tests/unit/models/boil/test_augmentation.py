"""Augmentation: incremental selection against a reference that solves the whole system at every step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.core.deciding.reproducible import reaches
from shoestring.models.boil.augmentation import (
    count_allowed_points,
    estimate_log_condition,
    find_least_variance,
    log_condition,
    pick_full_curve,
    pick_most_uncertain,
    pick_random_times,
    step_grid,
)
from shoestring.models.boil.score_process import ProcessParameters, product_kernel
from shoestring.models.gp.posterior import GP, condition

Array = NDArray[np.float64]
GRID = np.linspace(0.0, 1.0, 21)
quick = examples(14, thorough=40)


def model(z: Array, **settings: float) -> GP:
    dims = z.shape[1] - 1
    theta = ProcessParameters(**settings).theta(dims)
    return condition(product_kernel(dims), theta, z, np.zeros(len(z)), mean="zero")


def at(x: Array, times: Array) -> Array:
    return np.column_stack([np.tile(x, (len(times), 1)), times])


def covariance(gp: GP, z: Array) -> Array:
    return np.asarray(gp.kernel.matrix(gp.theta[:-1], z, z) + np.exp(gp.theta[-1]) * np.eye(len(z)))


def plain_state(gp: GP, x: Array, picked: list[int]) -> tuple[float, Array]:
    """Return ln cond(A) and the variances over the grid after some choices, computed from the start."""
    z = np.concatenate([gp.x, at(x, GRID[picked])])
    a = covariance(gp, z)
    eigenvalues = np.linalg.eigvalsh(a)
    k = gp.kernel.matrix(gp.theta[:-1], at(x, GRID), z)
    variances = 1.0 - np.einsum("qn,nq->q", k, np.linalg.solve(a, k.T))
    return float(np.log(eigenvalues[-1] / eigenvalues[0])), variances


@given(
    st.integers(0, 10**6),
    st.integers(1, 8),
    st.integers(0, 10),
    st.floats(1.0, 12.0),
    st.floats(0.1, 0.8),
    st.sampled_from([1e-2, 5e-4, 1e-5]),
)
@quick
def test_selection_equals_the_direct_computation(
    seed: int, n: int, limit: int, delta: float, scale: float, noise: float
) -> None:
    rng = np.random.default_rng(seed)
    z, x, floor = rng.random((n, 3)), rng.random(2), noise + 1e-3
    gp = model(z, lengthscale_x=scale, lengthscale_t=scale, noise_variance=noise)
    found = pick_most_uncertain(gp, x, GRID, max_points=limit, max_log_condition=delta)
    picked = found.picked.tolist()
    for i, j in enumerate(picked):
        log_cond, variances = plain_state(gp, x, picked[:i])
        assert log_cond <= delta
        assert reaches(variances[j], max(floor, variances.max()))  # times far from all data are equal
        assert found.variances[i] == pytest.approx(variances[j], rel=1e-6)
    assert len(set(picked)) == len(picked) <= limit
    log_cond, variances = plain_state(gp, x, picked)
    match found.stop:
        case "count":
            assert len(picked) == limit
        case "condition":
            assert log_cond > delta
        case "variance":
            assert log_cond <= delta
            assert variances.max() < floor
        case "repeat":
            assert variances[picked].max() >= variances.max() - 1e-9
    np.testing.assert_array_equal(found.times, GRID[picked])


@given(st.integers(0, 10**6), st.integers(1, 30), st.floats(0.05, 1.0), st.floats(-6.0, -2.0))
@quick
def test_condition_number_and_its_bound(seed: int, n: int, scale: float, exponent: float) -> None:
    rng = np.random.default_rng(seed)
    z, noise = rng.random((n, 3)), 10.0**exponent
    gp = model(z, lengthscale_x=scale, lengthscale_t=scale, noise_variance=noise)
    exact = log_condition(gp, z[:0])
    assert exact == pytest.approx(np.log(np.linalg.cond(covariance(gp, z))), rel=1e-6, abs=1e-9)
    assert exact <= np.log1p(n / noise) + 1e-9  # the bound that makes eigenvalues unnecessary
    more = log_condition(gp, rng.random((1, 3)))
    assert more >= exact - 1e-9  # another point never lowers it, so the first stop is final


@pytest.mark.parametrize("dims", [1, 2, 6])
@pytest.mark.parametrize(("scale", "noise"), [(0.25, 5e-4), (0.1, 1e-2), (1.0, 1e-6)])
def test_the_estimate_of_the_condition_number_of_many_points(dims: int, scale: float, noise: float) -> None:
    z = np.random.default_rng(dims).random((300, dims + 1))
    gp = model(z, lengthscale_x=scale, lengthscale_t=scale, noise_variance=noise)
    exact, estimate = log_condition(gp, z[:0]), estimate_log_condition(gp)
    assert exact - 0.2 <= estimate <= exact + 1e-6
    assert estimate != exact  # O(n^2), without all eigenvalues
    few = model(z[:100], lengthscale_x=scale, lengthscale_t=scale, noise_variance=noise)
    assert estimate_log_condition(few) == log_condition(few, z[:0])


def test_the_limit_on_the_condition_is_exact() -> None:
    """Copies of one point reach the bound, cond(A) = 1 + n / noise; distinct points stay far below it."""
    x, noise = np.array([0.9, 0.9]), 1e-3
    copies = model(np.tile([0.1, 0.1, 0.0], (6, 1)), noise_variance=noise)
    spread = model(np.random.default_rng(0).random((6, 3)), noise_variance=noise)
    for gp, limit in ((copies, np.log1p(6 / noise)), (spread, log_condition(spread, np.empty((0, 3))))):
        assert pick_most_uncertain(gp, x, GRID, max_points=1, max_log_condition=limit - 1e-6).stop == "condition"
        assert pick_most_uncertain(gp, x, GRID, max_points=1, max_log_condition=limit + 1e-6).stop == "count"


def test_a_floor_of_variances_and_one_of_deviations() -> None:
    """The golden case stops by variance after three times; with deviations, as in the authors' programs, it does not."""
    z, x = np.array([[0.5, 0.5, 1.0], [0.5, 0.52, 0.9]]), np.array([0.5, 0.5])
    gp = model(z, lengthscale_x=0.5, lengthscale_t=0.6, noise_variance=1e-6)
    limits: dict[str, Any] = {"max_points": 15, "max_log_condition": 20.0}
    by_variance = pick_most_uncertain(gp, x, GRID, floor="variance", **limits)
    by_deviation = pick_most_uncertain(gp, x, GRID, floor="std", **limits)
    assert by_variance.times.tolist() == pytest.approx([0.0, 0.4, 0.7])
    assert by_deviation.times[:3].tolist() == by_variance.times.tolist()
    assert by_deviation.variances[3] == pytest.approx(0.0005214918057242501, rel=1e-7)  # the number of the golden trace
    assert by_deviation.times.size > 3
    assert find_least_variance(5e-4, "variance") == 1.5e-3
    assert find_least_variance(5e-4, "std") == 1.5e-3**2


def test_each_reason_to_stop() -> None:
    z, x = np.array([[0.2, 0.5, 1.0], [0.8, 0.3, 0.4]]), np.array([0.5, 0.5])
    gp = model(z, lengthscale_x=0.3, lengthscale_t=0.2)
    assert pick_most_uncertain(gp, x, GRID, max_points=0, max_log_condition=20.0).stop == "count"
    assert pick_most_uncertain(gp, x, GRID, max_points=4, max_log_condition=20.0).stop == "count"
    assert pick_most_uncertain(gp, x, GRID, max_points=15, max_log_condition=20.0).stop == "variance"
    assert pick_most_uncertain(gp, x, GRID, max_points=15, max_log_condition=1.0).stop == "condition"
    # Many observations at time 0, none at 1: even after 1 is added it is the less certain of the two.
    repeated = model(np.tile([0.5, 0.5, 0.0], (20, 1)), lengthscale_t=0.05, noise_variance=1e-2)
    found = pick_most_uncertain(repeated, x, np.array([0.0, 1.0]), max_points=2, max_log_condition=20.0, floor=0.0)
    assert (found.picked.tolist(), found.stop) == ([1], "repeat")


def test_variances_equal_those_of_the_extended_model() -> None:
    rng = np.random.default_rng(0)
    z, x = rng.random((6, 3)), rng.random(2)
    gp = model(z)
    found = pick_most_uncertain(gp, x, GRID, max_points=6, max_log_condition=20.0)
    for time, variance in zip(found.times, found.variances, strict=True):
        _, left = gp.predict(at(x, np.array([time])))
        assert variance == pytest.approx(left[0], rel=1e-7)
        gp = gp.append(np.append(x, time), 0.0)


def test_a_curve_with_all_prefixes_stored_adds_none() -> None:
    rng = np.random.default_rng(1)
    z, x = rng.random((4, 3)), rng.random(2)
    gp = model(np.concatenate([z, at(x, GRID)]))
    assert pick_most_uncertain(gp, x, GRID, max_points=15, max_log_condition=20.0).stop == "variance"
    assert pick_most_uncertain(gp, x, GRID, max_points=15, max_log_condition=20.0).picked.size == 0


def test_random_times_are_distinct_and_reproducible() -> None:
    z, x = np.array([[0.2, 0.5, 1.0]]), np.array([0.5, 0.5])
    gp = model(z)
    first = pick_random_times(gp, x, GRID, np.random.default_rng(3), max_points=8, max_log_condition=20.0)
    again = pick_random_times(gp, x, GRID, np.random.default_rng(3), max_points=8, max_log_condition=20.0)
    other = pick_random_times(gp, x, GRID, np.random.default_rng(4), max_points=8, max_log_condition=20.0)
    assert first.picked.tolist() == again.picked.tolist() != other.picked.tolist()
    assert len(set(first.picked.tolist())) == 8
    assert pick_random_times(
        gp, x, GRID, np.random.default_rng(3), max_points=99, max_log_condition=20.0
    ).picked.size == len(GRID)
    limited = pick_random_times(gp, x, GRID, np.random.default_rng(3), max_points=8, max_log_condition=2.0)
    assert limited.stop == "condition"
    assert limited.picked.tolist() == first.picked[: limited.picked.size].tolist()


def test_full_curves_are_ill_conditioned() -> None:
    rng = np.random.default_rng(0)
    gp = model(rng.random((10, 3)), noise_variance=1e-10)
    x = rng.random(2)
    whole = pick_full_curve(gp, x, GRID)
    assert whole.picked.tolist() == list(range(len(GRID)))
    assert log_condition(gp, at(x, whole.times)) > 25.0
    few = pick_most_uncertain(gp, x, GRID, max_points=15, max_log_condition=20.0)
    assert log_condition(gp, at(x, few.times)) < 20.0


@pytest.mark.parametrize("augment", [pick_most_uncertain, pick_random_times])
def test_nothing_to_choose_from(augment: Any) -> None:
    gp = model(np.array([[0.2, 0.5, 1.0]]))
    arguments = [np.random.default_rng(0)] if augment is pick_random_times else []
    found = augment(gp, np.array([0.5, 0.5]), np.array([]), *arguments, max_points=5, max_log_condition=20.0)
    assert (found.picked.size, found.times.size, found.stop) == (0, 0, "count")


def test_duplicate_points_and_duplicate_times() -> None:
    gp = model(np.tile([0.4, 0.6, 0.5], (5, 1)))
    found = pick_most_uncertain(
        gp, np.array([0.4, 0.6]), np.array([0.0, 0.0, 1.0, 1.0]), max_points=4, max_log_condition=20.0
    )
    assert sorted(found.times.tolist()) == [0.0, 1.0]
    assert found.stop == "variance"


@given(st.integers(1, 200), st.integers(0, 300))
@quick
def test_prefixes_are_whole_steps_below_the_length_of_the_curve(min_steps: int, extra: int) -> None:
    trained = min_steps + extra
    grid = step_grid(min_steps, trained)
    assert np.all(np.diff(grid) > 0)
    assert np.all((grid >= min_steps) & (grid < trained))
    assert grid.size <= 50
    assert extra == 0 or grid[0] == min_steps


def test_shorter_runs_get_fewer_points() -> None:
    assert [count_allowed_points(t, 15) for t in (0.0, 0.05, 0.5, 0.99, 1.0)] == [0, 0, 7, 14, 15]
    assert [count_allowed_points(k / 100, 100) for k in range(101)] == list(range(101))
