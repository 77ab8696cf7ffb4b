"""Helpers for authors of policies: untried configs (queued ones first, none twice, the same after a restart), and decisions."""

from __future__ import annotations

from collections import Counter

import pytest

from shoestring.core.deciding.decision import Finish, Train, Wait
from shoestring.core.deciding.policy import (
    _candidates,
    continue_trial,
    find_interrupted,
    find_untried_config,
    nothing_to_train,
    start_trial,
    train_best_unfinished,
)
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Note, Order, Receipt, StudyDefinition, from_stored
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads


def new_ledger(space: Space, seed: int = 0) -> Ledger:
    return Ledger([StudyDefinition(space=space, budget=Budget("1000000 epochs"), policy="p", settings={}, seed=seed)])


def draw_configs(ledger: Ledger, count: int) -> list[dict[str, object]]:
    """Return the next `count` untried configs, each tried in turn; fewer when the space is used up."""
    configs: list[dict[str, object]] = []
    while len(configs) < count and (config := find_untried_config(ledger)) is not None:
        configs.append(dict(config))
        trial = len(ledger.trials)
        ledger = ledger.append(Order(number=trial, trial=trial, config=config, until=1))
    return configs


@pytest.mark.parametrize(
    "space",
    [
        Space({"a": Int(1, 5), "b": Choice(["x", "y", "z"])}),
        Space({"k": Choice(["a", "b"]), "n": Int(1, 40, when={"k": "a"})}),
        Space({"c": Constant(1)}),
        Space({"n": Int(1, 1000)}),
        Space({"kind": Choice(list("abcdefgh")), **{f"n_{k}": Int(1, 9, when={"kind": k}) for k in "abcdefgh"}}),
        Space.from_configs([{"row": i} for i in range(23)]),
    ],
    ids=["plain", "conditional", "constant", "wide", "many conditions", "listed"],
)
def test_every_config_of_a_finite_space_is_tried_once(space: Space) -> None:
    configs = draw_configs(new_ledger(space), 2000)
    assert len(configs) == space.size
    assert len({dumps(config) for config in configs}) == space.size
    assert all(space.validate(config) == config for config in configs)


def test_inactive_values_make_no_new_config() -> None:
    """Half of the cube is the config {"c": "b"}: it is tried once, not in every second trial."""
    space = Space({"c": Choice(["a", "b"]), "m": Float(0, 1, when={"c": "a"})})
    configs = draw_configs(new_ledger(space), 60)
    assert len({dumps(config) for config in configs}) == 60
    assert Counter(config["c"] for config in configs) == {"a": 59, "b": 1}
    spread = sorted(float(config["m"]) for config in configs if "m" in config)  # type: ignore[arg-type]
    assert spread[0] < 0.1
    assert spread[-1] > 0.9


def test_a_float_that_is_rarely_active_does_not_hide_other_configs() -> None:
    space = Space({"n": Int(1, 300), "m": Float(0, 1, when={"n": 300})})
    configs = draw_configs(new_ledger(space), 400)
    assert len({dumps(config) for config in configs}) == 400
    assert sum("m" in config for config in configs) == 101


def test_queued_configs_come_first() -> None:
    space = Space({"x": Float(0, 1)})
    mine = [{"x": 0.25}, {"x": 0.125}]
    ledger = new_ledger(space)
    plain = draw_configs(ledger.fork(), 3)
    for config in mine:
        ledger = ledger.append(Note(topic="enqueue", facts={"config": config}))
    configs = draw_configs(ledger, 5)
    assert configs[:2] == mine
    assert configs[2] == plain[2]  # the sequence depends on the number of trials


def test_seeds_differ_and_repeat() -> None:
    space = Space({"x": Float(0, 1), "n": Int(1, 9)})
    assert (
        draw_configs(new_ledger(space, 1), 5)
        == draw_configs(new_ledger(space, 1), 5)
        != draw_configs(new_ledger(space, 2), 5)
    )


