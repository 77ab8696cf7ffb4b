"""Brackets compared with the formula, and the orders of a bracket."""

from __future__ import annotations

import pytest

from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.halving.hyperband import Hyperband, make_brackets
from shoestring.policies.halving.rungs import count_halvings
from shoestring.policies.halving.successive_halving import SuccessiveHalving
from shoestring.testing.curves import DecayingCurves, ListedCurves
from shoestring.testing.policies import make_definition, simulate


def test_brackets_equal_the_formula() -> None:
    sizes = [[rung.arms for rung in bracket] for bracket in make_brackets(81, 1, 3)]
    assert sizes == [[81, 27, 9, 3, 1], [34, 11, 3, 1], [15, 5, 1], [8, 2], [5]]
    steps = [[rung.until for rung in bracket] for bracket in make_brackets(81, 1, 3)]
    assert steps == [[1, 3, 9, 27, 81], [3, 9, 27, 81], [9, 27, 81], [27, 81], [81]]


@pytest.mark.parametrize(
    ("max_steps", "min_steps", "eta", "halvings"),
    [(243, 1, 3, 5), (1000, 1, 10, 3), (125, 1, 5, 3), (242, 1, 3, 4), (81, 3, 3, 3), (1, 1, 3, 0), (2, 5, 3, 0)],
)
def test_exact_powers_are_not_lost_to_rounding(max_steps: int, min_steps: int, eta: int, halvings: int) -> None:
    assert count_halvings(max_steps, min_steps, eta) == halvings


def test_rungs_between_steps_are_rounded_and_end_at_full_training() -> None:
    assert [rung.until for rung in make_brackets(50, 1, 3)[0]] == [2, 6, 17, 50]


def test_a_sweep_trains_the_planned_arms_and_pays_only_for_additional_steps() -> None:
    # R = 9, eta = 3: 9/3/1 arms to 1/3/9 steps, 5/1 arms to 3/9, 3 arms to 9.
    price = (9 * 1 + 3 * 2 + 1 * 6) + (5 * 3 + 1 * 6) + 3 * 9
    policy = Hyperband()
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget=f"{price} epochs", max_steps=9)).ledger
    assert ledger.spent == price
    assert sorted(trial.steps for trial in ledger.trials) == [1] * 6 + [3] * 2 + [3] * 4 + [9] * 5
    assert len(ledger.trials) == 9 + 5 + 3


def test_the_best_of_a_rung_continue() -> None:
    curves = {name: [first, first - 0.1, first - 0.2] for name, first in zip("abc", (0.5, 0.3, 0.9), strict=True)}
    policy = Hyperband()
    start = make_definition(
        policy, space=Space.from_configs([{"name": n} for n in curves]), budget="5 epochs", max_steps=3
    )
    ledger = simulate(policy, ListedCurves(curves), start).ledger
    assert ledger.best is not None
    assert ledger.best.config == {"name": "b"}
    last = ledger.orders[-1]
    assert (last.until, last.why["bracket"], last.why["rung"], last.why["rank"], last.why["compared"]) == (
        3,
        0,
        1,
        0,
        3,
    )
    assert (last.why["score"], last.why["runner_up_score"]) == (0.3, 0.5)


def test_the_last_bracket_stops_at_the_budget_limit() -> None:
    policy = Hyperband()
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="12 epochs", max_steps=9)).ledger
    assert ledger.spent == 12
    # Nine first steps leave three epochs: two train the best arm to step 3, and one is left for the next best.
    assert sorted(trial.steps for trial in ledger.trials) == [1] * 7 + [2, 3]


def test_brackets_begin_again_after_the_last() -> None:
    policy = Hyperband()
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="12 epochs", max_steps=2)).ledger
    assert [order.why["bracket"] for order in ledger.orders] == list(
        range(6)
    )  # R = 2: every bracket is one arm in full


def test_successive_halving_repeats_one_bracket() -> None:
    policy = SuccessiveHalving()
    price = 9 * 1 + 3 * 2 + 1 * 6
    ledger = simulate(
        policy, DecayingCurves(), make_definition(policy, budget=f"{2 * price} epochs", max_steps=9)
    ).ledger
    assert ledger.spent == 2 * price
    for trials in (ledger.trials[:9], ledger.trials[9:]):
        assert sorted(trial.steps for trial in trials) == [1] * 6 + [3] * 2 + [9]
        ranked = sorted(trials, key=lambda trial: trial.losses[0])  # type: ignore[arg-type, return-value]
        assert {trial.number for trial in ranked[:3]} == {trial.number for trial in trials if trial.steps >= 3}


def test_successive_halving_accepts_a_number_of_arms() -> None:
    policy = SuccessiveHalving(arms=4, reduction_factor=2)
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="8 epochs", max_steps=4)).ledger
    assert sorted(trial.steps for trial in ledger.trials) == [1, 1, 2, 4]


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"hyperband\(reduction_factor=1\)"):
        Hyperband(reduction_factor=1)
    with pytest.raises(PolicyError, match=r"successive_halving\(arms=0\)"):
        SuccessiveHalving(arms=0)
    with pytest.raises(PolicyError, match=r"hyperband\(min_steps=True\)"):
        Hyperband(min_steps=True)
