"""Random streams by name, and the quasi-random sequence: any point by its number, and even coverage."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.values.randomness import MAX_QUASI_RANDOM_DIMS, point, points, stream


def test_the_same_name_gives_the_same_numbers() -> None:
    assert stream(7, "pool", 3).random(5).tolist() == stream(7, "pool", 3).random(5).tolist()


def test_every_part_of_the_name_matters() -> None:
    numbers: list[tuple[int, ...]] = [(), (0,), (0, 0), (1,), (0, 1), (2**40,)]
    streams = [stream(0, "a", *suffix) for suffix in numbers] + [stream(0, "b"), stream(1, "a"), stream(2**40, "a")]
    draws = sorted(float(each.random()) for each in streams)
    assert all(a < b for a, b in pairwise(draws)), "two names share a stream"


def test_a_stream_does_not_depend_on_other_streams() -> None:
    first = stream(1, "decide", 4)
    stream(1, "decide", 3).random(1000)
    assert first.random() == stream(1, "decide", 4).random()


def test_a_point_does_not_depend_on_the_other_points() -> None:
    many = points(3, "configs", 6, np.arange(50))
    assert many.shape == (50, 6)
    for i in (0, 1, 17, 49):
        assert point(3, "configs", 6, i).tolist() == many[i].tolist()


@pytest.mark.parametrize("dims", [1, 2, 10, 40])
def test_points_lie_in_the_cube(dims: int) -> None:
    drawn = points(0, "x", dims, np.arange(2000))
    assert drawn.min() >= 0.0
    assert drawn.max() < 1.0
    assert len(np.unique(drawn, axis=0)) == 2000


def test_each_coordinate_is_stratified() -> None:
    """Of p**k consecutive points one lies in each of p**k equal bins: Halton's property, which scrambling does not change."""
    drawn = points(11, "x", 3, np.arange(2**6 * 3**4 * 5**3)[: 3**4 * 2**6])
    for j, (prime, power) in enumerate(((2, 6), (3, 4))):
        block = drawn[: prime**power, j]
        assert sorted(np.floor(block * prime**power + 1e-9).astype(int)) == list(range(prime**power))


def test_seeds_and_names_scramble_differently() -> None:
    first = points(0, "a", 2, np.arange(8))
    assert not np.allclose(first, points(1, "a", 2, np.arange(8)))
    assert not np.allclose(first, points(0, "b", 2, np.arange(8)))


def test_a_cube_without_dimensions() -> None:
    assert point(0, "x", 0, 5).shape == (0,)


def test_points_with_large_numbers() -> None:
    assert np.all(points(0, "x", 50, np.array([10**8, 10**9])) < 1.0)


@examples(67, thorough=200)
@given(st.integers(0, 2**32), st.integers(1, 12), st.integers(0, 2**40))
def test_one_point_is_the_same_as_one_of_many(seed: int, dims: int, index: int) -> None:
    many = points(seed, "x", dims, np.array([index, index + 1]))
    assert point(seed, "x", dims, index).tolist() == many[0].tolist()


@pytest.mark.parametrize("dims", [MAX_QUASI_RANDOM_DIMS, MAX_QUASI_RANDOM_DIMS + 1, 10_000])
def test_memory_for_points_grows_with_the_number_of_dimensions_only(dims: int) -> None:
    tracemalloc.start()
    one, many = point(5, "x", dims, 3), points(5, "x", dims, np.arange(4))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert one.tolist() == many[3].tolist()
    assert peak < 30e6


def test_points_in_wide_spaces_are_independent_uniform_draws() -> None:
    dims = MAX_QUASI_RANDOM_DIMS + 1
    drawn = points(0, "x", dims, np.arange(200))
    assert drawn.shape == (200, dims)
    assert len(np.unique(drawn)) == 200 * dims
    assert abs(drawn.mean() - 0.5) < 0.01
    assert points(1, "x", dims, np.arange(2)).tolist() != drawn[:2].tolist()
    assert points(0, "x", dims, np.arange(0)).shape == (0, dims)


def test_points_up_to_the_limit_are_quasi_random() -> None:
    """A change of these numbers would change the trials of stored studies."""
    drawn = points(7, "configs", MAX_QUASI_RANDOM_DIMS, np.array([1, 50]))[:, [0, 100, 199]]
    assert drawn.tolist() == [
        [0.09531965223141015, 0.6469244426572548, 0.15914394112614969],
        [0.8296946522314101, 0.49518769677060026, 0.7535838430067711],
    ]
