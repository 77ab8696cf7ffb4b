"""Log EI against 80-digit arithmetic, its gradients, and the selection rules against brute force."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from shoestring.models.gp import acquisition as aq
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import condition

Array = NDArray[np.float64]

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803")
Z = [8.0, 2.0, 0.5, 0.25, -0.25, -0.9999, -1.0001, -3.0, -12.0, -29.9, -30.1, -100.0, -999.0, -1001.0, -1e4]


def exact(z: float) -> tuple[Decimal, Decimal, Decimal]:
    """h = phi + z Phi as (log h, Phi / h, phi / h), by the continued fraction of Mills' ratio with 80 digits."""
    with localcontext() as context:
        context.prec = 80
        t = abs(Decimal(z))
        below = t
        for k in range(20_000, 0, -1):
            below = t + k / below
        mills = 1 / below
        log_pdf = -t * t / 2 - (2 * PI).ln() / 2
        bracket = 1 - t * mills  # h(-t) / phi(t)
        if z < 0:
            return log_pdf + bracket.ln(), mills / bracket, 1 / bracket
        pdf = log_pdf.exp()
        h = t + pdf * bracket  # h(t) = t + h(-t)
        return h.ln(), (1 - mills * pdf) / h, pdf / h


@pytest.mark.parametrize("z", Z)
def test_log_ei_and_its_gradient_to_all_digits(z: float) -> None:
    want_log, want_cdf, want_pdf = (float(v) for v in exact(z))
    got = aq.log_expected_improvement(np.array([0.0]), np.array([1.0]), z)
    np.testing.assert_allclose(got, want_log, rtol=1e-13, atol=1e-12)
    # one input moves the mean, the other the variance: d log EI / d mu = -Phi / h, d log EI / d sigma = phi / h at sigma 1
    value, gradient = aq.log_expected_improvement_gradient(
        np.array([0.0]), np.array([1.0]), np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]), z
    )
    np.testing.assert_allclose(value, want_log, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(gradient[0], [-want_cdf, want_pdf], rtol=1e-11)


def test_leading_tail_term() -> None:
    z = -1e4
    got = aq.log_expected_improvement(np.array([0.0]), np.array([1.0]), z)[0]
    first_terms = -0.5 * z * z - 0.5 * math.log(2 * math.pi) - 2 * math.log(-z) + math.log1p(-3 / z**2)
    np.testing.assert_allclose(got, first_terms, rtol=1e-15)
    assert np.exp(got) == 0.0  # which is why everything is compared in logs


@settings(deadline=None, max_examples=60)
@given(st.floats(-50, 50), st.floats(1e-3, 1e3), st.floats(-50, 50), st.floats(1e-6, 1e6))
def test_ei_is_sound(mean: float, std: float, f_min: float, unit: float) -> None:
    at = np.array([mean, mean, mean + 0.1 * std])
    log_ei = aq.log_expected_improvement(at, np.array([std, 1.1 * std, std]), f_min)
    assert np.all(np.isfinite(log_ei))
    assert log_ei[1] >= log_ei[0] - 1e-14 * abs(log_ei[0])  # more uncertain is never worse, up to the last digit
    assert log_ei[0] > log_ei[2]  # a larger mean is
    ei = aq.expected_improvement(at[:1], np.array([std]), f_min)
    assert ei >= max(0.0, f_min - mean) * (1 - 1e-12)  # Jensen
    moved = aq.log_expected_improvement(unit * at[:1], np.array([unit * std]), unit * f_min)
    np.testing.assert_allclose(moved - math.log(unit), log_ei[:1], rtol=1e-9, atol=1e-9)


def test_without_uncertainty_ei_is_the_improvement() -> None:
    mean, std = np.array([1.0, 2.0, 3.0, 1.0]), np.array([0.0, 0.0, 0.0, 1e-200])
    assert aq.log_expected_improvement(mean, std, 2.0).tolist() == [0.0, -np.inf, -np.inf, 0.0]
    assert aq.expected_improvement(mean, std, 2.0).tolist() == [1.0, 0.0, 0.0, 1.0]
    assert aq.log_probability_of_improvement(mean, std, 2.0).tolist() == [0.0, -np.inf, -np.inf, 0.0]
    assert aq.log_expected_improvement(np.empty(0), np.empty(0), 0.0).shape == (0,)


def test_probability_of_improvement_and_ucb() -> None:
    mean, std = np.array([0.0, 1.0, 50.0]), np.array([1.0, 2.0, 1.0])
    got = aq.log_probability_of_improvement(mean, std, 0.5)
    want = [math.log(0.5 * math.erfc(-0.5 / math.sqrt(2))), math.log(0.5 * math.erfc(0.25 / math.sqrt(2)))]
    np.testing.assert_allclose(got[:2], want, rtol=1e-13)
    assert -1240 < got[2] < -1220  # -49.5^2 / 2 - log(49.5 sqrt(2 pi))
    assert aq.ucb(mean, std, 2.0).tolist() == [2.0, 3.0, -48.0]
    assert int(np.argmax(aq.ucb(mean, std, 0.0))) == 0  # maximised, so the smallest mean wins


def test_log_ei_gradient_through_a_gp() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((12, 3))
    y = np.sin(4 * x[:, 0]) + x[:, 1]
    gp = condition(Kernel.ard("matern52", 3), np.array([0.0, -0.7, -0.2, 0.3, -6.0]), x, y)
    x_new = rng.random((5, 3))
    f_min = float(gp.fitted().min()) - 2.0  # deep in the tail for some

    def log_ei(at: Array) -> Array:
        mean, variance = gp.predict(at)
        return aq.log_expected_improvement(mean, np.sqrt(variance), f_min)

    value, gradient = aq.log_expected_improvement_gradient(*gp.predict_with_gradient(x_new), f_min)
    np.testing.assert_allclose(value, log_ei(x_new), rtol=1e-9)
    for j in range(3):
        h = 1e-6 * np.eye(3)[j]
        np.testing.assert_allclose(gradient[:, j], (log_ei(x_new + h) - log_ei(x_new - h)) / 2e-6, rtol=1e-5)


# --- selection -------------------------------------------------------------------------------------------------------

candidates = st.lists(
    st.tuples(st.integers(-6, 6), st.integers(-5, 5)), min_size=1, max_size=25
)  # few values, many ties


def split(rows: list[tuple[int, int]]) -> tuple[Array, Array]:
    log_ei, log_cost = np.array(rows, dtype=float).T / 4
    return np.ascontiguousarray(log_ei), np.ascontiguousarray(log_cost)


def brute_front(log_ei: Array, log_cost: Array) -> list[int]:
    pairs = list(zip(log_ei.tolist(), log_cost.tolist(), strict=True))
    return [
        i for i, (e, c) in enumerate(pairs) if not any(e2 >= e and c2 <= c and (e2 > e or c2 < c) for e2, c2 in pairs)
    ]


@settings(deadline=None, max_examples=100)
@given(candidates)
def test_front_is_what_nothing_dominates(rows: list[tuple[int, int]]) -> None:
    log_ei, log_cost = split(rows)
    assert aq.pareto_front(log_ei, log_cost).tolist() == brute_front(log_ei, log_cost)
    log_ei[log_ei < 0] = -np.inf
    assert aq.pareto_front(log_ei, log_cost).tolist() == brute_front(log_ei, log_cost)


@settings(deadline=None, max_examples=100)
@given(candidates, st.sampled_from([0.0, 0.05, 0.3, 0.6, 0.9, 1.0]))
def test_cei_is_the_cheapest_admissible_point(rows: list[tuple[int, int]], slack: float) -> None:
    log_ei, log_cost = split(rows)
    best = math.exp(log_ei.max())
    admissible = [i for i in range(len(rows)) if math.exp(log_ei[i]) >= (1 - slack) * best * (1 - 1e-12)]
    want = min(admissible, key=lambda i: (log_cost[i], -log_ei[i], i))
    assert aq.choose_cei(log_ei, log_cost, slack) == want
    assert want in brute_front(log_ei, log_cost)


@settings(deadline=None, max_examples=60)
@given(candidates)
def test_every_front_point_is_reached_by_some_slack(rows: list[tuple[int, int]]) -> None:
    log_ei, log_cost = split(rows)
    seen = set()
    for i in aq.pareto_front(log_ei, log_cost):
        chosen = aq.choose_cei(log_ei, log_cost, float(-np.expm1(log_ei[i] - log_ei.max())))
        assert (log_ei[chosen], log_cost[chosen]) == (log_ei[i], log_cost[i])
        seen.add(chosen)
    assert aq.choose_cei(log_ei, log_cost, 0.0) in seen


@settings(deadline=None, max_examples=60)
@given(candidates, st.lists(st.floats(0, 4), min_size=2, max_size=6))
def test_choices_get_cheaper_as_cost_counts_more(rows: list[tuple[int, int]], alphas: list[float]) -> None:
    log_ei, log_cost = split(rows)
    by_alpha = [log_cost[aq.choose_ei_alpha(log_ei, log_cost, a)] for a in sorted(alphas)]
    by_slack = [log_cost[aq.choose_cei(log_ei, log_cost, a / 4)] for a in sorted(alphas)]
    assert all(later <= sooner + 1e-12 for sooner, later in pairwise(by_alpha))
    assert all(later <= sooner for sooner, later in pairwise(by_slack))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.floats(-20, 20), st.floats(0, 3), st.floats(0, 1))
