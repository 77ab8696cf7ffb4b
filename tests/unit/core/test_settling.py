"""From where a search stopped to the minimum itself."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.deciding.reproducible import polish
from shoestring.core.values.arrays import Floats

WIDE = np.full(3, 10.0)


def bowl(seed: int) -> tuple[Floats, Floats]:
    """A centre (3,) and a positive definite matrix (3, 3) of curvatures between 0.5 and 4."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((3, 3)))[0]
    return rng.uniform(-1.0, 1.0, 3), (axes * rng.uniform(0.5, 4.0, 3)) @ axes.T


@given(st.integers(0, 10**6), st.floats(0.95, 1.05))
def test_it_ends_in_the_minimum_however_rough_the_curvature(seed: int, wrong_by: float) -> None:
    """Of the gradient A d + d^3, d being the distance from the centre: its second derivatives at the centre are A."""
    centre, a = bowl(seed)
    start = centre + np.random.default_rng(seed + 1).uniform(-1e-3, 1e-3, 3)
    found = polish(start, lambda p: a @ (p - centre) + (p - centre) ** 3, lambda _: wrong_by * a, -WIDE, WIDE, 6)
    np.testing.assert_allclose(found, centre, atol=1e-9)


@given(st.integers(0, 10**6))
def test_it_ends_in_the_minimum_of_the_box(seed: int) -> None:
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


def test_it_stays_where_newton_is_no_guide() -> None:
    start = np.array([1.0, 1.0])
    box = -np.full(2, 9.0), np.full(2, 9.0)
    flat = polish(start, lambda p: np.ones(2), lambda _: np.zeros((2, 2)), *box, 4)
    far = polish(start, lambda p: np.ones(2), lambda _: np.eye(2), *box, 4)
    broken = polish(start, lambda p: np.array([np.nan, 0.0]), lambda _: np.full((2, 2), np.nan), *box, 4)
    corner = polish(start, lambda p: np.ones(2), lambda _: np.eye(2), start, box[1], 4)
    for found in (flat, far, broken, corner):
        np.testing.assert_array_equal(found, start)
