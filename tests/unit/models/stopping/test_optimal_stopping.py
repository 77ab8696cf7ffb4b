"""Stopping rule on curves with a known result, and the numbers that the search method provides."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, keep_paths_within_unit
from shoestring.models.stopping.decision_map import FINISH, STOP, solve_backwards, statistic_cell
from shoestring.models.stopping.optimal_stopping import (
    StoppingRule,
    k1_schedule,
    noise_correction,
    surrogate_allows_stop,
)

GOOD_START = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]
FAST = StoppingRule(n_paths=20_000)


def test_the_curve_fit_is_a_setting_of_the_rule() -> None:
    losses = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]
    means = {fit: StoppingRule(n_paths=100, curve_fit=fit).forecast(losses)[1][0] for fit in ("likelihood", "update")}
    assert means["update"] < 0.001 < 0.1 < means["likelihood"]
    with pytest.raises(ValueError, match="curve_fit='best' must be 'likelihood' or 'update'"):
        StoppingRule(curve_fit="best")  # type: ignore[arg-type]


def test_k1_schedules_by_name_and_number() -> None:
    assert k1_schedule("fixed", 40) == 100.0
    for name, g in (("small", 0.99), ("normal", 0.95), ("large", 0.89)):
        assert k1_schedule(name, 3) == k1_schedule(g, 3) == pytest.approx(100.0 / g / g / g)
    assert k1_schedule(0.5, 5000) == math.inf


@given(st.integers(1, 500), st.floats(1e-6, 1.0), st.floats(0.01, 0.99))
@examples(17, thorough=50)
def test_the_noise_correction_grows_with_time_and_scales_with_the_deviation(
    t: int, variance: float, delta: float
) -> None:
    assert noise_correction(t, variance, delta) < noise_correction(t + 1, variance, delta)
    assert noise_correction(t, 4.0 * variance, delta) == pytest.approx(2.0 * noise_correction(t, variance, delta))


def test_c2_holds_up_to_its_bound() -> None:
    assert surrogate_allows_stop(0.5, 1.0)
    assert not surrogate_allows_stop(0.5, 1.0 + 1e-7)
    assert surrogate_allows_stop(0.0, 0.0)


# the rule -----------------------------------------------------------------------------------------------------------


def find_stop(rule: StoppingRule, curve: list[float], incumbent: float, seed: int = 0) -> int | None:
    plan = rule.plan(curve, incumbent, np.random.default_rng(seed))
    return next((n for n in range(1, len(curve) + 1) if plan.decide(curve[:n]).stop), None)


def test_a_training_stuck_far_above_the_incumbent_is_stopped_soon_after_n0() -> None:
    flattening = [0.6 + 0.2 * math.exp(-0.5 * n) for n in range(1, 51)]
    step = find_stop(FAST, flattening, 0.05)
    assert step is not None
    assert FAST.n0 < step <= 12
    decision = FAST.plan(flattening, 0.05, np.random.default_rng(0)).decide(flattening[:step])
    assert decision.decision == STOP
    assert decision.prob_better < 0.2
    assert decision.loss_stop <= decision.loss_finish
    assert decision.loss_stop < decision.loss_continue
    assert decision.paths_in_cell > FAST.min_paths
    assert decision.cell == statistic_cell(np.array(decision.statistic), 100)


def test_a_training_better_than_the_incumbent_is_trained_in_full() -> None:
    good = GOOD_START + [0.178 - 0.001 * n for n in range(42)]
    plan = FAST.plan(good, 0.4, np.random.default_rng(0))
    decisions = [plan.decide(good[:n]) for n in range(1, 51)]
    assert not any(v.stop for v in decisions)
    assert decisions[10].decision == FINISH
    assert decisions[10].prob_better > 0.9
    assert decisions[7].reason == "the first 8 steps are always trained"
    assert math.isnan(decisions[7].prob_better)
    assert decisions[49].reason == "trained in full"
    assert math.isnan(decisions[49].loss_continue)


def test_a_larger_loss_of_stopping_stops_no_earlier() -> None:
    flat = GOOD_START + [0.18] * 42
    steps = [find_stop(replace(FAST, k1=k1), flat, 0.13) for k1 in (100.0, 400.0, math.inf)]
    assert steps[0] is not None
    assert steps[1] is None or steps[1] >= steps[0]
    assert steps[2] is None


def test_with_infinite_k1_nothing_is_stopped() -> None:
    flattening = [0.9] * 50
    plan = replace(FAST, k1=math.inf).plan(flattening, 0.05, np.random.default_rng(0))
    decision = plan.decide(flattening[:20])
    assert (decision.stop, decision.decision, decision.reason) == (False, STOP, "k1 is infinite: nothing is stopped")


def test_without_an_incumbent_nothing_is_stopped() -> None:
    assert find_stop(FAST, [0.9] * 50, math.inf) is None


def test_noise_allowance_counts_as_a_worse_incumbent() -> None:
    first, second = (
        FAST.plan(GOOD_START, incumbent, np.random.default_rng(0), xi=xi)
        for incumbent, xi in ((0.125, 0.0625), (0.1875, 0.0))
    )
    np.testing.assert_array_equal(first.decisions.prob_better, second.decisions.prob_better)


@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (-1.0, 3.0), (8.0, 16.0)])
def test_losses_in_other_units_give_the_same_decision(low: float, high: float) -> None:
    errors = [
        round(v * 1024) / 1024 for v in GOOD_START + [0.18] * 30
    ]  # dyadic numbers: the conversion of units is exact
    rescaled = [low + (high - low) * v for v in errors]
    plain = FAST.plan(errors, 0.125, np.random.default_rng(7))
    other = replace(FAST, low=low, high=high).plan(rescaled, low + (high - low) * 0.125, np.random.default_rng(7))
    assert plain.fit == other.fit
    np.testing.assert_array_equal(plain.decisions.decision, other.decisions.decision)
    assert plain.decide(errors) == other.decide(rescaled)


def test_the_plan_uses_only_the_first_n0_losses() -> None:
    short, long = (FAST.plan(GOOD_START + tail, 0.1, np.random.default_rng(0)) for tail in ([], [0.5, 0.01]))
    np.testing.assert_array_equal(short.decisions.decision, long.decisions.decision)


@pytest.mark.parametrize(("statistic", "head"), [("after_n0", []), ("all", GOOD_START)])
def test_simulated_and_real_curves_are_averaged_over_the_same_window(statistic: Any, head: list[float]) -> None:
    rule = replace(FAST, statistic=statistic)
    curve = [*GOOD_START, 0.18, 0.17]
    plan = rule.plan(curve, 0.13, np.random.default_rng(0))
    window = [*head, 0.18, 0.17]
    assert plan.decide(curve).statistic == pytest.approx(sum(window) / len(window))
    mean, cov = curve_posterior(GOOD_START, range(9, 51), plan.fit)
    paths = keep_paths_within_unit(draw_paths(mean, cov, rule.n_paths, np.random.default_rng(0)))
    by_hand = solve_backwards(paths, 0.13, k1=rule.k1, head=head)
    np.testing.assert_array_equal(plan.decisions.count, by_hand.count)
    np.testing.assert_array_equal(plan.decisions.decision, by_hand.decision)


def test_a_curve_unlike_all_simulated_ones_continues() -> None:
    plan = FAST.plan(GOOD_START, 0.1, np.random.default_rng(0))
    decision = plan.decide([*GOOD_START, 0.99])
    assert not decision.stop
    assert decision.paths_in_cell == 0
    assert math.isnan(decision.prob_better)
    assert "0 simulated curves pass here" in decision.reason


def test_a_curve_that_does_not_fit_the_model_is_never_stopped() -> None:
    zero = [0.0] * 20  # half the paths fall below 0 at each of many steps
    plan = replace(FAST, n_paths=1500).plan(zero, -1.0, np.random.default_rng(0))
    assert plan.decisions.n_paths < 1000
    assert not plan.decide(zero).stop
    assert "stayed within bounds" in plan.decide(zero).reason


def test_huge_and_infinite_losses_count_as_the_worst_error() -> None:
    np.testing.assert_array_equal(FAST.errors([0.5, 1e30, math.inf, -3.0]), [0.5, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: StoppingRule(n0=50, n_max=50), "n0=50 must be at least 1 and below n_max=50"),
        (lambda: StoppingRule(low=1.0, high=0.0), "low=1.0 must be below high=0.0"),
        (lambda: StoppingRule(k1=0.0), "k1 must be positive"),
        (lambda: StoppingRule(k1=math.nan), "k1 must be positive"),
        (lambda: StoppingRule(k2=math.inf), "k2 positive and finite"),
        (lambda: StoppingRule(statistic="last"), "statistic='last'"),  # type: ignore[arg-type]
        (lambda: FAST.plan([0.3] * 7, 0.1, np.random.default_rng(0)), "needs n0=8"),
        (lambda: FAST.plan([0.3] * 8, math.nan, np.random.default_rng(0)), "incumbent=nan"),
        (lambda: FAST.plan([0.3] * 8, 0.1, np.random.default_rng(0), xi=-0.1), "xi=-0.1"),
        (lambda: FAST.errors([0.3, math.nan]), "NaN at step 2"),
        (lambda: FAST.errors([0.3] * 51), "at most n_max=50"),
        (lambda: k1_schedule("fast", 1), "growth='fast'"),
        (lambda: k1_schedule(1.2, 1), "growth=1.2"),
        (lambda: noise_correction(0, 1e-4), "iteration=0"),
        (lambda: surrogate_allows_stop(0.1, 0.1, kappa=0.5), "kappa=0.5"),
    ],
)
def test_invalid_arguments_raise_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
