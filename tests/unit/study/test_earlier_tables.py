"""Tables of earlier trials: which columns mean what, and what is wrong with a table that cannot be read."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoestring.errors import ShoestringError, StudyError
from shoestring.study.earlier_tables import TABLE_ENDINGS, TableTrial, read_table


def read(folder: Path, text: str, name: str = "runs.csv", column: str = "") -> list[TableTrial]:
    path = folder / name
    path.write_text(text, "utf-8")
    return list(read_table(path, column))


def test_each_row_of_a_plain_table_is_a_trial(tmp_path: Path) -> None:
    trials = read(tmp_path, "lr,kind,flag,loss,seconds\n1e-3,sgd,true,0.5,12\n0.1,adam,False,0.25,\n")
    assert trials == [
        ({"lr": 0.001, "kind": "sgd", "flag": True}, [0.5], 12.0),
        ({"lr": 0.1, "kind": "adam", "flag": False}, [0.25], None),
    ]


def test_rows_of_one_trial_are_its_steps_in_their_order(tmp_path: Path) -> None:
    text = "trial,epoch,lr,value,seconds\na,2,0.1,0.4,3\nb,1,0.2,0.9,5\na,1,0.1,0.8,1\n"
    assert read(tmp_path, text) == [({"lr": 0.1}, [0.8, 0.4], 2.0), ({"lr": 0.2}, [0.9], 5.0)]


def test_the_seconds_of_a_single_row_are_those_of_all_its_steps(tmp_path: Path) -> None:
    assert read(tmp_path, "lr,value,step,seconds\n0.1,0.5,10,20\n") == [({"lr": 0.1}, [0.5], 2.0)]


@pytest.mark.parametrize("prefix", ["config.", "config/", "params.", "params/", "params_", "param:"])
def test_parameters_with_the_prefix_of_an_exporter(tmp_path: Path, prefix: str) -> None:
    text = f"name,{prefix}lr,{prefix}width,value\nfirst,0.1,8,0.5\n"
    assert read(tmp_path, text) == [({"lr": 0.1, "width": 8}, [0.5], None)]


@pytest.mark.parametrize("ending", [".jsonl", ".ndjson", ".json"])
def test_json_lines_with_objects_inside(tmp_path: Path, ending: str) -> None:
    rows = [
        {"config": {"lr": 0.1, "kind": "a"}, "metrics": {"error": 0.3}},
        {"config": {"lr": 0.2}, "metrics": {"error": 0.2}},
    ]
    found = read(tmp_path, "\n".join(map(json.dumps, rows)), f"runs{ending}")
    assert found == [({"lr": 0.1, "kind": "a"}, [0.3], None), ({"lr": 0.2}, [0.2], None)]


def test_a_json_list(tmp_path: Path) -> None:
    assert read(tmp_path, '[{"lr": 1, "loss": 2}]', "runs.json") == [({"lr": 1}, [2.0], None)]


def test_the_named_column_has_the_values(tmp_path: Path) -> None:
    assert read(tmp_path, "lr,loss,val_loss\n0.1,9,0.5\n", column="val_loss")[0][1] == [0.5]


def test_an_empty_value_is_unknown_and_one_that_is_no_number_is_bad(tmp_path: Path) -> None:
    values = [trial[1][0] for trial in read(tmp_path, "lr,value\n1,\n2,nan\n3,diverged\n4,inf\n")]
    assert values[0] is None
    assert all(math.isnan(value) for value in values[1:] if value is not None)


def test_an_empty_cell_is_no_parameter(tmp_path: Path) -> None:
    assert read(tmp_path, "lr,momentum,value\n0.1,,1\n")[0][0] == {"lr": 0.1}


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("runs.csv", "", "has no rows"),
        ("runs.csv", "lr,value\n", "has no rows"),
        (
            "runs.csv",
            "lr,error\n1,2\n",
            r"no column value, loss, objective, score.*runs\.csv#val_loss; it has lr, error",
        ),
        ("runs.jsonl", "{", "cannot be read"),
        ("runs.jsonl", "[1, 2]", "entry 1 is no object"),
        ("runs.json", '[{"value": 1}, 3]', "entry 2 is no object"),
        ("runs.jsonl", "[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_table(tmp_path: Path, name: str, text: str, expected: str) -> None:
    with pytest.raises(StudyError, match=expected):
        read(tmp_path, text, name)


def test_a_misspelled_column_is_suggested(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"no column 'val_los'.*Did you mean 'val_loss'"):
        read(tmp_path, "lr,val_loss\n1,2\n", column="val_los")


def test_a_missing_file_and_a_binary_one(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"gone\.csv' cannot be read: No such file"):
        list(read_table(tmp_path / "gone.csv", ""))
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    with pytest.raises(StudyError, match="cannot be read: it is not text in UTF-8"):
        list(read_table(tmp_path / "binary.csv", ""))


_CELLS = st.one_of(st.integers(), st.floats(), st.text(max_size=8), st.none(), st.booleans())


@pytest.mark.repeated
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ending=st.sampled_from(TABLE_ENDINGS),
    content=st.one_of(
        st.binary(max_size=200),
        st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(st.dictionaries(st.sampled_from(["lr", "value", "step", "trial", "seconds"]), _CELLS), max_size=4).map(
            lambda rows: "\n".join(map(json.dumps, rows)).encode()
        ),
    ),
)
def test_any_file_is_read_or_refused_in_one_line(tmp_path: Path, ending: str, content: bytes) -> None:
    path = tmp_path / f"hostile{ending}"
    path.write_bytes(content)
    try:
        trials: list[Any] = list(read_table(path, ""))
    except ShoestringError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017
    else:
        assert all(isinstance(config, dict) for config, _, _ in trials)