def test_a_stored_study_draws_the_same_configs() -> None:
    """The order in which parameters were written is not stored, so it must not matter."""
    space = Space({"zeta": Float(0, 1), "alpha": Float(5, 6), "mid": Int(1, 9), "kind": Choice(["b", "a"])})
    ledger = new_ledger(space)
    stored = [(entry.kind, loads(dumps(entry.body()))) for entry in ledger.entries()]
    assert draw_configs(Ledger(from_stored(kind, body) for kind, body in stored), 20) == draw_configs(ledger, 20)


# decisions --------------------------------------------------------------------------------------------------------


def make_trained_ledger(*curves: list[float], until: int = 4) -> Ledger:
    """Return a study with a trial for each curve, ordered until that step and released after its last value."""
    space, budget = Space({"x": Float(0, 1)}), Budget("99 epochs")
    ledger = Ledger([StudyDefinition(space=space, budget=budget, policy="p", settings={}, seed=0, max_steps=5)])
    for number, curve in enumerate(curves):
        ledger = ledger.append(Order(number=number, trial=number, config={"x": number / 10}, until=until))
        for step, value in enumerate(curve, start=1):
            ledger = ledger.append(Receipt(order=number, trial=number, step=step, value=value, saved_step=step))
        if len(curve) < until:
            ledger = ledger.append(Note(topic="released", facts={"order": number}))
    return ledger


def test_decisions_start_the_next_trial_or_continue_one_up_to_its_limit() -> None:
    ledger = make_trained_ledger([0.5, 0.4])
    assert start_trial(ledger, {"x": 0.7}, 3) == Train(trial=1, config={"x": 0.7}, until=3, why={"compared": 0})
    assert continue_trial(ledger.trials[0], 9, why={"a": 1}) == Train(
        trial=0, config={"x": 0.0}, until=5, why={"compared": 0, "a": 1}
    )


def test_without_anything_to_train_the_policy_waits_for_open_orders() -> None:
    ledger = make_trained_ledger([0.5, 0.4])
    assert nothing_to_train(ledger, "that was all") == Finish("that was all")
    ledger = ledger.append(Order(number=1, trial=0, config={"x": 0.0}, until=5))
    assert nothing_to_train(ledger) == Wait()


def test_an_idle_trial_between_two_stops_was_interrupted() -> None:
    ledger = make_trained_ledger([0.5, 0.4], [0.3, 0.2, 0.1])
    cut = find_interrupted(ledger, (3, 5))
    assert cut is not None
    assert cut.number == 0
    assert find_interrupted(ledger, (1, 2, 3)) is None
    continued = ledger.append(Order(number=2, trial=0, config={"x": 0.0}, until=5))
    assert find_interrupted(continued, (3, 5)) is None


def test_the_best_unfinished_trial_is_idle_and_below_its_limit() -> None:
    ledger = make_trained_ledger([0.5, 0.4], [0.3], [0.3])
    best = train_best_unfinished(ledger, "continue the best")
    assert best is not None
    assert (best.trial, best.until) == (1, 5)
    assert dict(best.why) == {
        "stage": "continue the best",
        "compared": 3,
        "score_name": "newest value",
        "best_is": "lowest",
        "score": 0.3,
        "runner_up": 2,
        "runner_up_score": 0.3,
    }
    continued = ledger.append(Order(number=3, trial=1, config={"x": 0.1}, until=5))
    best = train_best_unfinished(continued, "continue the best", stops=(1, 3))
    assert best is not None
    assert (best.trial, best.until, best.why["runner_up"]) == (2, 3, 0)
    assert train_best_unfinished(make_trained_ledger([0.3] * 5, until=5), "") is None


def test_all_values_of_a_large_range_can_be_drawn() -> None:
    """A study of a finite space must not end while there are values that it has not tried."""
    space = Space({"a": Int(0, 20_000)})
    assert {config["a"] for config in _candidates(space, 0, 0, 1.0)} == set(range(20_001))
