from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.models.first_looks import Curve, measure_agreement, place_trials, score_places

LOSS = st.one_of(st.integers(-5, 5).map(float), st.just(math.inf))
CURVE = st.lists(st.one_of(LOSS, st.none()), min_size=1, max_size=20).filter(
    lambda curve: any(x is not None for x in curve)
)
CURVES = st.lists(CURVE, min_size=1, max_size=12)


def newest(curve: Curve, step: int) -> float | None:
    return next((loss for loss in reversed(curve[:step]) if loss is not None), None)


def slow_places(curves: list[Curve]) -> list[float]:
    """Assign the places by the first losses, then again among those that have 2, 4, 8, … steps, by their losses there."""
    first = [next(loss for loss in curve if loss is not None) for curve in curves]
    places = assign([i + 0.5 for i in range(len(curves))], first)
    for step in (2, 4, 8, 16):
        there = [
            (i, loss)
            for i, curve in enumerate(curves)
            if len(curve) >= step
            for loss in [newest(curve, step)]
            if loss is not None
        ]
        for (i, _), place in zip(
            there, assign([places[i] for i, _ in there], [loss for _, loss in there]), strict=True
        ):
            places[i] = place
    return [place / len(curves) for place in places]


def assign(places: list[float], losses: list[float]) -> list[float]:
    ordered = sorted(places)
    ranks = [[r for r, other in enumerate(sorted(losses)) if other == loss] for loss in losses]
    return [sum(ordered[r] for r in own) / len(own) for own in ranks]


def slow_agreement(curves: list[Curve]) -> float:
    first = max(1, min(map(len, curves)))
    late = [c for c in curves if len(c) >= 8 * first and newest(c, first) is not None]
    agreed, pairs = 6.0, 10.0
    for i, a in enumerate(late):
        for b in late[:i]:
            step = 8 * first
            while 2 * step <= min(len(a), len(b)):
                step *= 2
            before, after = (np.sign(newest(a, s) - newest(b, s)) for s in (first, step))  # type: ignore[operator]
            if before * after in (-1.0, 1.0):  # equal losses do not count, nor do two infinite ones
                pairs += 1
                agreed += before * after > 0
    return agreed / pairs


def test_trials_are_compared_at_the_furthest_power_of_two_that_both_reached() -> None:
    # The last two went to step 2, where they exchange their places 1 and 3.
    assert place_trials([[2.0], [1.0, 0.9], [3.0, 0.1]]) == pytest.approx([0.5, 5 / 6, 1 / 6])


def test_a_diverged_trial_has_the_last_place_and_equal_losses_share_theirs() -> None:
    assert place_trials([[math.inf], [1.0], [1.0], [0.0]]) == pytest.approx([7 / 8, 1 / 2, 1 / 2, 1 / 8])


def test_scores_are_normal_quantiles() -> None:
    scores = score_places(np.array([0.025, 0.5, 0.8413447460685429]))
    assert scores == pytest.approx([-1.959963984540054, 0.0, 1.0])


@given(CURVES)
def test_places_equal_those_of_the_slow_rule(curves: list[Curve]) -> None:
    assert place_trials(curves) == pytest.approx(slow_places(curves))


@given(CURVES)
def test_places_lie_inside_and_have_the_mean_one_half(curves: list[Curve]) -> None:
    places = place_trials(curves)
    assert np.all((places > 0.0) & (places < 1.0))
    assert places.mean() == pytest.approx(0.5)


@given(CURVES)
def test_places_depend_on_the_order_of_losses_only(curves: list[Curve]) -> None:
    stretched = [[None if x is None else math.atan(x) * 1e-3 + 7.0 for x in curve] for curve in curves]
    assert place_trials(stretched) == pytest.approx(place_trials(curves))


def test_agreement_is_high_where_the_order_stays_and_low_where_it_turns() -> None:
    dropped: list[Curve] = [[99.0]]  # stopped after its first look, which is at step 1 therefore
    stays = dropped + [[float(i)] * 8 for i in range(10)]
    turns = dropped + [[float(i)] * 4 + [-float(i)] * 4 for i in range(10)]
    assert measure_agreement(stays) == pytest.approx((45 + 6) / (45 + 10))
    assert measure_agreement(turns) == pytest.approx(6 / (45 + 10))
    assert measure_agreement([[1.0], [2.0] * 8]) == measure_agreement([]) == 0.6  # no pair


def test_agreement_uses_the_newest_trials_only() -> None:
    dropped: list[Curve] = [[99.0]]
    turns: list[Curve] = [[float(i)] * 4 + [-float(i)] * 4 for i in range(64)]
    stays: list[Curve] = [[float(i)] * 8 for i in range(100)]
    assert measure_agreement(dropped + stays + turns) == measure_agreement(dropped + turns)


@given(st.lists(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=40), min_size=2, max_size=10))
def test_agreement_equals_that_of_the_slow_rule(curves: list[list[float]]) -> None:
    assert measure_agreement(curves) == pytest.approx(slow_agreement(list(curves)))
