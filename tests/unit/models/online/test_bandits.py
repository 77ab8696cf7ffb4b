"""The model-free bandits, against the textbook update written out without any scaling."""

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


def tally(history: list[tuple[int, float]], n_arms: int) -> tuple[Floats, Floats]:
    """Counts and sums of the rewards observed of each arm."""
    arms, rewards = split(history)
    counts = np.bincount(np.array(arms, dtype=np.intp), minlength=n_arms).astype(np.float64)
    sums = np.bincount(np.array(arms, dtype=np.intp), weights=rewards, minlength=n_arms)
    return counts, sums.astype(np.float64)


def fold_exp3s(history: list[tuple[int, float]], n_arms: int, mixing: float, sharing: float) -> Floats:
    """Weights after the whole history, from equal weights."""
    weights = np.full(n_arms, 1.0 / n_arms)
    for arm, reward in history:
        weights = bandits.exp3s_update(weights, arm, reward, mixing=mixing, sharing=sharing)
    return weights


def means(history: list[tuple[int, float]]) -> list[float]:
    rewards = [[reward for arm, reward in history if arm == k] for k in range(4)]
    return [sum(seen) / len(seen) for seen in rewards]


class TestUCB1:
    @quick
    @given(full_histories, st.integers(1, 5000))
    def test_is_its_formula(self, history: list[tuple[int, float]], round_: int) -> None:
        counts, sums = tally(history, 4)
        bounds = [m + math.sqrt(2.0 * math.log(round_) / n) for m, n in zip(means(history), counts, strict=True)]
        assert bounds[bandits.ucb1(counts, sums, round_)] == pytest.approx(max(bounds))

    def test_unobserved_arms_go_first(self) -> None:
        counts, sums = tally([(0, 1.0), (2, 1.0)], 4)
        assert bandits.ucb1(counts, sums, 3) == 1


class TestEpsilonGreedy:
    @quick
    @given(full_histories, st.floats(0.0, 1.0))
    def test_best_mean_gets_the_rest(self, history: list[tuple[int, float]], exploration: float) -> None:
        probabilities = bandits.epsilon_greedy(*tally(history, 4), exploration)
        assert probabilities.sum() == pytest.approx(1.0)
        assert means(history)[int(np.argmax(probabilities))] == pytest.approx(max(means(history))) or exploration == 1.0
        np.testing.assert_allclose(np.sort(probabilities)[:3], exploration / 4)

    def test_unobserved_arm_is_played_before_the_best(self) -> None:
        probabilities = bandits.epsilon_greedy(*tally([(0, 9.0), (0, 9.0)], 3))
        np.testing.assert_allclose(probabilities, [0.1 / 3, 0.9 + 0.1 / 3, 0.1 / 3])


class TestSoftmax:
    @quick
    @given(full_histories, st.floats(0.05, 10.0))
    def test_is_its_formula(self, history: list[tuple[int, float]], temperature: float) -> None:
        weights = [math.exp(m / temperature) for m in means(history)]
        probabilities = bandits.softmax(*tally(history, 4), temperature)
        np.testing.assert_allclose(probabilities, np.array(weights) / sum(weights), rtol=1e-9)

    def test_cold_and_huge_do_not_overflow(self) -> None:
        counts, sums = tally([(0, 1e12), (1, -1e12)], 2)
        assert bandits.softmax(counts, sums, 1e-6).tolist() == [1.0, 0.0]

    def test_unobserved_arms_share_evenly(self) -> None:
        assert bandits.softmax(*tally([(1, 5.0)], 3)).tolist() == [0.5, 0.0, 0.5]


def textbook_exp3s(history: list[tuple[int, float]], mixing: float, sharing: float) -> list[float]:
    """Weights that start at 1 and grow without bound."""
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
    def test_is_the_textbook_update_up_to_scale(
        self, history: list[tuple[int, float]], mixing: float, sharing: float
    ) -> None:
        want = np.array(textbook_exp3s(history, mixing, sharing))
        got = fold_exp3s(history, 4, mixing, sharing)
        np.testing.assert_allclose(got, want / want.sum(), rtol=1e-9)

    @quick
    @given(histories, st.floats(0.01, 1.0))
    def test_every_arm_keeps_its_share_of_play(self, history: list[tuple[int, float]], mixing: float) -> None:
        weights = fold_exp3s(history, 4, mixing, 1e-3)
        probabilities = bandits.exp3s(weights, mixing)
        assert probabilities.sum() == pytest.approx(1.0)
        assert probabilities.min() >= mixing / 4 * (1.0 - 1e-12)

    @pytest.mark.parametrize("reward", [1e6, -1e6])
    def test_absurd_rewards_do_not_overflow(self, reward: float) -> None:
        weights = bandits.exp3s_update(np.array([0.5, 0.5]), 0, reward, sharing=0.01)
        assert np.all(np.isfinite(weights))
        assert (weights[0] > weights[1]) == (reward > 0)

    def test_long_runs_do_not_overflow(self) -> None:
        weights = fold_exp3s([(0, 1.0)] * 2000, 2, mixing=1.0, sharing=1e-5)  # unscaled: exp(2000)
        assert weights.sum() == pytest.approx(1.0)
        assert weights[0] > 0.99

    def test_reward_raises_its_arm_only(self) -> None:
        weights = bandits.exp3s_update(np.full(3, 1 / 3), 1, 1.0, sharing=0.0)
        assert weights[1] > weights[0] == weights[2]


class TestDraw:
    def test_frequencies_are_the_probabilities(self) -> None:
        rng = np.random.default_rng(0)
        probabilities = np.array([0.0, 0.2, 0.5, 0.3, 0.0])
        drawn = np.bincount([bandits.draw(probabilities, rng) for _ in range(4000)], minlength=5) / 4000
        assert drawn[[0, 4]].tolist() == [0.0, 0.0]
        np.testing.assert_allclose(drawn, probabilities, atol=4.0 * math.sqrt(0.25 / 4000))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bandits.ucb1(np.ones(2), np.ones(2), 0), "round=0 must be at least 1"),
        (lambda: bandits.epsilon_greedy(np.ones(2), np.ones(2), 1.5), r"exploration=1.5 must lie in \[0, 1\]"),
        (lambda: bandits.softmax(np.ones(2), np.ones(2), 0.0), "temperature=0.0 must be positive"),
        (lambda: bandits.exp3s(np.ones(2), -0.1), r"mixing=-0.1 must lie in \[0, 1\]"),
        (lambda: bandits.exp3s_update(np.ones(2), 0, 1.0, sharing=2.0), r"sharing=2.0 must lie in \[0, 1\]"),
        (lambda: bandits.exp3s_update(np.ones(2), 2, 1.0, sharing=0.1), r"arm=2 must be one of 0..1"),
        (lambda: bandits.exp3s_update(np.ones(2), 0, math.nan, sharing=0.1), "reward=nan must be finite"),
    ],
)
def test_inputs_are_checked(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
