"""The words of a decision; and fresh configs: the user's own first, none twice, and the same after a restart."""

from __future__ import annotations

from collections import Counter

import pytest

from shoestring.core.deciding.decision import Finish, Train, Wait
from shoestring.core.deciding.policy import (
    find_cut_short,
    fresh_config,
    nothing_to_buy,
    train_best_unfinished,
    train_further,
    train_new,
)
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Note, Opened, Order, Receipt
from shoestring.core.ledger.formats import read
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads


def begun(space: Space, seed: int = 0) -> Ledger:
    return Ledger([Opened(space=space, budget=Budget("1000000 epochs"), policy="p", settings={}, seed=seed)])


def drawn(ledger: Ledger, count: int) -> list[dict[str, object]]:
    """The next `count` fresh configs, each tried; fewer when the space is used up."""
    configs: list[dict[str, object]] = []
    while len(configs) < count and (config := fresh_config(ledger)) is not None:
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
        Space.listed([{"row": i} for i in range(23)]),
    ],
    ids=["plain", "conditional", "constant", "wide", "many conditions", "listed"],
)
def test_finite_spaces_are_used_up_each_config_once(space: Space) -> None:
    configs = drawn(begun(space), 2000)
    assert len(configs) == space.size
    assert len({dumps(config) for config in configs}) == space.size
    assert all(space.validate(config) == config for config in configs)


def test_inactive_values_do_not_make_a_new_config() -> None:
    """Half of the cube is the one config {"c": "b"}: it is tried once, not every other time."""
    space = Space({"c": Choice(["a", "b"]), "m": Float(0, 1, when={"c": "a"})})
    configs = drawn(begun(space), 60)
    assert len({dumps(config) for config in configs}) == 60
    assert Counter(config["c"] for config in configs) == {"a": 59, "b": 1}
    spread = sorted(float(config["m"]) for config in configs if "m" in config)  # type: ignore[arg-type]
    assert spread[0] < 0.1
    assert spread[-1] > 0.9


def test_a_float_that_is_rarely_active_does_not_hide_what_is_left() -> None:
    space = Space({"n": Int(1, 300), "m": Float(0, 1, when={"n": 300})})
    configs = drawn(begun(space), 400)
    assert len({dumps(config) for config in configs}) == 400
    assert sum("m" in config for config in configs) == 101


def test_queued_configs_come_first() -> None:
    space = Space({"x": Float(0, 1)})
    mine = [{"x": 0.25}, {"x": 0.125}]
    ledger = begun(space)
    plain = drawn(ledger, 3)
    for config in mine:
        ledger = ledger.append(Note(topic="enqueue", facts={"config": config}))
    configs = drawn(ledger, 5)
    assert configs[:2] == mine
    assert configs[2] == plain[2]  # the sequence goes by the number of trials


def test_seeds_differ_and_repeat() -> None:
    space = Space({"x": Float(0, 1), "n": Int(1, 9)})
    assert drawn(begun(space, 1), 5) == drawn(begun(space, 1), 5) != drawn(begun(space, 2), 5)


def test_a_study_read_back_from_a_store_draws_the_same() -> None:
    """The order in which parameters were written is not stored, so it must not matter."""
    space = Space({"zeta": Float(0, 1), "alpha": Float(5, 6), "mid": Int(1, 9), "kind": Choice(["b", "a"])})
    ledger = begun(space)
    stored = [(entry.kind, loads(dumps(entry.body()))) for entry in ledger.entries()]
    assert drawn(Ledger(read(stored)), 20) == drawn(ledger, 20)


# what a policy may answer --------------------------------------------------------------------------------------------


def trained(*curves: list[float], until: int = 4) -> Ledger:
    """A trial for each curve, ordered until that step and cut off behind its last value."""
    space, budget = Space({"x": Float(0, 1)}), Budget("99 epochs")
    ledger = Ledger([Opened(space=space, budget=budget, policy="p", settings={}, seed=0, max_steps=5)])
    for number, curve in enumerate(curves):
        ledger = ledger.append(Order(number=number, trial=number, config={"x": number / 10}, until=until))
        for step, value in enumerate(curve, start=1):
            ledger = ledger.append(Receipt(order=number, trial=number, step=step, value=value, saved=step))
        if len(curve) < until:
            ledger = ledger.append(Note(topic="released", facts={"order": number}))
    return ledger


def test_orders_name_the_next_trial_or_go_on_with_one_and_never_beyond_its_end() -> None:
    ledger = trained([0.5, 0.4])
    assert train_new(ledger, {"x": 0.7}, 3) == Train(trial=1, config={"x": 0.7}, until=3, why={"compared": 0})
    assert train_further(ledger.trials[0], 9, why={"a": 1}) == Train(
        trial=0, config={"x": 0.0}, until=5, why={"compared": 0, "a": 1}
    )


def test_nothing_to_buy_waits_while_an_order_is_open() -> None:
    ledger = trained([0.5, 0.4])
    assert nothing_to_buy(ledger, "that was all") == Finish("that was all")
    ledger = ledger.append(Order(number=1, trial=0, config={"x": 0.0}, until=5))
    assert nothing_to_buy(ledger) == Wait()


def test_a_trial_that_stands_between_two_stops_was_cut_short() -> None:
    ledger = trained([0.5, 0.4], [0.3, 0.2, 0.1])
    cut = find_cut_short(ledger, (3, 5))
    assert cut is not None
    assert cut.number == 0
    assert find_cut_short(ledger, (1, 2, 3)) is None
    going = ledger.append(Order(number=2, trial=0, config={"x": 0.0}, until=5))
    assert find_cut_short(going, (3, 5)) is None


def test_the_best_unfinished_trial_is_not_one_at_its_end_or_under_way() -> None:
    ledger = trained([0.5, 0.4], [0.3], [0.3])
    best = train_best_unfinished(ledger, "the best goes on")
    assert best is not None
    assert (best.trial, best.until) == (1, 5)
    assert dict(best.why) == {
        "stage": "the best goes on",
        "compared": 3,
        "score_name": "newest value",
        "best_is": "lowest",
        "score": 0.3,
        "runner_up": 2,
        "runner_up_score": 0.3,
    }
    going = ledger.append(Order(number=3, trial=1, config={"x": 0.1}, until=5))
    best = train_best_unfinished(going, "the best goes on", stops=(1, 3))
    assert best is not None
    assert (best.trial, best.until, best.why["runner_up"]) == (2, 3, 0)
    assert train_best_unfinished(trained([0.3] * 5, until=5), "") is None
