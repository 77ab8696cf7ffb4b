"""Action value and the choice of an arm: comparison with quadrature and with plain loops over arms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from thoroughness import examples

from shoestring.models.freeze_thaw.action_value import (
    ValuePlan,
    count_steps_to_best,
    find_best_futures,
    plan_values,
    value_actions,
)

Floats = NDArray[np.float64]
INF = np.inf

# means on a coarse grid, so that ties occur
arms = st.lists(
    st.tuples(st.integers(-3000, 3000).map(lambda i: i / 1000), st.floats(1e-3, 2.0)), min_size=1, max_size=6
)


def slow_q(mean: Floats, std: Floats) -> tuple[int, list[float]]:
    """Return the top arm and E min(nu_a, ref_a) by quadrature, with the references found by sorting."""
    top = min(range(len(mean)), key=lambda k: (round(float(mean[k]), 10), k))
    others = sorted(mean[k] for k in range(len(mean)) if k != top)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    values = []
    for a in range(len(mean)):
        ref = (others[0] if others else INF) if a == top else mean[top]
        if std[a] == 0.0 or ref == INF:
            values.append(min(mean[a], ref))
            continue
        # the integrand has a kink at ref, so each side is integrated separately
        low, high = mean[a] - 12 * std[a], mean[a] + 12 * std[a]
        cut = min(max(ref, low), high)
        total = 0.0
        for x0, x1 in ((low, cut), (cut, high)):
            x = 0.5 * (x1 - x0) * nodes + 0.5 * (x0 + x1)
            density = stats.norm.pdf(x, mean[a], std[a])
            total += 0.5 * (x1 - x0) * float(weights @ (np.minimum(x, ref) * density))
        values.append(total)
    return top, values


@examples(34, thorough=100)
@given(arms)
def test_q_is_the_expected_minimum(drawn: list[tuple[float, float]]) -> None:
    mean, std = (np.array(x) for x in zip(*drawn, strict=True))
    value = value_actions(mean, std)
    top, expected = slow_q(mean, std)
    assert value.top_arm == top
    np.testing.assert_allclose(value.q, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(value.gain, mean[top] - value.q, rtol=1e-7, atol=1e-12)
    assert (value.q <= mean[top]).all()
    assert (value.gain >= 0.0).all()


@examples(17, thorough=50)
@given(arms, st.randoms(use_true_random=False))
def test_permuting_arms_permutes_q(drawn: list[tuple[float, float]], random: Any) -> None:
    mean, std = (np.array(x) for x in zip(*drawn, strict=True))
    order = list(range(len(mean)))
    random.shuffle(order)
    ties = len(set(np.round(mean, 10).tolist())) < len(mean)
    plain, shuffled = value_actions(mean, std), value_actions(mean[order], std[order])
    if not ties:  # with a tie another arm may be the top arm
        assert order[int(shuffled.top_arm)] == plain.top_arm
    np.testing.assert_allclose(shuffled.q, plain.q[order], rtol=1e-12, atol=1e-12)


def test_gain_keeps_its_digits_far_below_the_reference() -> None:
    """At 20 standard deviations 1 - Q is 0 in floating point; the gain is still the asymptotic phi(s)/s^2 (1 - 3/s^2...)."""
    value = value_actions(np.array([1.0, 3.0]), np.array([0.1, 0.1]))
    assert value.q[1] == 1.0
    s = 20.0
    series = stats.norm.pdf(s) / s**2 * (1 - 3 / s**2 + 15 / s**4 - 105 / s**6)
    assert value.gain[1] == pytest.approx(0.1 * series, rel=1e-6)


def test_without_variance_q_is_the_mean_or_the_reference() -> None:
    value = value_actions(np.array([2.0, 1.0, 1.0]), np.zeros(3))
    np.testing.assert_array_equal(value.q, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(value.gain, np.zeros(3))


def test_arms_without_a_step_have_no_value() -> None:
    value = value_actions(np.array([INF, 1.0, INF]), np.array([0.0, 0.5, 0.0]))
    assert value.top_arm == 1
    np.testing.assert_array_equal(value.q, [INF, 1.0, INF])
    np.testing.assert_array_equal(value.gain, [-INF, 0.0, -INF])


def test_q_of_huge_and_tiny_losses_scales() -> None:
    mean, std = np.array([0.5, 0.42, 0.47]), np.array([0.05, 0.02, 0.1])
    plain = value_actions(mean, std)
    for size in (1e100, 1e-6):
        np.testing.assert_allclose(value_actions(size * mean, size * std).q, size * plain.q, rtol=1e-12)


def test_the_best_future_is_the_first_smallest_mean_within_each_horizon() -> None:
    mean = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 9.0, 2.0, 2.0 - 1e-12, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    variance = np.arange(15.0).reshape(3, 5) + 1.0
    got = find_best_futures(mean, variance, np.array([0, 1, 5]), np.array([3, 3, 0]))
    np.testing.assert_array_equal(got.mean, [3.0, 2.0, INF])
    np.testing.assert_array_equal(got.tau, [3, 2, 0])
    np.testing.assert_allclose(got.std, [np.sqrt(3.0), np.sqrt(8.0), 0.0])


def test_predictions_of_past_steps_raise_an_error() -> None:
    mean = np.array([[np.nan, np.nan, 1.0]])
    assert find_best_futures(mean, mean, np.array([2]), np.array([1])).tau.tolist() == [1]
    with pytest.raises(ValueError, match="still to come"):
        find_best_futures(mean, mean, np.array([1]), np.array([2]))


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([3.0, 2.0, 1.0], 3),
        ([1.0, 1.0, 1.0], 1),
        ([1.0 + 1e-12, 1.0, 1.0 - 1e-12], 1),
        ([10.0, 1.4, 1.0, 0.0, 0.0], 4),
        ([1.0, 2.0, 3.0], 1),
    ],
)
def test_steps_to_best_end_at_the_first_lowest_mean(curve: list[float], expected: int) -> None:
    assert count_steps_to_best(np.array(curve)) == expected


def random_predictions(seed: int, n_samples: int = 3, n_arms: int = 5, n_steps: int = 8) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(n_samples, n_arms, 1)) - 0.3 * rng.random((n_samples, n_arms, n_steps)).cumsum(axis=-1)
    return mean, rng.uniform(0.01, 1.0, (n_samples, n_arms, n_steps))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("remaining", [1, 4, 20])
def test_q_is_averaged_over_samples_and_tau_star_comes_from_the_averaged_means(seed: int, remaining: int) -> None:
    mean, variance = random_predictions(seed)
    trained = np.array([0, 3, 8, 7, 1])
    got = plan_values(mean, variance, trained, np.minimum(remaining, 8 - trained))
    live = [0, 1, 3, 4]
    each = []
    for m, v in zip(mean, variance, strict=True):
        ends = [trained[k] + int(np.argmin(m[k, trained[k] : trained[k] + remaining])) for k in live]
        mu = np.array([m[k, t] for k, t in zip(live, ends, strict=True)])
        sigma = np.sqrt([v[k, t] for k, t in zip(live, ends, strict=True)])
        each.append(slow_q(mu, sigma)[1])
    np.testing.assert_allclose(got.q[live], np.mean(each, axis=0), rtol=1e-7)
    assert got.q[2] == INF
    averaged = mean.mean(axis=0)
    best = {k: averaged[k, trained[k] : trained[k] + remaining].min() for k in live}
    top = min(live, key=lambda k: best[k])
    assert got.top_arm == top
    assert got.tau_star == 1 + int(np.argmin(averaged[top, trained[top] : trained[top] + remaining])) == got.tau[top]


def test_equal_samples_give_the_same_plan_as_one() -> None:
    mean, variance = random_predictions(1, n_samples=1)
    trained, room = np.zeros(5, dtype=int), np.full(5, 6)
    one = plan_values(mean, variance, trained, room)
    many = plan_values(np.tile(mean, (4, 1, 1)), np.tile(variance, (4, 1, 1)), trained, room)
    np.testing.assert_allclose(one.q, many.q, rtol=1e-12)
    assert (one.top_arm, one.tau_star) == (many.top_arm, many.tau_star)


def plan_with(gain: list[float], top_arm: int = 0) -> ValuePlan:
    g = np.array(gain)
    return ValuePlan(q=-g, gain=g, mean=-g, tau=np.ones(len(g), dtype=np.intp), top_arm=top_arm, tau_star=1)


def test_bhpt_chooses_the_largest_gain_and_the_lowest_index_of_a_tie() -> None:
    rng = np.random.default_rng(0)
    assert plan_with([0.1, 0.3, 0.2]).choose_arm(rng) == 1
    assert plan_with([0.1, 0.3, 0.3 * (1 + 1e-14)]).choose_arm(rng) == 1
    assert plan_with([1e-200, 3e-200, 2e-200]).choose_arm(rng) == 1
    assert plan_with([0.1, -INF, 0.2]).choose_arm(rng) == 2


def test_without_gain_the_top_arm_is_chosen() -> None:
    rng = np.random.default_rng(0)
    assert plan_with([0.0, 0.0, 0.0], top_arm=2).choose_arm(rng) == 2
    assert plan_with([-INF, 0.0, -INF], top_arm=1).choose_arm(rng, epsilon=0.0) == 1


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_bhpt_eps_chooses_the_top_arm_with_probability_epsilon(epsilon: float) -> None:
    """The top arm has the largest gain here; otherwise the best of the other arms is chosen."""
    plan = plan_with([0.9, 0.1, 0.4, 0.3], top_arm=0)
    rng = np.random.default_rng(5)
    chosen = [plan.choose_arm(rng, epsilon) for _ in range(2000)]
    assert set(chosen) <= {0, 2}
    share = chosen.count(0) / len(chosen)
    assert abs(share - epsilon) <= 4.0 * np.sqrt(epsilon * (1 - epsilon) / len(chosen))
    assert plan.gain.tolist() == [0.9, 0.1, 0.4, 0.3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: value_actions(np.array([np.nan]), np.array([1.0])), "nan"),
        (lambda: value_actions(np.array([1.0]), np.array([-1.0])), "negative number"),
        (lambda: plan_with([0.1]).choose_arm(np.random.default_rng(0), 1.5), "epsilon=1.5 is a probability"),
        (lambda: plan_values(np.zeros((1, 2, 3)), np.ones((1, 2, 3)), np.array([3, 0]), np.array([0, 0])), "nothing"),
    ],
)
def test_invalid_arguments_raise_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
