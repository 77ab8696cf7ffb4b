"""The bandits without a model, against the textbook update without scaling."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.online import bandits

Floats = NDArray[np.float64]

quick = examples(27, thorough=80)
histories = st.lists(st.tuples(st.integers(0, 3), st.floats(-0.3, 1.3)), max_size=40)
full_histories = histories.map(lambda h: [*h, (0, 0.2), (1, 0.4), (2, 0.1), (3, 0.3)])


def split(history: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [arm for arm, _ in history], [reward for _, reward in history]


def count_rewards(history: list[tuple[int, float]], n_arms: int) -> tuple[Floats, Floats]:
    """Return the number and the sum of the rewards of each arm."""
    arms, rewards = split(history)
    counts = np.bincount(np.array(arms, dtype=np.intp), minlength=n_arms).astype(np.float64)
    sums = np.bincount(np.array(arms, dtype=np.intp), weights=rewards, minlength=n_arms)
    return counts, sums.astype(np.float64)


def update_exp3s(history: list[tuple[int, float]], n_arms: int, mixing: float, sharing: float) -> Floats:
    """Return the weights after the whole history, from equal weights."""
    weights = np.full(n_arms, 1.0 / n_arms)
    for arm, reward in history:
        weights = bandits.exp3s_update(weights, arm, reward, mixing=mixing, sharing=sharing)
    return weights


def means(history: list[tuple[int, float]]) -> list[float]:
    rewards = [[reward for arm, reward in history if arm == k] for k in range(4)]
    return [sum(values) / len(values) for values in rewards]


class TestUCB1:
    @quick
    @given(full_histories, st.integers(1, 5000))
    def test_equals_the_formula(self, history: list[tuple[int, float]], round_: int) -> None:
        counts, sums = count_rewards(history, 4)
        bounds = [m + math.sqrt(2.0 * math.log(round_) / n) for m, n in zip(means(history), counts, strict=True)]
        np.testing.assert_allclose(bandits.ucb1_bounds(counts, sums, round_), bounds, rtol=1e-12, atol=1e-12)

    def test_bounds_of_unobserved_arms_are_infinite(self) -> None:
        counts, sums = count_rewards([(0, 1.0), (2, 1.0)], 4)
        assert np.isinf(bandits.ucb1_bounds(counts, sums, 3)).tolist() == [False, True, False, True]


class TestEpsilonGreedy:
    @quick
    @given(full_histories, st.floats(0.0, 1.0))
    def test_the_best_mean_gets_the_remaining_probability(
        self, history: list[tuple[int, float]], exploration: float
    ) -> None:
        probabilities = bandits.epsilon_greedy(*count_rewards(history, 4), exploration)
        assert probabilities.sum() == pytest.approx(1.0)
        assert means(history)[int(np.argmax(probabilities))] == pytest.approx(max(means(history))) or exploration == 1.0
        np.testing.assert_allclose(np.sort(probabilities)[:3], exploration / 4)

    def test_unobserved_arm_comes_before_the_best(self) -> None:
        probabilities = bandits.epsilon_greedy(*count_rewards([(0, 9.0), (0, 9.0)], 3))
        np.testing.assert_allclose(probabilities, [0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3])


class TestSoftmax:
    @quick
    @given(full_histories, st.floats(0.05, 10.0))
    def test_equals_the_formula(self, history: list[tuple[int, float]], temperature: float) -> None:
        weights = [math.exp(m / temperature) for m in means(history)]
        probabilities = bandits.softmax(*count_rewards(history, 4), temperature)
        np.testing.assert_allclose(probabilities, np.array(weights) / sum(weights), rtol=1e-9)

    def test_low_temperatures_and_huge_rewards_do_not_overflow(self) -> None:
        counts, sums = count_rewards([(0, 1e12), (1, -1e12)], 2)
        assert bandits.softmax(counts, sums, 1e-6).tolist() == [1.0, 0.0]

    def test_unobserved_arms_have_equal_probabilities(self) -> None:
        assert bandits.softmax(*count_rewards([(1, 5.0)], 3)).tolist() == [0.5, 0.0, 0.5]


def textbook_exp3s(history: list[tuple[int, float]], mixing: float, sharing: float) -> list[float]:
    """Return weights that start at 1 and grow without bound."""
    w = [1.0] * 4
    for arm, reward in history:
        total = sum(w)
        p = (1.0 - mixing) * w[arm] / total + mixing / 4
        estimate = [reward / p if k == arm else 0.0 for k in range(4)]
        w = [w[k] * math.exp(mixing * estimate[k] / 4) + math.e * sharing / 4 * total for k in range(4)]
    return w


class TestEXP3S:
    @quick
    @given(histories, st.floats(0.01, 1.0), st.floats(0.0, 0.5))
    def test_equals_the_textbook_update_up_to_scale(
        self, history: list[tuple[int, float]], mixing: float, sharing: float
    ) -> None:
        want = np.array(textbook_exp3s(history, mixing, sharing))
        got = update_exp3s(history, 4, mixing, sharing)
        np.testing.assert_allclose(got, want / want.sum(), rtol=1e-9)

    @quick
    @given(histories, st.floats(0.01, 1.0))
    def test_every_arm_has_its_least_probability(self, history: list[tuple[int, float]], mixing: float) -> None:
        weights = update_exp3s(history, 4, mixing, 1e-3)
        probabilities = bandits.exp3s(weights, mixing)
        assert probabilities.sum() == pytest.approx(1.0)
        assert probabilities.min() >= mixing / 4 * (1.0 - 1e-12)

    @pytest.mark.parametrize("reward", [1e6, -1e6])
    def test_huge_rewards_do_not_overflow(self, reward: float) -> None:
        weights = bandits.exp3s_update(np.array([0.5, 0.5]), 0, reward, sharing=0.01)
        assert np.all(np.isfinite(weights))
        assert (weights[0] > weights[1]) == (reward > 0)

    def test_long_runs_do_not_overflow(self) -> None:
        weights = update_exp3s([(0, 1.0)] * 2000, 2, mixing=1.0, sharing=1e-5)  # unscaled: exp(2000)
        assert weights.sum() == pytest.approx(1.0)
        assert weights[0] > 0.99

    def test_a_reward_raises_only_its_arm(self) -> None:
        weights = bandits.exp3s_update(np.full(3, 1 / 3), 1, 1.0, sharing=0.0)
        assert weights[1] > weights[0] == weights[2]


class TestDraw:
    def test_frequencies_equal_the_probabilities(self) -> None:
        rng = np.random.default_rng(0)
        probabilities = np.array([0.0, 0.2, 0.5, 0.3, 0.0])
        drawn = np.bincount([bandits.draw(probabilities, rng) for _ in range(4000)], minlength=5) / 4000
        assert drawn[[0, 4]].tolist() == [0.0, 0.0]
        np.testing.assert_allclose(drawn, probabilities, atol=4.0 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bandits.ucb1_bounds(np.ones(2), np.ones(2), 0), "round=0 must be at least 1"),
        (lambda: bandits.epsilon_greedy(np.ones(2), np.ones(2), 1.5), r"exploration=1.5 must be in \[0, 1\]"),
        (lambda: bandits.softmax(np.ones(2), np.ones(2), 0.0), "temperature=0.0 must be positive"),
        (lambda: bandits.exp3s(np.ones(2), -0.1), r"mixing=-0.1 must be in \[0, 1\]"),
        (lambda: bandits.exp3s_update(np.ones(2), 0, 1.0, sharing=2.0), r"sharing=2.0 must be in \[0, 1\]"),
        (lambda: bandits.exp3s_update(np.ones(2), 2, 1.0, sharing=0.1), r"arm=2 must be one of 0..1"),
        (lambda: bandits.exp3s_update(np.ones(2), 0, math.nan, sharing=0.1), "reward=nan must be finite"),
    ],
)
def test_inputs_are_checked(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
