from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring import policies
from shoestring.errors import StudyError
from shoestring.runners.simulated.recorded_table import Table
from shoestring.testing.policies import make_definition, simulate

NAN = math.nan


def write(path: Path, values: Any, *, fidelity: str | None = "epoch", hp: Any = None, **arrays: Any) -> Path:
    count = len(values)
    hp = np.column_stack([np.linspace(0.1, 1.0, count), np.arange(count) % 2]) if hp is None else np.asarray(hp, float)
    meta = {"objective": "loss", "direction": "min", "fidelity": fidelity, "hp_categories": {"net": ["cnn", "mlp"]}}
    meta |= arrays.pop("meta", {})
    names = np.array(["lr", "net"][: hp.shape[1]])
    np.savez(path, hp=hp, hp_names=names, meta=json.dumps(meta), loss=np.asarray(values, "float32"), **arrays)
    return path


def test_a_table_gives_its_configs_curves_and_costs(tmp_path: Path) -> None:
    path = write(tmp_path / "t.npz", [[3, 2, 1], [5, 4, NAN]], cost=[[1, 3, 6], [2, 4, NAN]], eval_cost=[0.5, 0.25])
    table = Table.load(path)
    assert table.configs == [{"lr": 0.1, "net": "cnn"}, {"lr": 1.0, "net": "mlp"}]
    assert (table.max_steps, table.direction, table.name, list(table.lengths)) == (3, "min", "t", [3, 2])
    outcomes = [table.step(table.configs[0], step) for step in (1, 2, 3, 4)]
    assert [outcome and (outcome.value, outcome.cost.train, outcome.cost.validate) for outcome in outcomes] == [
        (3.0, 1.0, 0.5),
        (2.0, 2.0, 0.5),
        (1.0, 3.0, 0.5),
        None,
    ]
    assert table.step(table.configs[1], 3) is None  # its curve ended


def test_missing_costs_are_a_second_a_step_and_costs_of_a_whole_run_are_spread(tmp_path: Path) -> None:
    values = [[3, 2, 1, 1], [5, 4, NAN, NAN]]
    assert np.array_equal(Table.load(write(tmp_path / "a.npz", values)).costs_s, np.ones((2, 4)))
    spread = Table.load(write(tmp_path / "b.npz", values, cost=[8.0, 3.0]))
    assert np.allclose(spread.costs_s, np.array([[2, 2, 2, 2], [1.5, 1.5, 0, 0]]))


def test_a_table_of_single_values_has_one_step_and_repeats_are_averaged(tmp_path: Path) -> None:
    one = Table.load(write(tmp_path / "one.npz", [3.0, 2.0], fidelity=None, cost=[10.0, 20.0]))
    assert (one.values.tolist(), one.costs_s.tolist()) == ([[3.0], [2.0]], [[10.0], [20.0]])
    repeats = [[1.0, 3.0], [5.0, NAN], [NAN, NAN]]
    costs = [[2.0, 4.0], [1.0, 1.0], [1.0, 1.0]]
    table = Table.load(write(tmp_path / "repeats.npz", repeats, fidelity=None, cost=costs))
    assert table.values[:2].tolist() == [[2.0], [5.0]]
    assert table.costs_s.tolist() == [[3.0], [1.0], [1.0]]
    outcome = table.step(table.configs[2], 1)
    assert outcome is not None
    assert math.isnan(outcome.value or 0.0)  # no value at all: diverged at its first step


def test_a_value_missing_inside_a_curve_diverged_and_no_cost_is_negative(tmp_path: Path) -> None:
    table = Table.load(write(tmp_path / "t.npz", [[3, NAN, 1], [NAN] * 3], cost=[[1, 0.5, 2], [NAN, NAN, NAN]]))
    assert list(table.lengths) == [3, 1]
    inside = table.step(table.configs[0], 2)
    assert inside is not None
    assert math.isnan(inside.value or 0.0)
    assert table.costs_s.tolist() == [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]


def test_thinning_keeps_the_last_value_and_all_the_time_of_a_block(tmp_path: Path) -> None:
    values = [np.arange(10, 0, -1), [*range(10, 5, -1), *[NAN] * 5], [7, *[NAN] * 9]]
    cost = np.broadcast_to(np.arange(1.0, 11.0), (3, 10))
    path = write(tmp_path / "t.npz", values, cost=cost)
    table = Table.load(path, max_steps=4)  # blocks end at steps 3, 5, 8, 10
    assert table.values[0].tolist() == [8, 6, 3, 1]
    assert table.costs_s[0].tolist() == [3, 2, 3, 2]
    assert table.lengths.tolist() == [4, 2, 1]
    assert (table.values[1, :2].tolist(), table.values[2, 0]) == ([8, 6], 7)
    assert table.costs_s[2].tolist() == [1, 0, 0, 0]
    assert Table.load(path, max_steps=10).max_steps == Table.load(path, max_steps=99).max_steps == 10


def test_rows_and_subsets_are_chosen_in_the_given_order(tmp_path: Path) -> None:
    path = write(tmp_path / "t.npz", [[3.0], [2.0], [1.0]], eval_cost=0.5)
    table = Table.load(path, rows=[2, 0])
    assert table.values.tolist() == [[1.0], [3.0]]
    assert [config["lr"] for config in table.configs] == [1.0, 0.1]
    assert table.subset([1]).eval_costs_s.tolist() == [0.5]


def test_configs_leave_out_inactive_parameters_and_number_repeated_runs(tmp_path: Path) -> None:
    hp = [[1, NAN], [2, 1], [2, 1], [3, 0]]
    table = Table.load(write(tmp_path / "t.npz", [[1.0]] * 4, hp=hp))
    assert table.configs == [
        {"lr": 1, "run": 0},
        {"lr": 2, "net": "mlp", "run": 0},
        {"lr": 2, "net": "mlp", "run": 1},
        {"lr": 3, "net": "cnn", "run": 0},
    ]
    assert table.space().size == 4


def test_a_study_runs_on_a_table(tmp_path: Path) -> None:
    values = np.linspace(1, 0, 12)[:, None] + 1 / np.arange(1, 10)
    table = Table.load(write(tmp_path / "t.npz", -values, meta={"direction": "max"}))
    policy = policies.make("sequential_halving")
    start = make_definition(policy, space=table.space(), budget="30 epochs", max_steps=9, direction=table.direction)
    best = simulate(policy, table, start).ledger.best
    assert best is not None
    assert best.config == table.configs[11]


def test_unreadable_tables_are_errors(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"the table '.*absent.npz' does not exist: check the path"):
        Table.load(tmp_path / "absent.npz")
    np.savez(tmp_path / "odd.npz", x=np.zeros(3))
    with pytest.raises(StudyError, match="lacks 'meta"):
        Table.load(tmp_path / "odd.npz")
    (tmp_path / "plain.npz").write_text("a,b\n1,2\n")
    with pytest.raises(StudyError, match=r"cannot be read: it is not an \.npz file; see the layout"):
        Table.load(tmp_path / "plain.npz")
    with pytest.raises(StudyError, match=r"the costs have the shape \(2, 1\), the values \(2, 2\)"):
        Table.load(write(tmp_path / "shapes.npz", [[1, 2], [1, 2]], cost=[[1.0], [2.0]]))
    table = Table.load(write(tmp_path / "t.npz", [[1.0], [2.0]]))
    with pytest.raises(StudyError, match="is not one of the 2 rows of the table 't'"):
        table.step({"lr": 9.0}, 1)
    with pytest.raises(StudyError, match="values and costs must both be"):
        Table(table.configs, table.values, np.zeros((2, 5)))
