"""Backward induction against exact arithmetic, path by path; the stand-alone rule on curves with a known answer."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoestring.models.stopping.curve_paths import curve_posterior, draw_paths, paths_within_unit
from shoestring.models.stopping.optimal_stopping import (
    GIVE_UP,
    GO_ON,
    TRUST,
    StoppingRule,
    backward_induction,
    k1_schedule,
    noise_correction,
    statistic_cell,
    surrogate_allows_stop,
)

GOOD_START = [0.42, 0.31, 0.262, 0.231, 0.212, 0.198, 0.189, 0.181]
FAST = StoppingRule(n_paths=20_000)


def slow_induction(
    paths: list[list[Fraction]],
    incumbent: Fraction,
    k1: Fraction | float,
    k2: Fraction,
    cost: Fraction,
    n_cells: int,
    min_paths: int,
    head: list[Fraction],
) -> dict[str, list[list[Any]]]:
    """Algorithm 2 as one would say it aloud, in fractions: no rounding, so edges and ties are exact. None = unvisited."""
    steps = len(paths[0])

    def cell(path: list[Fraction], step: int) -> int:
        window = head + path[: step + 1]
        return min(max(math.ceil(sum(window) / len(window) * n_cells) - 1, 0), n_cells - 1)

    names = ("decision", "value", "loss_go_on", "loss_give_up", "loss_trust", "prob_better", "count")
    table: dict[str, list[list[Any]]] = {name: [[None] * n_cells for _ in range(steps)] for name in names}
    for step in reversed(range(steps)):
        for m in range(n_cells):
            here = [path for path in paths if cell(path, step) == m]
            table["count"][step][m] = len(here)
            table["decision"][step][m] = GO_ON
            if not here:
                continue
            better = Fraction(sum(path[-1] <= incumbent for path in here), len(here))
            give_up = k1 * better if better else Fraction(0)
            trust = k2 * (1 - better)
            table["prob_better"][step][m] = better
            table["loss_give_up"][step][m], table["loss_trust"][step][m] = give_up, trust
            value, decision = (give_up, GIVE_UP) if give_up <= trust else (trust, TRUST)
            if step < steps - 1:
                onward = [table["value"][step + 1][cell(path, step + 1)] for path in here]
                go_on = sum(onward) / len(here) + cost
                table["loss_go_on"][step][m] = go_on
                if go_on <= value or len(here) <= min_paths:
                    value, decision = go_on, GO_ON
            table["value"][step][m] = value
            table["decision"][step][m] = GO_ON if len(here) <= min_paths else decision
    return table


@st.composite
def problems(draw: st.DrawFn) -> dict[str, Any]:
    grain = draw(st.sampled_from([20, 64, 100]))  # coarse, so that means fall on cell edges and losses tie
    level = st.integers(1, grain - 1)
    steps = draw(st.integers(1, 5))
    paths = draw(st.lists(st.lists(level, min_size=steps, max_size=steps), min_size=1, max_size=25))
    return {
        "paths": [[Fraction(v, grain) for v in path] for path in paths],
        "incumbent": Fraction(draw(level), grain),
        "k1": draw(st.sampled_from([Fraction(100), Fraction(4), Fraction(1000), math.inf])),
        "k2": Fraction(draw(st.integers(1, 99))),
        "cost": Fraction(draw(st.integers(0, 4))),
        "n_cells": draw(st.sampled_from([1, 4, 10, 20])),
        "min_paths": draw(st.integers(0, 4)),
        "head": [Fraction(v, grain) for v in draw(st.lists(level, max_size=3))],
    }


def solve(problem: dict[str, Any], **changes: Any) -> Any:
    given_ = {**problem, **changes}
    return backward_induction(
        np.array(given_["paths"], dtype=np.float64),
        float(given_["incumbent"]),
        k1=float(given_["k1"]),
        k2=float(given_["k2"]),
        cost=float(given_["cost"]),
        n_cells=given_["n_cells"],
        min_paths=given_["min_paths"],
        min_survivors=given_.get("min_survivors", 0),
        head=[float(v) for v in given_["head"]],
    )


@given(problems())
@settings(deadline=None, max_examples=150)
def test_the_map_is_that_of_the_plain_loops(problem: dict[str, Any]) -> None:
    want, got = slow_induction(**problem), solve(problem)
    np.testing.assert_array_equal(got.count, want["count"])
    np.testing.assert_array_equal(got.decision, want["decision"])
    for name in ("value", "loss_go_on", "loss_give_up", "loss_trust", "prob_better"):
        expected = np.array([[math.nan if v is None else float(v) for v in row] for row in want[name]])
        np.testing.assert_allclose(getattr(got, name), expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_the_map_is_that_of_the_plain_loops_on_many_smooth_paths() -> None:
    rng = np.random.default_rng(0)
    level, rate = rng.uniform(0.05, 0.5, (2, 250))
    paths = level[:, None] + 0.3 * np.exp(-rate[:, None] * np.arange(1, 13))
    problem: dict[str, Any] = {
        "paths": [[Fraction(round(v * 4096), 4096) for v in path] for path in paths],
        "incumbent": Fraction(1, 4),
        "k1": Fraction(100),
        "k2": Fraction(99),
        "cost": Fraction(1),
        "n_cells": 30,
        "min_paths": 3,
        "head": [],
    }
    want, got = slow_induction(**problem), solve(problem)
    np.testing.assert_array_equal(got.decision, want["decision"])
    assert set(np.unique(got.decision)) == {GO_ON, GIVE_UP, TRUST}


@given(problems())
@settings(deadline=None, max_examples=60)
def test_what_every_map_obeys(problem: dict[str, Any]) -> None:
    found = solve(problem)
    visited = found.count > 0
    assert (found.count.sum(axis=1) == len(problem["paths"])).all()
    assert np.isnan(found.value[~visited]).all()
    assert (found.decision[~visited] == GO_ON).all()
    probability = found.prob_better[visited]
    assert ((probability >= 0.0) & (probability <= 1.0)).all()
    judged = found.count > problem["min_paths"]
    best = np.minimum(found.loss_give_up, found.loss_trust)
    assert (found.value[judged] <= best[judged] * (1 + 1e-9)).all()
    for dearer in ({"k2": problem["k2"] * 2}, {"cost": problem["cost"] + 1}, {"k1": problem["k1"] * 2}):
        assert (solve(problem, **dearer).value[visited] >= found.value[visited] * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    ("n_winners", "n_losers", "k1", "k2"),
    [(3, 1, 0.4, 1.2), (3, 2, 0.1, 0.15), (7, 3, 0.3, 0.7), (6, 5, 1.1, 1.32), (3, 7, 2.1, 0.9), (1, 2, 0.7, 0.35)],
)
def test_losses_that_differ_by_rounding_only_are_ties(n_winners: int, n_losers: int, k1: float, k2: float) -> None:
    paths = np.array([[0.1] * 3] * n_winners + [[0.9] * 3] * n_losers)
    options: dict[str, Any] = {"k1": k1, "k2": k2, "n_cells": 1, "min_paths": 0, "min_survivors": 0}
    # In one cell all steps look alike, and with free steps all three losses are one number: d0, or d1 at the end.
    np.testing.assert_array_equal(backward_induction(paths, 0.5, cost=0.0, **options).decision, [[0], [0], [1]])
    np.testing.assert_array_equal(backward_induction(paths, 0.5, cost=0.1, **options).decision, [[1], [1], [1]])


def test_an_infinite_k1_gives_up_only_where_no_path_wins_and_makes_no_nan() -> None:
    found = backward_induction(
        np.array([[0.1, 0.1], [0.9, 0.9]]), 0.5, k1=math.inf, n_cells=2, min_paths=0, min_survivors=0
    )
    np.testing.assert_array_equal(found.loss_give_up, [[math.inf, 0.0], [math.inf, 0.0]])
    np.testing.assert_array_equal(found.decision, [[TRUST, GIVE_UP], [TRUST, GIVE_UP]])


def test_with_too_few_paths_the_map_says_go_on_everywhere() -> None:
    paths = np.full((999, 3), 0.9)
    few, enough = (backward_induction(paths, 0.1, k1=100.0, min_survivors=n) for n in (1000, 999))
    assert not few.enough_paths
    assert not few.decision.any()
    assert enough.enough_paths
    assert (enough.decision[:, 89] == GIVE_UP).all()
    none = backward_induction(np.empty((0, 3)), 0.1, k1=100.0)
    assert none.n_paths == 0
    assert not none.decision.any()


@pytest.mark.parametrize(
    ("statistic", "cell"),
    [(0.0, 0), (0.1, 0), (0.1 + 1e-6, 1), (0.3, 2), (0.1 + 0.2, 2), (1.0, 9), (1.7, 9), (-0.2, 0)],
)
def test_an_edge_belongs_to_the_lower_cell(statistic: float, cell: int) -> None:
    assert statistic_cell(np.array(statistic), 10) == cell


def test_k1_schedules_by_name_and_number() -> None:
    assert k1_schedule("fixed", 40) == 100.0
    for name, g in (("small", 0.99), ("normal", 0.95), ("large", 0.89)):
        assert k1_schedule(name, 3) == k1_schedule(g, 3) == pytest.approx(100.0 / g / g / g)
    assert k1_schedule(0.5, 5000) == math.inf


@given(st.integers(1, 500), st.floats(1e-6, 1.0), st.floats(0.01, 0.99))
@settings(deadline=None, max_examples=50)
def test_the_noise_correction_grows_with_time_and_scales_with_the_deviation(
    t: int, variance: float, delta: float
) -> None:
    assert noise_correction(t, variance, delta) < noise_correction(t + 1, variance, delta)
    assert noise_correction(t, 4.0 * variance, delta) == pytest.approx(2.0 * noise_correction(t, variance, delta))


def test_c2_holds_up_to_its_bound() -> None:
    assert surrogate_allows_stop(0.5, 1.0)
    assert not surrogate_allows_stop(0.5, 1.0 + 1e-9)
    assert surrogate_allows_stop(0.0, 0.0)


# --- the stand-alone rule -------------------------------------------------------------------------------------------


def stops_at(rule: StoppingRule, curve: list[float], incumbent: float, seed: int = 0) -> int | None:
    plan = rule.plan(curve, incumbent, np.random.default_rng(seed))
    return next((n for n in range(1, len(curve) + 1) if plan.judge(curve[:n]).stop), None)


def test_a_run_stuck_far_above_the_incumbent_is_stopped_soon_after_n0() -> None:
    stuck = [0.6 + 0.2 * math.exp(-0.5 * n) for n in range(1, 51)]
    step = stops_at(FAST, stuck, 0.05)
    assert step is not None
    assert FAST.n0 < step <= 12
    verdict = FAST.plan(stuck, 0.05, np.random.default_rng(0)).judge(stuck[:step])
    assert verdict.decision == GIVE_UP
    assert verdict.prob_better < 0.2
    assert verdict.loss_give_up <= verdict.loss_trust
    assert verdict.loss_give_up < verdict.loss_go_on
    assert verdict.paths_in_cell > FAST.min_paths
    assert verdict.cell == statistic_cell(np.array(verdict.statistic), 100)


def test_a_run_already_better_than_the_incumbent_is_trusted_and_trained_in_full() -> None:
    good = GOOD_START + [0.178 - 0.001 * n for n in range(42)]
    plan = FAST.plan(good, 0.4, np.random.default_rng(0))
    verdicts = [plan.judge(good[:n]) for n in range(1, 51)]
    assert not any(v.stop for v in verdicts)
    assert verdicts[10].decision == TRUST
    assert verdicts[10].prob_better > 0.9
    assert verdicts[7].reason == "the first 8 steps are always trained"
    assert math.isnan(verdicts[7].prob_better)
    assert verdicts[49].reason == "trained in full"
    assert math.isnan(verdicts[49].loss_go_on)


def test_a_dearer_mistake_stops_no_earlier() -> None:
    flat = GOOD_START + [0.18] * 42
    steps = [stops_at(replace(FAST, k1=k1), flat, 0.13) for k1 in (100.0, 400.0, math.inf)]
    assert steps[0] is not None
    assert steps[1] is None or steps[1] >= steps[0]
    assert steps[2] is None


def test_infinite_k1_says_so() -> None:
    stuck = [0.9] * 50
    plan = replace(FAST, k1=math.inf).plan(stuck, 0.05, np.random.default_rng(0))
    verdict = plan.judge(stuck[:20])
    assert (verdict.stop, verdict.decision, verdict.reason) == (False, GIVE_UP, "k1 is infinite: no run is given up")


def test_without_an_incumbent_nothing_is_stopped() -> None:
    assert stops_at(FAST, [0.9] * 50, math.inf) is None


def test_noise_allowance_counts_as_a_worse_incumbent() -> None:
    first, second = (
        FAST.plan(GOOD_START, incumbent, np.random.default_rng(0), xi=xi)
        for incumbent, xi in ((0.125, 0.0625), (0.1875, 0.0))
    )
    np.testing.assert_array_equal(first.decisions.prob_better, second.decisions.prob_better)


@pytest.mark.parametrize(("low", "high"), [(0.0, 2.0), (-1.0, 3.0), (8.0, 16.0)])
def test_losses_in_other_units_give_the_same_verdict(low: float, high: float) -> None:
    errors = [round(v * 1024) / 1024 for v in GOOD_START + [0.18] * 30]  # dyadic: the map of units is exact
    rescaled = [low + (high - low) * v for v in errors]
    plain = FAST.plan(errors, 0.125, np.random.default_rng(7))
    other = replace(FAST, low=low, high=high).plan(rescaled, low + (high - low) * 0.125, np.random.default_rng(7))
    assert plain.fit == other.fit
    np.testing.assert_array_equal(plain.decisions.decision, other.decisions.decision)
    assert plain.judge(errors) == other.judge(rescaled)


def test_the_plan_looks_at_the_first_n0_losses_only() -> None:
    short, long = (FAST.plan(GOOD_START + tail, 0.1, np.random.default_rng(0)) for tail in ([], [0.5, 0.01]))
    np.testing.assert_array_equal(short.decisions.decision, long.decisions.decision)


@pytest.mark.parametrize(("statistic", "head"), [("after_n0", []), ("all", GOOD_START)])
def test_simulated_and_real_curves_are_averaged_over_the_same_window(statistic: Any, head: list[float]) -> None:
    rule = replace(FAST, statistic=statistic)
    curve = [*GOOD_START, 0.18, 0.17]
    plan = rule.plan(curve, 0.13, np.random.default_rng(0))
    window = [*head, 0.18, 0.17]
    assert plan.judge(curve).statistic == pytest.approx(sum(window) / len(window))
    mean, cov = curve_posterior(GOOD_START, range(9, 51), plan.fit)
    paths = paths_within_unit(draw_paths(mean, cov, rule.n_paths, np.random.default_rng(0)))
    by_hand = backward_induction(paths, 0.13, k1=rule.k1, head=head)
    np.testing.assert_array_equal(plan.decisions.count, by_hand.count)
    np.testing.assert_array_equal(plan.decisions.decision, by_hand.decision)


def test_a_curve_that_no_simulation_resembles_goes_on() -> None:
    plan = FAST.plan(GOOD_START, 0.1, np.random.default_rng(0))
    verdict = plan.judge([*GOOD_START, 0.99])
    assert not verdict.stop
    assert verdict.paths_in_cell == 0
    assert math.isnan(verdict.prob_better)
    assert "0 simulated curves pass here" in verdict.reason


def test_a_curve_that_the_model_cannot_follow_is_never_stopped() -> None:
    zero = [0.0] * 20  # half the paths fall below 0 at each of many steps
    plan = replace(FAST, n_paths=1500).plan(zero, -1.0, np.random.default_rng(0))
    assert plan.decisions.n_paths < 1000
    assert not plan.judge(zero).stop
    assert "stayed within bounds" in plan.judge(zero).reason


def test_diverged_but_finite_losses_count_as_the_worst_and_infinite_ones_too() -> None:
    np.testing.assert_array_equal(FAST.errors([0.5, 1e30, math.inf, -3.0]), [0.5, 1.0, 1.0, 0.0])


@pytest.mark.parametrize(
    ("call", "words"),
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
        (lambda: backward_induction(np.empty((5, 0)), 0.1, k1=1.0), "at least one step"),
        (lambda: backward_induction(np.ones((5, 2)), 0.1, k1=1.0, n_cells=0), "n_cells=0"),
        (lambda: k1_schedule("fast", 1), "growth='fast'"),
        (lambda: k1_schedule(1.2, 1), "growth=1.2"),
        (lambda: noise_correction(0, 1e-4), "iteration=0"),
        (lambda: surrogate_allows_stop(0.1, 0.1, kappa=0.5), "kappa=0.5"),
    ],
)
def test_misuse_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
