"""Rollout: comparison with a plain recursion over one simulated history at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import norm
from thoroughness import examples

from shoestring.models.freeze_thaw.rollout_value import roll_out

Floats = NDArray[np.float64]


def improvement(mean: float, variance: float, best: float) -> float:
    std = math.sqrt(variance)
    z = (best - mean) / std
    return float(std * (z * norm.cdf(z) + norm.pdf(z)))


class PlainRecursion:
    def __init__(self, can_train: NDArray[np.bool_], noise: float, n_nodes: int) -> None:
        self.can_train, self.noise = can_train, noise
        self.nodes, weights = np.polynomial.hermite.hermgauss(n_nodes)
        self.weights = weights / math.sqrt(math.pi)
        self.stages = can_train.shape[1]

    def gain(self, mean: Floats, cov: Floats, plays: list[int], arm: int, best: float) -> float:
        if not self.can_train[arm, plays[arm]]:
            return 0.0
        i = arm * self.stages + plays[arm]
        return improvement(mean[i], max(cov[i, i], 0.0) + self.noise, best)

    def value(self, mean: Floats, cov: Floats, plays: list[int], arm: int, best: float, left: int) -> float:
        gain = self.gain(mean, cov, plays, arm, best)
        if left == 0:
            return gain
        i = arm * self.stages + plays[arm]
        variance = max(cov[i, i], 0.0) + self.noise
        after = cov - np.outer(cov[:, i], cov[i]) / variance
        played = [n + (a == arm) for a, n in enumerate(plays)]
        total = 0.0
        for node, weight in zip(self.nodes, self.weights, strict=True):
            loss = mean[i] + math.sqrt(2.0 * variance) * node
            moved = mean + cov[:, i] / variance * (loss - mean[i])
            low = min(best, loss)
            gains = [self.gain(moved, after, played, a, low) for a in range(len(plays))]
            total += weight * self.value(moved, after, played, int(np.argmax(gains)), low, left - 1)
        return gain + total


def problem(seed: int, n_arms: int, n_stages: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n_arms * n_stages, n_arms * n_stages))
    can_train = np.arange(n_stages) < rng.integers(1, n_stages + 1, n_arms)[:, None]
    return rng.normal(size=(n_arms, n_stages)), root @ root.T / len(root), can_train


@examples(9, thorough=25)
@given(
    seed=st.integers(0, 10_000),
    n_arms=st.integers(1, 4),
    n_stages=st.integers(1, 3),
    noise=st.sampled_from([1e-3, 0.3]),
)
def test_equals_the_plain_recursion(seed: int, n_arms: int, n_stages: int, noise: float) -> None:
    mean, cov, can_train = problem(seed, n_arms, n_stages)
    plain = PlainRecursion(can_train, noise, 3)
    expected = [plain.value(mean.ravel(), cov, [0] * n_arms, arm, 0.2, n_stages - 1) for arm in range(n_arms)]
    np.testing.assert_allclose(roll_out(mean, cov, can_train, noise, 0.2), expected, rtol=1e-8, atol=1e-12)


def test_one_stage_is_expected_improvement() -> None:
    mean, cov = np.array([[0.1], [0.5]]), np.diag([0.2, 0.4])
    values = roll_out(mean, cov, np.ones((2, 1), dtype=bool), 0.05, 0.3)
    np.testing.assert_allclose(values, [improvement(0.1, 0.25, 0.3), improvement(0.5, 0.45, 0.3)], rtol=1e-12)


def test_an_arm_that_cannot_run_has_no_value() -> None:
    mean, cov, _ = problem(0, 3, 2)
    can_train = np.array([[True, True], [False, False], [True, False]])
    assert np.isneginf(roll_out(mean, cov, can_train, 0.1, 0.0)).tolist() == [False, True, False]


def test_shapes_that_do_not_match_raise_an_error() -> None:
    with pytest.raises(ValueError, match="do not match"):
        roll_out(np.zeros((2, 2)), np.eye(3), np.ones((2, 2), dtype=bool), 0.1, 0.0)
