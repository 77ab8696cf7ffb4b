"""Curve compression: scores and derivatives against plain loops and finite differences."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from thoroughness import examples

from shoestring.models.boil.compression import CurveMatrix, Preference, compress, reward_shift, standardise

MAX_STEPS = 12
PREFERENCES: tuple[Preference, ...] = get_args(Preference)
rewards = st.integers(-5_000_000, 5_000_000).map(
    lambda i: i / 1e6
)  # no subnormal numbers: their products lose all digits
curve_lists = st.lists(
    st.lists(rewards, min_size=1, max_size=MAX_STEPS),
    min_size=1,
    max_size=40,
)
midpoints, growths, shifts = st.floats(-6.0, 10.0), st.floats(0.1, 3.0), st.floats(0.0, 10.0)
preferences = st.sampled_from(PREFERENCES)
quick = examples(20, thorough=60)


def plain_score(curve: list[float], m0: float, g0: float, shift: float, preference: Preference) -> float:
    """Return the score of one curve, summed step by step as in the formula."""
    t = len(curve)
    terms = []
    for u in range(1, t + 1):
        v = -6.0 + 12.0 * (u - 1) / (MAX_STEPS - 1)
        weight = {
            "logistic": 1.0 / (1.0 + math.exp(-g0 * (v - m0))),
            "tail_mean": 1.0 / (1.0 + math.exp(-g0 * (v - m0))),
            "log": math.log(0.01 + 4.99 * (u - 1) / (MAX_STEPS - 1)),
            "average": 1.0,
        }[preference]
        terms.append((curve[u - 1] + shift) * weight)
    if preference == "average":
        return sum(terms) / t
    if preference == "tail_mean":
        tail = terms[min(max(int((m0 + 4.0) * t / 12.0), 0), t - 1) :]
        return sum(tail) / len(tail)
    return sum(terms)


@given(curve_lists, midpoints, growths, shifts, preferences)
@quick
def test_scores_equal_plain_loops(
    curves: list[list[float]], m0: float, g0: float, shift: float, preference: Preference
) -> None:
    scores, _ = compress(CurveMatrix.of(curves, MAX_STEPS), midpoint=m0, growth=g0, shift=shift, preference=preference)
    expected = [plain_score(curve, m0, g0, shift, preference) for curve in curves]
    np.testing.assert_allclose(scores, expected, rtol=1e-11, atol=1e-11)


def central_difference(
    matrix: CurveMatrix, m0: float, g0: float, shift: float, preference: Preference, *, standardised: bool
) -> NDArray[np.float64]:
    def at(m: float, g: float) -> NDArray[np.float64]:
        scores, slopes = compress(matrix, midpoint=m, growth=g, shift=shift, preference=preference)
        return standardise(scores, slopes)[0] if standardised else scores

    h = 1e-5
    by_m0 = (at(m0 + h, g0) - at(m0 - h, g0)) / (2 * h)
    by_g0 = (at(m0, g0 + h) - at(m0, g0 - h)) / (2 * h)
    return np.stack([by_m0, by_g0], axis=1)


@given(curve_lists, st.floats(-4.0, 4.0), st.floats(0.2, 3.0), shifts, preferences)
@quick
def test_derivatives_equal_finite_differences(
    curves: list[list[float]], m0: float, g0: float, shift: float, preference: Preference
) -> None:
    matrix = CurveMatrix.of(curves, MAX_STEPS)
    if preference == "tail_mean":  # m0 between two steps of the start of the tail
        starts = (m0 + 4.0) * matrix.lengths / 12.0
        assume(np.all(np.abs(starts - np.rint(starts)) > 1e-4))
    _, slopes = compress(matrix, midpoint=m0, growth=g0, shift=shift, preference=preference)
    expected = central_difference(matrix, m0, g0, shift, preference, standardised=False)
    np.testing.assert_allclose(slopes, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_derivatives_through_the_standardisation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = CurveMatrix.of([rng.random(rng.integers(1, MAX_STEPS + 1)) for _ in range(9)], MAX_STEPS)
    m0, g0 = rng.uniform(-3.0, 3.0), rng.uniform(0.3, 2.5)
    values, gradient = standardise(*compress(matrix, midpoint=m0, growth=g0))
    expected = central_difference(matrix, m0, g0, 0.0, "logistic", standardised=True)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)
    # mean 0 and deviation 1 for all parameters, so the derivative changes neither
    np.testing.assert_allclose(gradient.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(values @ gradient, 0.0, atol=1e-12)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20), st.floats(1e-3, 1e3), st.floats(-1e3, 1e3))
@quick
def test_standardised_scores_do_not_depend_on_unit_and_origin(values: list[float], unit: float, origin: float) -> None:
    scores = np.array(values)
    assume(np.ptp(scores) > 1e-3)
    none = np.zeros((len(scores), 2))
    (plain, _), (moved, _) = standardise(scores, none), standardise(unit * scores + origin, none)
    np.testing.assert_allclose(moved, plain, atol=1e-6)
    np.testing.assert_allclose(plain.mean(), 0.0, atol=1e-9)
    np.testing.assert_allclose(plain.std(), 1.0, rtol=1e-9)


@pytest.mark.parametrize("scores", [[3.0], [0.0, 0.0], [1e200, 1e200, 1e200], [0.1 + 0.2, 0.3]])
def test_constant_scores_become_zeros(scores: list[float]) -> None:
    values, gradient = standardise(np.array(scores), np.ones((len(scores), 2)))
    assert np.all(values == 0.0)
    assert np.all(gradient == 0.0)


def test_huge_scores_do_not_overflow() -> None:
    values, _ = standardise(np.array([-1e200, 0.0, 1e200]), np.zeros((3, 2)))
    np.testing.assert_allclose(values, np.array([-1.0, 0.0, 1.0]) * math.sqrt(1.5))


@given(st.lists(rewards, min_size=2, max_size=MAX_STEPS), midpoints, growths)
@quick
def test_scores_of_shifted_rewards_never_fall_with_length(curve: list[float], m0: float, g0: float) -> None:
    matrix = CurveMatrix.of([curve[:t] for t in range(1, len(curve) + 1)], MAX_STEPS)
    shift = reward_shift(min(curve), max(curve))
    scores, _ = compress(matrix, midpoint=m0, growth=g0, shift=shift)
    rounding = 1e-13 * max(map(abs, curve))  # the shift is added to the sum, not to each reward
    assert np.all(np.diff(scores) >= -rounding)


def test_without_a_shift_negative_rewards_favour_short_curves() -> None:
    matrix = CurveMatrix.of([[-1.0] * t for t in (2, 6, 12)], MAX_STEPS)
    scores, _ = compress(matrix, midpoint=0.0, growth=1.0)
    assert np.argmax(scores) == 0
    lifted, _ = compress(matrix, midpoint=0.0, growth=1.0, shift=reward_shift(-2.0, -2.0))
    assert np.argmax(lifted) == 2


def test_the_shift_stays_while_it_is_large_enough() -> None:
    first = reward_shift(-10.0, 0.0)
    assert first == 11.0
    assert reward_shift(-10.9, 5.0, current=first) == first
    assert reward_shift(3.0, 5.0, current=first) == first
    assert reward_shift(-12.0, 8.0, current=first) == 14.0
    assert reward_shift(0.0, 1.0) == 0.0
    assert reward_shift(-200.0, -200.0) == 200.0  # without a range there is no margin


def test_a_prefix_has_exactly_its_own_steps() -> None:
    curve = np.arange(1.0, 13.0)
    matrix = CurveMatrix.of([curve[:7], np.where(np.arange(12) < 7, curve, 0.0)], MAX_STEPS)
    scores, _ = compress(matrix, midpoint=0.0, growth=1.0)
    assert matrix.lengths.tolist() == [7, 12]
    assert scores[0] == scores[1]  # the padding has no effect


def test_one_step_of_training() -> None:
    scores, slopes = compress(CurveMatrix.of([[2.0], [3.0]], 1), midpoint=0.0, growth=1.0)
    np.testing.assert_allclose(scores, np.array([2.0, 3.0]) / (1.0 + math.exp(6.0)))
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("curve", [[], [0.0] * (MAX_STEPS + 1), [[1.0, 2.0]]])
def test_curves_of_the_wrong_length_are_refused(curve: list[float]) -> None:
    with pytest.raises(ValueError, match="must be a list of 1 to max_steps=12"):
        CurveMatrix.of([curve], MAX_STEPS)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rewards_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="must be finite: cut a diverged curve"):
        CurveMatrix.of([[1.0, bad]], MAX_STEPS)


def test_invalid_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="max_steps=0"):
        CurveMatrix.of([], 0)
    with pytest.raises(ValueError, match="lowest first"):
        reward_shift(1.0, 0.0)
    with pytest.raises(ValueError, match="unknown"):
        compress(CurveMatrix.of([[1.0]], 2), midpoint=0.0, growth=1.0, preference="median")  # type: ignore[arg-type]
