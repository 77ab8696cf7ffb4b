"""Action value and the choice of an arm, against quadrature and against the rule written out arm by arm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from shoestring.models.freeze_thaw.action_value import Plan, action_value, choose, outlook, plan, steps_to_best

Floats = NDArray[np.float64]
INF = np.inf

# means on a coarse grid, so that ties occur
arms = st.lists(
    st.tuples(st.integers(-3000, 3000).map(lambda i: i / 1000), st.floats(1e-3, 2.0)), min_size=1, max_size=6
)


def slow_q(mean: Floats, std: Floats, best_loss: float = INF) -> tuple[int, list[float]]:
    """E min(nu_a, ref_a) on a fine grid of quantiles, the references found by sorting."""
    top = min(range(len(mean)), key=lambda k: (round(float(mean[k]), 10), k))
    others = sorted(mean[k] for k in range(len(mean)) if k != top)
    nodes, weights = np.polynomial.legendre.leggauss(400)
    values = []
    for a in range(len(mean)):
        ref = min((others[0] if others else INF) if a == top else mean[top], best_loss)
        if std[a] == 0.0 or ref == INF:
            values.append(min(mean[a], ref))
            continue
        # the integrand has a kink at ref: integrate either side of it
        low, high = mean[a] - 12 * std[a], mean[a] + 12 * std[a]
        cut = min(max(ref, low), high)
        total = 0.0
        for x0, x1 in ((low, cut), (cut, high)):
            x = 0.5 * (x1 - x0) * nodes + 0.5 * (x0 + x1)
            density = stats.norm.pdf(x, mean[a], std[a])
            total += 0.5 * (x1 - x0) * float(weights @ (np.minimum(x, ref) * density))
        values.append(total)
    return top, values


@settings(deadline=None, max_examples=100)
@given(arms, st.one_of(st.just(INF), st.floats(-3.0, 3.0)))
def test_q_is_the_expected_minimum(drawn: list[tuple[float, float]], best_loss: float) -> None:
    mean, std = (np.array(x) for x in zip(*drawn, strict=True))
    value = action_value(mean, std, best_loss)
    top, wanted = slow_q(mean, std, best_loss)
    assert value.top_arm == top
    np.testing.assert_allclose(value.q, wanted, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(value.gain, min(mean[top], best_loss) - value.q, rtol=1e-7, atol=1e-12)
    assert (value.q <= min(mean[top], best_loss)).all()
    assert (value.gain >= 0.0).all()


@settings(deadline=None, max_examples=50)
@given(arms, st.randoms(use_true_random=False))
def test_permuting_arms_permutes_q(drawn: list[tuple[float, float]], random: Any) -> None:
    mean, std = (np.array(x) for x in zip(*drawn, strict=True))
    order = list(range(len(mean)))
    random.shuffle(order)
    ties = len(set(np.round(mean, 10).tolist())) < len(mean)
    plain, shuffled = action_value(mean, std), action_value(mean[order], std[order])
    if not ties:  # with a tie another arm may be the top arm
        assert order[int(shuffled.top_arm)] == plain.top_arm
    np.testing.assert_allclose(shuffled.q, plain.q[order], rtol=1e-12, atol=1e-12)


def test_gain_keeps_its_digits_far_below_the_reference() -> None:
    """At 20 standard deviations 1 - Q is 0 in floating point; the gain still is the asymptotic phi(s)/s^2 (1 - 3/s^2...)."""
    value = action_value(np.array([1.0, 3.0]), np.array([0.1, 0.1]))
    assert value.q[1] == 1.0
    s = 20.0
    series = stats.norm.pdf(s) / s**2 * (1 - 3 / s**2 + 15 / s**4 - 105 / s**6)
    assert value.gain[1] == pytest.approx(0.1 * series, rel=1e-6)


def test_arms_without_spread_are_worth_their_mean_or_the_reference() -> None:
    value = action_value(np.array([2.0, 1.0, 1.0]), np.zeros(3))
    np.testing.assert_array_equal(value.q, [1.0, 1.0, 1.0])
    np.testing.assert_array_equal(value.gain, np.zeros(3))


def test_arms_that_are_out_have_no_value() -> None:
    value = action_value(np.array([INF, 1.0, INF]), np.array([0.0, 0.5, 0.0]))
    assert value.top_arm == 1
    np.testing.assert_array_equal(value.q, [INF, 1.0, INF])
    np.testing.assert_array_equal(value.gain, [-INF, 0.0, -INF])


def test_q_of_huge_and_tiny_losses_scales() -> None:
    mean, std = np.array([0.5, 0.42, 0.47]), np.array([0.05, 0.02, 0.1])
    plain = action_value(mean, std)
    for size in (1e100, 1e-6):
        np.testing.assert_allclose(action_value(size * mean, size * std).q, size * plain.q, rtol=1e-12)


def test_outlook_takes_the_first_smallest_mean_within_each_horizon() -> None:
    mean = np.array([[5.0, 4.0, 3.0, 2.0, 1.0], [1.0, 9.0, 2.0, 2.0 - 1e-12, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    variance = np.arange(15.0).reshape(3, 5) + 1.0
    got = outlook(mean, variance, np.array([0, 1, 5]), 3)
    np.testing.assert_array_equal(got.mean, [3.0, 2.0, INF])
    np.testing.assert_array_equal(got.tau, [3, 2, 0])
    np.testing.assert_allclose(got.std, [np.sqrt(3.0), np.sqrt(8.0), 0.0])


def test_outlook_refuses_predictions_of_the_past() -> None:
    mean = np.array([[np.nan, np.nan, 1.0]])
    assert outlook(mean, mean, np.array([2]), 5).tau.tolist() == [1]
    with pytest.raises(ValueError, match="still to come"):
        outlook(mean, mean, np.array([1]), 5)


@pytest.mark.parametrize(
    ("curve", "tolerance", "wanted"),
    [
        ([3.0, 2.0, 1.0], 0.0, 3),
        ([1.0, 1.0, 1.0], 0.0, 1),
        ([1.0, 1.0, 1.0], 0.5, 1),
        ([1.0 + 1e-12, 1.0, 1.0 - 1e-12], 0.0, 1),
        ([10.0, 1.4, 1.0, 0.0, 0.0], 0.0, 4),
        ([10.0, 1.4, 1.0, 0.0, 0.0], 0.1, 3),
        ([10.0, 1.4, 1.0, 0.0, 0.0], 0.14, 2),
        ([1.0, 2.0, 3.0], 0.0, 1),
    ],
)
def test_steps_to_best(curve: list[float], tolerance: float, wanted: int) -> None:
    assert steps_to_best(np.array(curve), tolerance) == wanted


def random_predictions(seed: int, n_samples: int = 3, n_arms: int = 5, n_steps: int = 8) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=(n_samples, n_arms, 1)) - 0.3 * rng.random((n_samples, n_arms, n_steps)).cumsum(axis=-1)
    return mean, rng.uniform(0.01, 1.0, (n_samples, n_arms, n_steps))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("remaining", [1, 4, 20])
def test_plan_averages_q_over_samples_and_commits_by_the_averaged_means(seed: int, remaining: int) -> None:
    mean, variance = random_predictions(seed)
    trained = np.array([0, 3, 8, 7, 1])
    got = plan(mean, variance, trained, remaining)
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
    assert got.mean[top] == best[top]
    assert got.tau_star == 1 + int(np.argmin(averaged[top, trained[top] : trained[top] + remaining])) == got.tau[top]
    assert got.committed == (got.tau_star >= remaining)


def test_one_sample_is_the_same_with_and_without_its_axis() -> None:
    mean, variance = random_predictions(1, n_samples=1)
    trained = np.zeros(5, dtype=int)
    one, many = (
        plan(mean[0], variance[0], trained, 6),
        plan(np.tile(mean, (4, 1, 1)), np.tile(variance, (4, 1, 1)), trained, 6),
    )
    np.testing.assert_allclose(one.q, many.q, rtol=1e-12)
    assert (one.top_arm, one.tau_star) == (many.top_arm, many.tau_star)


def test_tolerance_delays_the_commitment_only() -> None:
    mean = np.array([[2.0, 1.0, 0.99, 0.985], [3.0, 2.9, 2.8, 2.7]])
    variance = np.full_like(mean, 0.1)
    exact, loose = (plan(mean, variance, np.zeros(2, dtype=int), 4, tolerance) for tolerance in (0.0, 0.05))
    assert exact.committed
    assert exact.tau_star == 4
    assert not loose.committed
    assert loose.tau_star == 2
    np.testing.assert_array_equal(exact.q, loose.q)


def made(gain: list[float], top_arm: int = 0, tau_star: int = 1, remaining: int = 9) -> Plan:
    g = np.array(gain)
    return Plan(
        q=-g,
        gain=g,
        mean=np.zeros(len(g)),
        tau=np.ones(len(g), dtype=np.intp),
        top_arm=top_arm,
        tau_star=tau_star,
        remaining=remaining,
    )


@pytest.mark.parametrize("epsilon", [None, 0.0, 0.5])
def test_commitment_takes_the_top_arm(epsilon: float | None) -> None:
    decided = made([5.0, 1.0, 2.0], top_arm=1, tau_star=3, remaining=3)
    assert {choose(decided, np.random.default_rng(seed), epsilon) for seed in range(20)} == {1}


def test_bhpt_takes_the_largest_gain_and_the_lowest_index_of_a_tie() -> None:
    rng = np.random.default_rng(0)
    assert choose(made([0.1, 0.3, 0.2]), rng) == 1
    assert choose(made([0.1, 0.3, 0.3 * (1 + 1e-14)]), rng) == 1
    assert choose(made([1e-200, 3e-200, 2e-200]), rng) == 1
    assert choose(made([0.1, -INF, 0.2]), rng) == 2


def test_with_nothing_to_learn_the_top_arm_goes_on() -> None:
    rng = np.random.default_rng(0)
    assert choose(made([0.0, 0.0, 0.0], top_arm=2), rng) == 2
    assert choose(made([-INF, 0.0, -INF], top_arm=1), rng, epsilon=0.0) == 1


@pytest.mark.parametrize("epsilon", [0.0, 0.25, 1.0])
def test_bhpt_eps_takes_the_top_arm_with_probability_epsilon(epsilon: float) -> None:
    """The top arm has the largest gain; otherwise it is the best of the others that runs."""
    decided = made([0.9, 0.1, 0.4, 0.3], top_arm=0)
    rng = np.random.default_rng(5)
    chosen = [choose(decided, rng, epsilon) for _ in range(2000)]
    assert set(chosen) <= {0, 2}
    share = chosen.count(0) / len(chosen)
    assert abs(share - epsilon) <= 4.0 * np.sqrt(epsilon * (1 - epsilon) / len(chosen))
    assert decided.gain.tolist() == [0.9, 0.1, 0.4, 0.3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: action_value(np.array([np.nan]), np.array([1.0])), "nan"),
        (lambda: action_value(np.array([1.0]), np.array([-1.0])), "below 0"),
        (lambda: steps_to_best(np.zeros(2), 1.0), "tolerance=1.0"),
        (lambda: choose(made([1.0]), np.random.default_rng(0), 1.5), "epsilon=1.5"),
        (lambda: plan(np.zeros((2, 3)), np.ones((2, 3)), np.array([3, 3]), 5), "nothing to decide"),
        (lambda: plan(np.zeros((2, 3)), np.ones((2, 3)), np.array([0, 0]), 0), "nothing to decide"),
    ],
)
def test_misuse_is_explained(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
