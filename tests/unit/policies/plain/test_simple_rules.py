"""The orders of grid, top_k_after_one and replay_fixed, compared with orders worked out by hand."""

from __future__ import annotations

import pytest

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment, Note
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import PolicyError
from shoestring.policies.halving.top_k_after_one import TopKAfterOne
from shoestring.policies.plain.grid import Grid
from shoestring.policies.plain.replay_fixed import ReplayFixed
from shoestring.testing.curves import DecayingCurves, DivergingCurves, ListedCurves
from shoestring.testing.policies import make_definition, simulate

TWO = Space({"lr": Float(1.0, 3.0), "optimizer": Choice(["sgd", "adam"])})
ABCD = {"a": 0.5, "b": 0.2, "c": 0.9, "d": 0.4}
ROWS = Space.from_configs([{"name": name} for name in ABCD])


def flat(length: int) -> ListedCurves:
    return ListedCurves({name: [loss] * length for name, loss in ABCD.items()})


def test_grid_goes_through_all_combinations_in_order() -> None:
    policy = Grid(levels=3)
    outcome = simulate(policy, DecayingCurves(), make_definition(policy, space=TWO, budget="100 epochs", max_steps=4))
    tried = [(trial.config["lr"], trial.config["optimizer"], trial.steps) for trial in outcome.ledger.trials]
    assert tried == [(lr, name, 4) for lr in (1.0, 2.0, 3.0) for name in ("sgd", "adam")]
    assert (outcome.reason, outcome.ledger.spent) == ("policy", 24)


def test_grid_trains_enqueued_configs_first_and_none_twice() -> None:
    policy = Grid(levels=2)
    queue = Note(topic="enqueue", facts={"config": {"lr": 3.0, "optimizer": "sgd"}})
    ledger = simulate(
        policy, DecayingCurves(), make_definition(policy, space=TWO, budget="100 epochs", max_steps=1), queue
    ).ledger
    assert [trial.config["lr"] for trial in ledger.trials] == [3.0, 1.0, 1.0, 3.0]
    assert len({dumps(trial.config) for trial in ledger.trials}) == 4


def test_grid_completes_an_interrupted_trial_when_the_budget_is_raised() -> None:
    policy = Grid(levels=2)
    spent = simulate(
        policy, DecayingCurves(), make_definition(policy, space=TWO, budget="6 epochs", max_steps=4)
    ).ledger
    assert [trial.steps for trial in spent.trials] == [4, 2]
    ledger = simulate(policy, DecayingCurves(), *spent.entries(), Amendment(budget=Budget("12 epochs"))).ledger
    assert [trial.steps for trial in ledger.trials] == [4, 4, 4]


def test_top_k_gives_the_orders_computed_by_hand() -> None:
    """8 epochs: four first steps, then three steps of b to its end, and one step of d."""
    policy = TopKAfterOne()
    ledger = simulate(policy, flat(4), make_definition(policy, space=ROWS, budget="8 epochs", max_steps=4)).ledger
    assert {trial.config["name"]: trial.steps for trial in ledger.trials} == {"a": 1, "b": 4, "c": 1, "d": 2}


def test_top_k_waits_for_all_first_losses() -> None:
    policy = TopKAfterOne()
    slow = ListedCurves(flat(4).curves, costs_s={"a": 1.0, "b": 50.0, "c": 1.0, "d": 1.0})
    ledger = simulate(
        policy, slow, make_definition(policy, space=ROWS, budget="8 epochs", max_steps=4, workers=4)
    ).ledger
    assert max(ledger.trials, key=lambda trial: trial.steps).config == {"name": "b"}


def test_top_k_spends_half_a_time_budget_on_first_steps() -> None:
    policy = TopKAfterOne()
    ledger = simulate(policy, DecayingCurves(spread=1.0), make_definition(policy, budget="60s", max_steps=50)).ledger
    assert len(ledger.trials) == 30
    assert max(trial.steps for trial in ledger.trials) == 31


def test_top_k_starts_new_trials_when_all_have_ended() -> None:
    policy = TopKAfterOne()
    start = make_definition(policy, budget="40 epochs")
    ledger = simulate(policy, DivergingCurves(DecayingCurves(), share=1.0, before=2), start).ledger
    assert len(ledger.trials) > len(simulate(policy, DecayingCurves(), start).ledger.trials)
    assert ledger.spent == 40


@pytest.mark.parametrize("share", [0.0, 1.0, "half"])
def test_top_k_refuses_shares_out_of_range(share: object) -> None:
    with pytest.raises(PolicyError, match=rf"top_k_after_one\(first_share={share!r}\)"):
        TopKAfterOne(first_share=share)  # type: ignore[arg-type]


def test_replay_gives_its_orders_and_survives_storage() -> None:
    lines = [[0, {"name": "c"}, 2], [1, {"name": "a"}, 1], [0, None, 4], [2, None, 9]]
    policy = policies.make("replay_fixed", loads(dumps({"orders": lines})))
    ledger = simulate(policy, flat(4), make_definition(policy, space=ROWS, budget="50 epochs", max_steps=4)).ledger
    assert [(o.trial, o.config["name"], o.until) for o in ledger.orders[:3]] == [(0, "c", 2), (1, "a", 1), (0, "c", 4)]
    assert ledger.orders[3].until == 4  # never beyond full training
    assert ledger.orders[3].config["name"] in "bd"
    assert len(ledger.orders) == 4


def test_replay_skips_lines_of_ended_trials_and_keeps_its_numbers_after_a_queue() -> None:
    policy = ReplayFixed(
        orders=[[0, {"name": "c"}, 3], [0, None, 4], [1, {"name": "a"}, 2], [0, None, 4], [1, None, 3]]
    )
    queue = Note(topic="enqueue", facts={"config": {"name": "d"}})
    ledger = simulate(
        policy, flat(2), make_definition(policy, space=ROWS, budget="50 epochs", max_steps=4), queue
    ).ledger
    assert [(order.trial, order.config["name"], order.until) for order in ledger.orders] == [
        (0, "d", 4),
        (1, "c", 3),
        (2, "a", 2),
        (2, "a", 3),
    ]


def test_replay_with_several_workers_keeps_the_order_of_a_trial() -> None:
    policy = ReplayFixed(orders=[[0, None, 1], [0, None, 3], [1, None, 2], [0, None, 4]])
    ledger = simulate(policy, DecayingCurves(), make_definition(policy, budget="50 epochs", workers=3)).ledger
    assert [(order.trial, order.until) for order in ledger.orders] == [(0, 1), (0, 3), (1, 2), (0, 4)]


@pytest.mark.parametrize(
    ("orders", "problem"),
    [
        ([[0, None]], "three items"),
        (["abc"], "three items"),
        ([[1, None, 1]], "trial 1 must be a whole number from 0 to 0"),
        ([[0, None, 1], [2, None, 1]], "trial 2 must be a whole number from 0 to 1"),
        ([[0, 3, 1]], "config 3 must be a dict"),
        ([[0, None, 0]], "until 0 must be a whole number"),
        ([[0, None, 1.5]], "until 1.5 must be"),
    ],
)
def test_replay_refuses_invalid_orders(orders: list[list[object]], problem: str) -> None:
    with pytest.raises(PolicyError, match=problem):
        ReplayFixed(orders=orders)
