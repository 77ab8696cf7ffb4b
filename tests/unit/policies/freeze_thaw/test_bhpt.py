"""BHPT: arms, horizons, commitment, updates by receipts, and the numbers of its decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Cost, Note, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.encoding import Encoding
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Space
from shoestring.errors import PolicyError
from shoestring.policies.freeze_thaw.arm_table import ArmsView, compute_limits, compute_similarity
from shoestring.policies.freeze_thaw.bhpt import BHPT
from shoestring.policies.freeze_thaw.curve_policy import CurvePolicy
from shoestring.testing.curves import ListedCurves
from shoestring.testing.policies import make_definition, simulate

GIVEN = [1.0, 5.0, 1.0, 0.01, 1.0, 0.0]
SETTLING = [1.0, 1.0, 1.0, 1e-4, 1.0, 0.0]
FALLING = {"a": [0.9, 0.7, 0.6, 0.55, 0.52], "b": [0.8, 0.75, 0.73, 0.72, 0.71], "c": [0.95, 0.8, 0.5, 0.35, 0.28]}
NAMED = Space.from_configs([{"name": name} for name in FALLING])


def train(ledger: Ledger, trial: int, losses: Sequence[float], seconds: float = 1.0) -> Ledger:
    """Return the ledger after an order for these losses of a trial."""
    config = NAMED.rows[trial] if NAMED.rows else {}
    order = place_order(ledger, Train(trial=trial, config=config, until=len(losses)))
    assert order is not None
    ledger = ledger.append(order)
    for step, loss in enumerate(losses, start=1):
        receipt = Receipt(order=order.number, trial=trial, step=step, value=loss, cost=Cost(train=seconds))
        ledger = ledger.append(receipt)
    return ledger


def decide(policy: BHPT, ledger: Ledger) -> Train:
    decision = policy.decide(ledger, ledger.decision_rng())
    assert isinstance(decision, Train)
    return decision


def open_study(policy: BHPT, **study: Any) -> Ledger:
    return Ledger([make_definition(policy, space=NAMED, max_steps=5, **study)])


# arms ----------------------------------------------------------------------------------------------------------------


def arms_of(space: Space, count: int | None, seed: int = 0) -> list[str]:
    start: StudyDefinition = make_definition(BHPT(), space=space, seed=seed)
    return [space.key(config) for config in Ledger([start]).view(ArmsView(count)).configs]


def test_arms_are_the_rows_of_a_listed_space_in_their_order() -> None:
    assert arms_of(NAMED, None) == [NAMED.key(row) for row in NAMED.rows or ()]
    assert len(arms_of(NAMED, 2)) == 2


def test_arms_are_drawn_once_and_differ_between_studies() -> None:
    space = Space({"lr": Float(1e-4, 1.0, log=True), "layers": Int(1, 4)})
    first = arms_of(space, None)
    assert len(set(first)) == len(first) == 100
    assert arms_of(space, None) == first != arms_of(space, None, seed=1)


def test_a_small_space_is_listed_whole() -> None:
    space = Space({"layers": Int(1, 3), "optimizer": Choice(["sgd", "adam"])})
    assert len(set(arms_of(space, None))) == 6


def test_a_queued_configuration_becomes_an_arm() -> None:
    space = Space({"lr": Float(0.0, 1.0)})
    policy = BHPT(arms=3, parameters=GIVEN)
    queued = Note(topic="enqueue", facts={"config": {"lr": 0.123}})
    ledger = Ledger([make_definition(policy, space=space, budget="8 epochs", max_steps=2), queued])
    first = decide(policy, ledger)
    assert first.config == {"lr": 0.123}
    assert first.why["queued"] is True
    order = place_order(ledger, first)
    assert order is not None
    ledger = ledger.append(order).append(Receipt(order=0, trial=0, step=1, value=0.1, cost=Cost(train=1.0)))
    arms = ledger.view(ArmsView(3))
    assert len(arms.configs) == 4
    assert arms.losses[3, 0] == 0.1


def test_options_and_inactive_parameters_differ_by_one() -> None:
    space = Space(
        {
            "opt": Choice(["sgd", "adam", "lion"]),
            "momentum": Float(0.0, 1.0, when={"opt": "sgd"}),
            "lr": Float(0.0, 1.0),
        }
    )
    configs = [
        {"opt": "sgd", "momentum": 0.9, "lr": 0.5},
        {"opt": "adam", "lr": 0.5},
        {"opt": "lion", "lr": 0.5},
        {"opt": "lion", "lr": 1.0},
    ]
    encoding = Encoding(space)
    squared = -2.0 * np.log(compute_similarity(encoding, encoding.points(configs), np.ones(3)))
    assert squared[0, 1] == pytest.approx(2.16)  # another option, and the inactive 0.9, which is encoded as 0.5
    assert squared[1, 2] == pytest.approx(1.0)  # whatever the order of the options
    assert squared[2, 3] == pytest.approx(0.25)


# horizons ------------------------------------------------------------------------------------------------------------


def test_the_horizon_in_steps_counts_the_step_being_decided() -> None:
    policy = BHPT(parameters=GIVEN)
    ledger = train(open_study(policy, budget="10 epochs"), 0, [0.9, 0.7])
    now = compute_limits(ledger, ledger.view(ArmsView(None)))
    assert now.affordable.tolist() == [8, 8, 8]
    assert now.room.tolist() == [3, 5, 5]


def test_the_horizon_in_seconds_uses_the_price_of_the_arm() -> None:
    policy = BHPT(parameters=GIVEN)
    ledger = open_study(policy, budget="20s")
    assert compute_limits(ledger, ledger.view(ArmsView(None))).room.tolist() == [5, 5, 5]  # no price is known yet
    ledger = train(train(ledger, 0, [0.9, 0.7], seconds=1.0), 1, [0.8], seconds=3.0)
    now = compute_limits(ledger, ledger.view(ArmsView(None)))
    assert now.affordable.tolist() == [
        6,
        5,
        6,
    ]  # 15 s are left; a new arm costs 2 s per step: more steps than a curve has
    ledger = train(open_study(policy, budget="12s"), 0, [0.9], seconds=5.0)
    assert compute_limits(ledger, ledger.view(ArmsView(None))).room.tolist() == [1, 1, 1]


def test_busy_diverged_and_failed_arms_have_no_room() -> None:
    policy = BHPT(parameters=GIVEN)
    ledger = open_study(policy, budget="30 epochs", workers=3)
    for trial, status in ((0, "diverged"), (1, "failed")):
        order = place_order(ledger, Train(trial=trial, config=NAMED.rows[trial], until=1))  # type: ignore[index]
        assert order is not None
        receipt = Receipt(order=order.number, trial=trial, step=1, status=status, text="boom")  # type: ignore[arg-type]
        ledger = ledger.append(order).append(receipt)
    order = place_order(ledger, decide(policy, ledger))
    assert order is not None
    assert order.config == {"name": "c"}
    ledger = ledger.append(order)
    assert not compute_limits(ledger, ledger.view(ArmsView(None))).room.any()


# decisions -----------------------------------------------------------------------------------------------------------


def test_it_commits_to_the_best_arm_near_the_end_of_the_budget() -> None:
    policy = BHPT(parameters=SETTLING, scale="none", start=2.0)
    large, small = (
        train(train(train(open_study(policy, budget=budget), 0, [0.9, 0.7]), 1, [0.8]), 2, [0.95])
        for budget in ("60 epochs", "6 epochs")
    )
    assert decide(policy, large).why["committed"] is False
    last = decide(policy, small)
    assert last.why["committed"] is True
    assert last.why["arm"] == last.why["c_hat"]
    assert decide(replace(policy, commit=False), small).why["committed"] is False


def test_greedy_always_chooses_the_arm_expected_to_be_best() -> None:
    policy = BHPT(parameters=GIVEN, eps=1.0)
    ledger = simulate(
        policy, ListedCurves(FALLING), make_definition(policy, space=NAMED, budget="12 epochs", max_steps=5)
    ).ledger
    assert all(order.why["arm"] == order.why["c_hat"] for order in ledger.orders)


@examples(7, thorough=20)
@given(order=st.permutations(range(5)), seed=st.integers(0, 100), correlated=st.booleans())
def test_permuting_the_arms_does_not_change_the_chosen_arm(order: list[int], seed: int, correlated: bool) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random(5)
    table = rng.random((5, 5))
    policy = BHPT(parameters=GIVEN, lengthscale=0.5 if correlated else None)

    def answer(rows: list[int]) -> float:
        space = Space.from_configs([{"x": float(x[row])} for row in rows])
        ledger = Ledger([make_definition(policy, space=space, budget="30 epochs", max_steps=9)])
        for trial, row in enumerate(
            rows
        ):  # different lengths: arms with equal variance tie, and then the first is chosen
            accepted = place_order(ledger, Train(trial=trial, config={"x": float(x[row])}, until=row + 1))
            assert accepted is not None
            ledger = ledger.append(accepted)
            for step in range(1, row + 2):
                receipt = Receipt(order=trial, trial=trial, step=step, value=float(table[row, step - 1]))
                ledger = ledger.append(receipt)
        decision = policy.decide(ledger, np.random.default_rng(0))
        assert isinstance(decision, Train)
        return float(decision.config["x"])

    assert answer(order) == answer(list(range(5)))


def test_why_is_in_the_units_of_the_values() -> None:
    up = {name: [-v for v in curve] for name, curve in FALLING.items()}
    policy = BHPT(parameters=GIVEN)
    study: dict[str, Any] = {"space": NAMED, "budget": "9 epochs", "max_steps": 5}
    down = simulate(policy, ListedCurves(FALLING), make_definition(policy, **study)).ledger.orders
    mirrored = simulate(policy, ListedCurves(up), make_definition(policy, direction="max", **study)).ledger.orders
    for a, b in zip(down, mirrored, strict=True):
        assert a.why["mu"] == pytest.approx(-b.why["mu"])  # type: ignore[operator]
        assert a.why["sigma"] == pytest.approx(b.why["sigma"])
    assert 0.2 < down[-1].why["mu"] < 0.9  # type: ignore[operator]


def test_a_diverged_loss_does_not_change_the_scale_much() -> None:
    curves = {**FALLING, "b": [0.8, math.nan]}
    policy = BHPT(samples=2)
    ledger = simulate(
        policy, ListedCurves(curves), make_definition(policy, space=NAMED, budget="12 epochs", max_steps=5)
    ).ledger
    assert any(trial.diverged for trial in ledger.trials)
    assert all(math.isfinite(float(o.why["mu"])) and abs(float(o.why["mu"])) < 5.0 for o in ledger.orders)  # type: ignore[arg-type]


# updates -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [{"parameters": "sampled"}, {"parameters": "most_probable"}, {"parameters": "sampled", "falling": False}],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_parameters_are_updated_by_receipts(settings: dict[str, Any]) -> None:
    policy = policies.make("bhpt", {"samples": 2, **settings})
    curves = {f"arm {i}": [1.0 / (i + s) for s in range(1, 21)] for i in range(4)}
    space = Space.from_configs([{"name": name} for name in curves])
    start = make_definition(policy, space=space, budget="70 epochs", max_steps=20, workers=2)
    ledger = simulate(policy, ListedCurves(curves), start).ledger
    due = [order.memo.get("receipts", [0.0])[0] for order in ledger.orders]
    assert due == sorted(due)
    assert set(np.arange(1.0, 51.0)) <= {*due, 1.0}
    assert {d for d in due if d >= 50} <= {50.0, 55.0, 60.0, 65.0, 70.0}
    theta = {d: {tuple(o.memo["theta"]) for o, at in zip(ledger.orders, due, strict=True) if at == d} for d in due}
    assert all(len(found) == 1 for found in theta.values())  # one update, whatever the number of decisions
    assert len({next(iter(found)) for found in theta.values()}) == len(theta)


def test_a_single_sample_is_new_for_every_receipt() -> None:
    curves = {f"arm {i}": [1.0 / (i + s) for s in range(1, 21)] for i in range(4)}
    space = Space.from_configs([{"name": name} for name in curves])
    orders = {}
    for policy in (BHPT(), BHPT(printed=True)):
        start = make_definition(policy, space=space, budget="70 epochs", max_steps=20)
        orders[policy.printed] = simulate(policy, ListedCurves(curves), start).ledger.orders
    drawn = [tuple(order.memo["theta"]) for order in orders[False]]
    assert {len(theta) for theta in drawn} == {7}
    assert len(set(drawn)) == len(drawn) == 70
    averaged = [tuple(order.memo["theta"]) for order in orders[True]]
    assert {len(theta) for theta in averaged} == {60}
    assert len(set(averaged)) < 60  # after 50 receipts they are updated at every fifth


def test_a_memo_of_other_settings_starts_a_new_chain() -> None:
    curves, start = ListedCurves(FALLING), make_definition(BHPT(), space=NAMED, budget="12 epochs", max_steps=5)
    ledger = simulate(BHPT(printed=True), curves, start).ledger
    decision = BHPT().decide(ledger.fork(len(ledger) - 4), np.random.default_rng(0))
    assert isinstance(decision, Train)
    assert len(decision.memo["theta"]) == 7


# how many arms -------------------------------------------------------------------------------------------------------


@given(budget=st.integers(4, 60), steps_per_arm=st.sampled_from([2.0, 4.0, 7.5]), in_seconds=st.booleans())
@examples(9, thorough=25)
def test_the_number_of_arms_is_limited_by_the_steps_of_the_budget(
    budget: int, steps_per_arm: float, in_seconds: bool
) -> None:
    """All curves are alike, so every new arm looks as good as the trained ones."""
    curves = {f"arm {i}": [1.0] * 9 for i in range(20)}
    space = Space.from_configs([{"name": name} for name in curves])
    given = [*GIVEN, 1.0]
    limited = BHPT(parameters=given, commit=False, steps_per_arm=steps_per_arm)
    unit = "s" if in_seconds else "epochs"
    start = make_definition(limited, space=space, budget=f"{budget} {unit}", max_steps=9)
    ledger = simulate(limited, ListedCurves(curves), start).ledger
    # in seconds the price is known only after the first step
    most = max(1 + in_seconds, int(budget / steps_per_arm), -(-budget // 9))
    assert len(ledger.trials) <= most
    unlimited = BHPT(parameters=given, commit=False, steps_per_arm=0.0)
    assert len(simulate(unlimited, ListedCurves(curves), start).ledger.trials) >= len(ledger.trials)


def test_the_printed_method_has_no_limit_on_arms() -> None:
    curves = {f"arm {i}": [1.0 - 0.01 * i] * 9 for i in range(20)}
    space = Space.from_configs([{"name": name} for name in curves])
    started = {}
    for policy in (BHPT(parameters=GIVEN), BHPT(parameters=GIVEN, printed=True)):
        start = make_definition(policy, space=space, budget="24 epochs", max_steps=9)
        started[policy.printed] = len(simulate(policy, ListedCurves(curves), start).ledger.trials)
    assert started == {False: 6, True: 20}


# falling curves ------------------------------------------------------------------------------------------------------


def test_falling_curves_are_expected_to_fall_further() -> None:
    expected = {}
    for falling in (False, True):
        policy = BHPT(falling=falling, samples=10)
        ledger = train(train(open_study(policy, budget="9 epochs"), 0, [0.9, 0.7]), 1, [0.8, 0.65])
        why = decide(policy, ledger).why
        expected[falling] = float(why["mu"])  # type: ignore[arg-type]
        assert len(decide(policy, ledger).memo["theta"]) == policy.samples * (7 if falling else 6)
    assert expected[True] < expected[False]


def test_the_seventh_parameter_is_the_fall() -> None:
    at = [BHPT(parameters=[*GIVEN, fall], scale="none") for fall in (0.0, 1.0)]
    flat, falls = (decide(policy, open_study(policy, budget="4 epochs")) for policy in at)
    assert (flat.why["tau"], flat.why["committed"]) == (1, False)
    assert (falls.why["tau"], falls.why["committed"]) == (4, True)
    assert decide(BHPT(parameters=GIVEN, scale="none"), open_study(at[0], budget="4 epochs")).why == flat.why


def test_with_falling_curves_every_order_is_committed() -> None:
    ledger = {}
    for policy in (BHPT(), BHPT(printed=True)):
        start = make_definition(policy, space=NAMED, budget="5 epochs", max_steps=5)
        ledger[policy.printed] = simulate(policy, ListedCurves(FALLING), start).ledger
    assert all(order.why["committed"] for order in ledger[False].orders)
    assert not all(order.why["committed"] for order in ledger[True].orders)


# settings ------------------------------------------------------------------------------------------------------------


def test_printed_sets_the_other_settings() -> None:
    printed = BHPT(printed=True)
    assert (printed.falling, printed.samples, BHPT().falling, BHPT().samples) == (False, 10, True, 1)
    assert policies.make("bhpt", policies.settings_of(printed)) == printed
    assert replace(printed, commit=False).samples == 10


@pytest.mark.parametrize(
    ("setting", "text"),
    [
        ({"eps": 1.5}, "probability"),
        ({"arms": 0}, "arms to choose from"),
        ({"samples": 0}, "needs parameters"),
        ({"printed": "yes"}, "True, False"),
        ({"steps_per_arm": -1.0}, "number of steps"),
        ({"parameters": "guessed"}, "six numbers"),
        ({"parameters": [1.0, 2.0]}, "six numbers"),
        ({"parameters": [-1.0, 5.0, 1.0, 0.01, 1.0, 0.0]}, "alpha"),
        ({"scale": "cube"}, "standard"),
        ({"lengthscale": 0.0}, "above 0"),
    ],
)
def test_invalid_settings_raise_errors(setting: dict[str, Any], text: str) -> None:
    with pytest.raises(PolicyError, match=text):
        BHPT(**setting)


def test_before_the_first_receipt_the_next_arm_is_chosen_without_a_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The forecast would choose the same arms, because all of them have the same prediction."""
    policy = BHPT(parameters=(1.0, 5.0, 1.0, 0.01, 1.0, 0.0))
    ledger, slow = open_study(policy), open_study(policy)
    for _ in range(3):
        for quick in (True, False):
            now = ledger if quick else slow
            decision = (
                policy.decide(now, now.decision_rng()) if quick else CurvePolicy.decide(policy, now, now.decision_rng())
            )
            assert isinstance(decision, Train)
            order = place_order(now, decision)
            assert order is not None
            ledger, slow = (ledger.append(order), slow) if quick else (ledger, slow.append(order))
    assert [order.config for order in ledger.orders] == [order.config for order in slow.orders]
    monkeypatch.setattr(BHPT, "forecast_curves", None)  # computing a forecast would be an error
    assert decide(policy, ledger.fork(2)).trial == 1
