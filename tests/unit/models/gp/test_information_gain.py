"""Information gain: its limits, and a comparison with dense conditioning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri
from thoroughness import examples

from shoestring.models.gp.information_gain import information_gain

DRAWS = 20_000


def test_the_difference_of_two_numbers_gives_all_information() -> None:
    """An observation that is nearly the difference of two numbers gives log 2 nats, all the information there is."""
    cov = np.eye(2)
    cross = np.array([[1.0], [-1.0]])
    gain = information_gain(np.zeros(2), cov, cross, np.array([2.0 + 1e-9]), np.random.default_rng(0), 6, DRAWS)
    assert gain[0] == pytest.approx(np.log(2.0), abs=0.02)


def test_an_unrelated_observation_gives_no_information() -> None:
    gain = information_gain(
        np.zeros(3), np.eye(3), np.zeros((3, 2)), np.array([1.0, 5.0]), np.random.default_rng(0), 5, DRAWS
    )
    np.testing.assert_allclose(gain, 0.0, atol=1e-12)


@examples(5, thorough=10)
@given(seed=st.integers(0, 1000))
def test_equals_draws_from_the_conditional_distribution(seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(5, 5))
    joint = root @ root.T / 5 + 0.05 * np.eye(5)  # four numbers and one observation
    mean = rng.normal(size=4)
    cov, cross, variance = joint[:4, :4], joint[:4, 4:], joint[4:, 4].copy()
    got = information_gain(mean, cov, cross, variance, np.random.default_rng(1), 5, DRAWS)

    def entropy(centre: np.ndarray, spread: np.ndarray) -> float:
        draws = centre + np.random.default_rng(2).standard_normal((DRAWS, 4)) @ np.linalg.cholesky(spread).T
        p = np.bincount(draws.argmin(axis=1), minlength=4) / DRAWS
        return float(-sum(x * np.log(x) for x in p if x > 0))

    u = cross[:, 0] / np.sqrt(variance[0])
    after = [entropy(mean + u * y, cov - np.outer(u, u)) for y in ndtri((np.arange(5) + 0.5) / 5)]
    assert got[0] == pytest.approx(entropy(mean, cov) - np.mean(after), abs=0.03)


def test_shapes_that_do_not_fit_are_errors() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        information_gain(np.zeros(2), np.eye(3), np.zeros((3, 1)), np.ones(1), np.random.default_rng(0))