def test_the_unit_of_cost_does_not_matter(seed: int, log_unit: float, alpha: float, slack: float) -> None:
    log_ei, log_cost = np.random.default_rng(seed).standard_normal((2, 50))
    other = log_cost + log_unit
    assert aq.choose_cei(log_ei, log_cost, slack) == aq.choose_cei(log_ei, other, slack)
    assert aq.choose_ei_alpha(log_ei, log_cost, alpha) == aq.choose_ei_alpha(log_ei, other, alpha)
    assert aq.pareto_front(log_ei, log_cost).tolist() == aq.pareto_front(log_ei, other).tolist()
    chosen = aq.choose_cei(log_ei, log_cost, slack)
    one, two = aq.implied_alpha(log_ei, log_cost, chosen), aq.implied_alpha(log_ei, other, chosen)
    assert one.supported == two.supported
    np.testing.assert_allclose(two.alpha, one.alpha, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=80)
@given(candidates)
def test_implied_alpha_against_every_crossing(rows: list[tuple[int, int]]) -> None:
    """The gap to the best score is convex and piecewise linear in alpha: its minimum is at 0 or where two scores cross."""
    log_ei, log_cost = split(rows)
    apart = log_cost[:, None] - log_cost[None, :]
    slopes = (log_ei[:, None] - log_ei[None, :])[apart > 0] / apart[apart > 0]
    alphas = np.concatenate([[0.0], slopes[slopes > 0], [1e3]])
    scores = log_ei[:, None] - alphas * log_cost[:, None]  # (m, n_alphas)
    for i in range(len(rows)):
        gaps = (scores - scores[i]).max(axis=0)
        implied = aq.implied_alpha(log_ei, log_cost, i)
        assert implied.supported == (gaps.min() <= 1e-9)
        np.testing.assert_allclose(implied.gap, gaps.min() if not implied.supported else 0.0, rtol=1e-9, atol=1e-9)
        score = log_ei - implied.alpha * log_cost
        np.testing.assert_allclose(score.max() - score[i], implied.gap, atol=1e-9)
        if implied.supported:
            for alpha in (implied.low, min(implied.high, 1e3)):
                score = log_ei - alpha * log_cost
                assert score[i] >= score.max() - 1e-9


