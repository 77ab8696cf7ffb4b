"""Backward induction: comparison with exact arithmetic, path by path."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.models.stopping.decision_map import CONTINUE, FINISH, STOP, solve_backwards, statistic_cell


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
    """Run Algorithm 2 with plain loops over fractions, so that edges and ties are exact. None = unvisited."""
    steps = len(paths[0])

    def cell(path: list[Fraction], step: int) -> int:
        window = head + path[: step + 1]
        return min(max(math.ceil(sum(window) / len(window) * n_cells) - 1, 0), n_cells - 1)

    names = ("decision", "value", "loss_continue", "loss_stop", "loss_finish", "prob_better", "count")
    table: dict[str, list[list[Any]]] = {name: [[None] * n_cells for _ in range(steps)] for name in names}
    for step in reversed(range(steps)):
        for m in range(n_cells):
            here = [path for path in paths if cell(path, step) == m]
            table["count"][step][m] = len(here)
            table["decision"][step][m] = CONTINUE
            if not here:
                continue
            better = Fraction(sum(path[-1] <= incumbent for path in here), len(here))
            stop = k1 * better if better else Fraction(0)
            finish = k2 * (1 - better)
            table["prob_better"][step][m] = better
            table["loss_stop"][step][m], table["loss_finish"][step][m] = stop, finish
            value, decision = (stop, STOP) if stop <= finish else (finish, FINISH)
            if step < steps - 1:
                following = [table["value"][step + 1][cell(path, step + 1)] for path in here]
                continued = sum(following) / len(here) + cost
                table["loss_continue"][step][m] = continued
                if continued <= value or len(here) <= min_paths:
                    value, decision = continued, CONTINUE
            table["value"][step][m] = value
            table["decision"][step][m] = CONTINUE if len(here) <= min_paths else decision
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
    arguments = {**problem, **changes}
    return solve_backwards(
        np.array(arguments["paths"], dtype=np.float64),
        float(arguments["incumbent"]),
        k1=float(arguments["k1"]),
        k2=float(arguments["k2"]),
        cost=float(arguments["cost"]),
        n_cells=arguments["n_cells"],
        min_paths=arguments["min_paths"],
        min_survivors=arguments.get("min_survivors", 0),
        head=[float(v) for v in arguments["head"]],
    )


@given(problems())
@examples(50, thorough=150)
def test_the_map_equals_that_of_plain_loops(problem: dict[str, Any]) -> None:
    want, got = slow_induction(**problem), solve(problem)
    np.testing.assert_array_equal(got.count, want["count"])
    np.testing.assert_array_equal(got.decision, want["decision"])
    for name in ("value", "loss_continue", "loss_stop", "loss_finish", "prob_better"):
        expected = np.array([[math.nan if v is None else float(v) for v in row] for row in want[name]])
        np.testing.assert_allclose(getattr(got, name), expected, rtol=1e-12, atol=1e-12, err_msg=name)


def test_the_map_equals_that_of_plain_loops_on_many_smooth_paths() -> None:
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
    assert set(np.unique(got.decision)) == {CONTINUE, STOP, FINISH}


@given(problems())
@examples(20, thorough=60)
def test_properties_of_every_map(problem: dict[str, Any]) -> None:
    found = solve(problem)
    visited = found.count > 0
    assert (found.count.sum(axis=1) == len(problem["paths"])).all()
    assert np.isnan(found.value[~visited]).all()
    assert (found.decision[~visited] == CONTINUE).all()
    probability = found.prob_better[visited]
    assert ((probability >= 0.0) & (probability <= 1.0)).all()
    dense = found.count > problem["min_paths"]
    best = np.minimum(found.loss_stop, found.loss_finish)
    assert (found.value[dense] <= best[dense] * (1 + 1e-9)).all()
    for larger in ({"k2": problem["k2"] * 2}, {"cost": problem["cost"] + 1}, {"k1": problem["k1"] * 2}):
        assert (solve(problem, **larger).value[visited] >= found.value[visited] * (1 - 1e-9)).all()


@pytest.mark.parametrize(
    ("n_winners", "n_losers", "k1", "k2"),
    [(3, 1, 0.4, 1.2), (3, 2, 0.1, 0.15), (7, 3, 0.3, 0.7), (6, 5, 1.1, 1.32), (3, 7, 2.1, 0.9), (1, 2, 0.7, 0.35)],
)
def test_losses_that_differ_only_by_rounding_are_ties(n_winners: int, n_losers: int, k1: float, k2: float) -> None:
    paths = np.array([[0.1] * 3] * n_winners + [[0.9] * 3] * n_losers)
    options: dict[str, Any] = {"k1": k1, "k2": k2, "n_cells": 1, "min_paths": 0, "min_survivors": 0}
    # With one cell all steps are alike. With a step cost of 0 all three losses are equal: d0, or d1 at the last step.
    np.testing.assert_array_equal(solve_backwards(paths, 0.5, cost=0.0, **options).decision, [[0], [0], [1]])
    np.testing.assert_array_equal(solve_backwards(paths, 0.5, cost=0.1, **options).decision, [[1], [1], [1]])


def test_an_infinite_k1_stops_only_where_no_path_wins_and_gives_no_nan() -> None:
    found = solve_backwards(
        np.array([[0.1, 0.1], [0.9, 0.9]]), 0.5, k1=math.inf, n_cells=2, min_paths=0, min_survivors=0
    )
    np.testing.assert_array_equal(found.loss_stop, [[math.inf, 0.0], [math.inf, 0.0]])
    np.testing.assert_array_equal(found.decision, [[FINISH, STOP], [FINISH, STOP]])


def test_with_too_few_paths_the_map_continues_everywhere() -> None:
    paths = np.full((999, 3), 0.9)
    few, enough = (solve_backwards(paths, 0.1, k1=100.0, min_survivors=n) for n in (1000, 999))
    assert not few.enough_paths
    assert not few.decision.any()
    assert enough.enough_paths
    assert (enough.decision[:, 89] == STOP).all()
    none = solve_backwards(np.empty((0, 3)), 0.1, k1=100.0)
    assert none.n_paths == 0
    assert not none.decision.any()


@pytest.mark.parametrize(
    ("statistic", "cell"),
    [(0.0, 0), (0.1, 0), (0.1 + 1e-6, 1), (0.3, 2), (0.1 + 0.2, 2), (1.0, 9), (1.7, 9), (-0.2, 0)],
)
def test_an_edge_belongs_to_the_lower_cell(statistic: float, cell: int) -> None:
    assert statistic_cell(np.array(statistic), 10) == cell


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solve_backwards(np.empty((5, 0)), 0.1, k1=1.0), "at least one step"),
        (lambda: solve_backwards(np.ones((5, 2)), 0.1, k1=1.0, n_cells=0), "n_cells=0"),
        (lambda: solve_backwards(np.ones((5, 2)), 0.1, k1=0.0), "k1=0.0"),
    ],
)
def test_invalid_arguments_raise_errors(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
