"""The table of configurations and its pool: no configuration twice, matching rows, an empty pool at the end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.deciding.policy import find_untried_config, start_trial
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.pricing import place_order
from shoestring.core.space.encoding import Encoding
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.policies.config_table import ConfigsView, Pool, draw_candidates
from shoestring.runners.runner import write_receipt

CONTINUOUS = Space(
    {
        "x": Float(0.0, 1.0),
        "z": Float(1e-3, 1.0, log=True),
        "n": Int(1, 5),
        "c": Choice(["a", "b"]),
        "y": Float(0.0, 1.0, when={"c": "b"}),
    }
)
FINITE = Space({"n": Int(1, 4), "c": Choice(["a", "b", "c"]), "m": Int(1, 2, when={"c": "a"})})  # 4 * (2 + 1 + 1)
HUGE = Space({"n": Int(1, 200), "m": Int(1, 200)})  # finite, but too large for a table
LISTED = Space.from_configs([{"i": i, "kind": "xyz"[i % 3]} | ({"extra": i * i} if i % 4 else {}) for i in range(9)])
SPACES = [CONTINUOUS, FINITE, HUGE, LISTED]


def start(space: Space) -> Ledger:
    return Ledger([StudyDefinition(space=space, budget=Budget("1000 epochs"), policy="", settings={}, seed=3)])


def train(ledger: Ledger, config: Config, loss: float) -> Ledger:
    order = place_order(ledger, start_trial(ledger, config, 1))
    assert order is not None
    return ledger.append(order).append(write_receipt(order, 1, loss, Cost(train=1.0), at=0.0, saved_step=0))


def configs_of(ledger: Ledger, pool: Pool) -> list[Config]:
    table = ledger.view(ConfigsView())
    return [table.config(pool, pool.points, i) for i in range(len(pool.points))]


@examples(14, thorough=40)
@given(st.sampled_from(SPACES), st.integers(0, 14), st.integers(0, 10**6), st.booleans())
def test_a_pool_has_untried_configs_of_the_space(space: Space, trials: int, seed: int, near: bool) -> None:
    rng = np.random.default_rng(seed)
    ledger = start(space)
    for _ in range(trials):
        pool = ledger.view(ConfigsView()).pool(ledger, 5, rng, near=None if near else ())
        configs = configs_of(ledger, pool)
        if not configs:
            break
        ledger = train(ledger, configs[int(rng.integers(len(configs)))], float(rng.normal()))
    tried = {space.key(trial.config) for trial in ledger.trials}
    assert len(tried) == len(ledger.trials)
    table = ledger.view(ConfigsView())
    pool = table.pool(ledger, 5, rng, near=None if near else ())
    for config in configs_of(ledger, pool):
        space.validate(config)
        assert space.key(config) not in tried
    assert not table.is_tried(pool.points).any()
    assert table.is_tried(table.encoding.points([trial.config for trial in ledger.trials])).all()


@examples(10, thorough=30)
@given(st.sampled_from([FINITE, LISTED]), st.lists(st.booleans(), min_size=16, max_size=16), st.integers(0, 99))
def test_rows_match_their_points_and_all_untried_ones_are_in_the_pool(
    space: Space, is_trained: list[bool], seed: int
) -> None:
    ledger = start(space)
    rows: Any = ledger.view(ConfigsView()).rows
    for row, trained in zip(rows, is_trained, strict=False):
        ledger = train(ledger, row, 0.0) if trained else ledger
    table = ledger.view(ConfigsView())
    pool = table.pool(ledger, 5, np.random.default_rng(seed))
    assert pool.rows.tolist() == [
        i for i, (_, trained) in enumerate(zip(rows, is_trained, strict=False)) if not trained
    ]
    np.testing.assert_array_equal(pool.points.cube, table.encoding.points([rows[i] for i in pool.rows]).cube)
    odd = np.arange(len(pool.rows)) % 2 == 1
    assert configs_of(ledger, pool.take(odd)) == [rows[i] for i in pool.rows[odd]]


@pytest.mark.parametrize("space", [FINITE, LISTED])
def test_a_space_that_is_used_up_has_an_empty_pool(space: Space) -> None:
    ledger = start(space)
    while (config := find_untried_config(ledger)) is not None:
        assert ledger.view(ConfigsView()).unused.any()
        ledger = train(ledger, config, 1.0)
    table = ledger.view(ConfigsView())
    assert not table.unused.any()
    pool = table.pool(ledger, 5, np.random.default_rng(0))
    assert len(pool.points) == len(pool.rows) == 0


def test_a_draw_of_only_tried_configs_gives_an_untried_one() -> None:
    ledger = start(HUGE)
    only = draw_candidates(Encoding(HUGE), np.empty((0, 2)), 1, 3, np.random.default_rng(0))
    ledger = train(ledger, Encoding(HUGE).config(only, 0), 1.0)
    pool = ledger.view(ConfigsView()).pool(ledger, 1, np.random.default_rng(0), near=())
    assert configs_of(ledger, pool) == [find_untried_config(ledger)]


def test_a_pool_without_trials_has_no_copies_of_the_best() -> None:
    ledger = start(CONTINUOUS)
    assert len(ledger.view(ConfigsView()).pool(ledger, 7, np.random.default_rng(0)).points) == 7


def test_a_pool_has_copies_of_the_best_trials() -> None:
    ledger = start(CONTINUOUS)
    for i in range(8):
        config = {"x": 0.1 * i, "z": 0.1, "n": 3, "c": "a"}
        ledger = train(ledger, config, 1.0 if i < 3 else 0.01 * i)
    pool = ledger.view(ConfigsView()).pool(ledger, 1, np.random.default_rng(0))
    near = pool.points.cube[1:, CONTINUOUS.cube_names.index("x")]  # copies of trials 3 to 7, after the one drawn point
    assert len(near) == 250
    np.testing.assert_allclose(near.reshape(5, 50).mean(axis=1), [0.3, 0.4, 0.5, 0.6, 0.7], atol=0.03)
    named = ledger.view(ConfigsView()).pool(ledger, 1, np.random.default_rng(0), near=[4])
    assert len(named.points) == 51


def test_candidates_are_configs_and_change_from_decision_to_decision() -> None:
    encoding = Encoding(CONTINUOUS)
    best = np.full((2, CONTINUOUS.dims), 0.5)
    first, again, other = (draw_candidates(encoding, best, 30, 7, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.cube, again.cube)
    assert len(first) == 30 + 2 * 50
    assert not np.array_equal(first.cube, other.cube)
    for i in range(len(first)):
        CONTINUOUS.validate(encoding.config(first, i))