def test_points_without_improvement() -> None:
    nothing = np.full(3, -np.inf)
    log_cost = np.array([1.0, 0.0, 2.0])
    assert aq.choose_ei(nothing, log_cost) == aq.choose_eipu(nothing, log_cost) == 1
    assert aq.choose_cei(nothing, log_cost, 0.1) == 1
    some = np.array([0.0, -np.inf, 2.0, 0.5])
    log_cost = np.array([1.0, 0.0, 2.0, 1.5])
    assert aq.choose_cei(some, log_cost, 0.999) == 0
    assert aq.choose_cei(some, log_cost, 1.0) == 1
    implied = aq.implied_alpha(some, log_cost, 3)
    assert not implied.supported
    np.testing.assert_allclose([implied.alpha, implied.gap], [2.0, 0.5])
    with pytest.raises(ValueError, match="a point without improvement implies no alpha"):
        aq.implied_alpha(some, log_cost, 1)


def test_one_candidate() -> None:
    one, cost = np.array([-5.0]), np.array([3.0])
    assert aq.choose_ei(one, cost) == aq.choose_cei(one, cost, 0.3) == 0
    assert aq.pareto_front(one, cost).tolist() == [0]
    assert aq.implied_alpha(one, cost, 0) == aq.ImpliedAlpha(0.0, math.inf, True, 0.0, 0.0)


def test_underflowing_ei_is_still_ranked() -> None:
    log_ei = np.array([-5000.0, -5000.05, -9000.0])
    log_cost = np.array([2.0, 1.0, 0.0])
    assert aq.choose_cei(log_ei, log_cost, 0.1) == 1
    assert aq.choose_eipu(log_ei, log_cost) == 1


def test_cooling_with_a_spent_budget() -> None:
    assert aq.cooling_exponent(10.0, 10.0, 10.0) == 0.0
    assert aq.cooling_exponent(10.0, 12.0, 12.0) == 0.0
    assert aq.cooling_exponent(10.0, 2.0, 1.0) == 1.0


def test_wrong_arguments_are_refused_with_advice() -> None:
    a, b = np.zeros(2), np.zeros(2)
    with pytest.raises(ValueError, match=r"alpha=-1.0 must be >= 0"):
        aq.choose_ei_alpha(a, b, -1.0)
    with pytest.raises(ValueError, match=r"slack=1.5 must lie in 0..1"):
        aq.choose_cei(a, b, 1.5)
    with pytest.raises(ValueError, match="one number for each candidate"):
        aq.choose_ei(a, np.zeros(3))
    with pytest.raises(ValueError, match="one number for each candidate"):
        aq.pareto_front(np.empty(0), np.empty(0))
    with pytest.raises(ValueError, match="floor the costs above 0"):
        aq.choose_ei(a, np.array([0.0, -np.inf]))
    with pytest.raises(ValueError, match="no NaN"):
        aq.choose_ei(np.array([0.0, np.nan]), b)
