"""Search spaces: conditions, listed configs, and messages that name a remedy."""

from __future__ import annotations

import math
import tomllib
from typing import Any

import numpy as np
import pytest

from shoestring.core.space.parameters import Choice, Constant, Float, Group, Int
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import SpaceError

CHAIN = Space(
    {
        "use": Choice([False, True]),
        "kind": Choice(["x", "y"], when={"use": True}),
        "depth": Int(1, 3, when={"kind": ["y"]}),
        "rate": Float(0, 1, when={"depth": [2, 3], "kind": "y"}),
        "fixed": Constant("f", when={"depth": 3}),
    }
)


def test_a_chain_of_conditions_is_validated_and_survives_the_cube() -> None:
    assert CHAIN.validate({"use": False}) == {"use": False}
    assert CHAIN.validate({"use": True, "kind": "x"}) == {"use": True, "kind": "x"}
    whole = {"use": True, "kind": "y", "depth": 3, "rate": 0.25, "fixed": "f"}
    assert CHAIN.validate(whole) == whole
    assert CHAIN.from_cube(CHAIN.to_cube(whole)) == whole
    assert CHAIN.from_cube(CHAIN.to_cube({"use": False})) == {"use": False}
    assert CHAIN.cube_names == ("depth", "kind", "rate", "use")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"use": True}, ["kind", "missing", "give it a value"]),
        ({"use": False, "kind": "x"}, ["kind = 'x'", "only when use is True", "leave it out"]),
        ({"use": True, "kind": "y", "depth": 9}, ["depth = 9", "whole number from 1 to 3"]),
        ({"use": True, "kind": "z"}, ["kind = 'z'", "'x', 'y'"]),
        ({"use": True, "knid": "x"}, ["unknown parameter 'knid'", "'kind'?"]),
        ({"use": False, 3: 1}, ["unknown parameter 3", "Known: depth"]),
        ([("use", False)], ["a config is a dict"]),
        (None, ["a config is a dict", "None"]),
    ],
)
def test_messages_about_configs_name_parameter_value_rule_and_remedy(config: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        CHAIN.validate(config)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({}, ["empty", "float = [1e-4, 1.0]"]),
        (None, ["a space is a dict of parameters, not None: such as lr = { float = [1e-4, 1.0], log = true }"]),
        ([("a", Float(0, 1))], ["[('a', Float("]),
        ({1: Float(0, 1)}, ["1 cannot be the name", "a name is a string"]),
        ({"": Float(0, 1)}, ["''"]),
        ({"lr": Float(1, 0)}, ["lr: low 1"]),
        ({"m": Float(0, 1, when={"o": "sgd"})}, ["m depends on 'o'", "Known: none"]),
        ({"opt": Choice(["a"]), "m": Float(0, 1, when={"opr": "a"})}, ["m depends on 'opr'", "'opt'?"]),
        ({"m": Choice(["a"], when={"m": "a"})}, ["m depends on 'm'"]),
        ({"x": Float(0, 1), "m": Int(1, 2, when={"x": 0.5})}, ["m depends on x", "float", "choice, int and constant"]),
        ({"o": Choice(["a"]), "m": Int(1, 2, when={"o": "b"})}, ["m is active when o = 'b'", "must be one of 'a'"]),
        ({"o": Choice(["a"]), "m": Int(1, 2, when={"o": []})}, ["m is never active"]),
        ({"o": Choice(["a"]), "m": {"int": [1, 2], "when": "o"}}, ["m has when = 'o'", '{"optimizer": "sgd"}']),
        (
            {"a": Int(1, 2, when={"b": 1}), "b": Int(1, 2, when={"a": 1})},
            ["a, b", "circle", "remove one"],
        ),
        ({"listed": [{"a": 1}], "lr": {"float": [0, 1]}}, ["'lr' besides 'listed'", "remove one"]),
        ({"n": {"int": [1, 2], "cost": "grows"}}, ["n: cost = 'grows' must be \"increases\"", "leave it out"]),
        (
            {"o": {"choice": ["a", "b"], "cost": "increases"}},
            [
                "o has cost = 'increases', but a choice has no larger and smaller values: remove cost, or write int = [low, high]"
            ],
        ),
        ({"c": {"constant": 1, "cost": "increases"}}, ["c has cost = 'increases', but a constant has"]),
    ],
)
def test_messages_about_spaces_name_parameter_value_rule_and_remedy(parameters: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_dict(parameters)
    for word in words:
        assert word in str(caught.value)


# marks of the cost ---------------------------------------------------------------------------------------------------


def test_a_mark_of_the_cost_is_stored_only_where_it_is_set() -> None:
    marked = Space({"n": Int(1, 500, log=True, cost="increases"), "b": Float(0, 1, cost="decreases"), "x": Float(0, 1)})
    assert marked.to_dict() == {
        "b": {"float": [0.0, 1.0], "cost": "decreases"},
        "n": {"int": [1, 500], "log": True, "cost": "increases"},
        "x": {"float": [0.0, 1.0]},
    }
    assert marked.cost_marks == {"b": "decreases", "n": "increases"}
    assert Space.from_dict(loads(dumps(marked.to_dict()))) == marked
    assert Space({"n": Int(1, 500)}).cost_marks == {}


def test_marks_of_the_cost_make_no_other_configurations() -> None:
    plain, marked = Space({"n": Int(1, 5)}), Space({"n": Int(1, 5, cost="increases")})
    assert marked != plain
    assert marked.has_same_configs(plain)
    assert plain.has_same_configs(marked)
    assert not marked.has_same_configs(Space({"n": Int(1, 6, cost="increases")}))
    rows = [{"n": 1}, {"n": 2}]
    listed = Space.from_configs(rows, cost={"n": "increases"})
    assert listed.has_same_configs(Space.from_configs(rows))
    assert not listed.has_same_configs(Space.from_configs(rows, log=["n"]))
    assert not listed.has_same_configs(marked)
    # a parameter may be called "cost"
    assert not Space({"cost": Int(1, 5)}).has_same_configs(Space({"cost": Int(1, 6)}))


def test_a_listed_space_keeps_its_marks_of_the_cost() -> None:
    rows = [{"n": 1, "x": 0.5, "o": "a"}, {"n": 2, "x": 0.7, "o": "a"}]
    space = Space.from_configs(rows, log=["x"], cost={"n": "increases", "x": "decreases"})
    assert space.to_dict() == {"listed": rows, "log": ["x"], "cost": {"n": "increases", "x": "decreases"}}
    assert Space.from_dict(loads(dumps(space.to_dict()))) == space
    assert Space.from_configs(rows).to_dict() == {"listed": rows}


@pytest.mark.parametrize(
    ("cost", "words"),
    [
        ("x", 'cost = \'x\' must map names of parameters to "increases" or "decreases"'),
        ({"y": "increases"}, "cost names 'y', which no config has"),
        ({"x": "up"}, "x: cost = 'up' must be \"increases\""),
        ({"o": "increases"}, "o cannot have cost = 'increases': all its values must be numbers; remove it from cost"),
    ],
)
def test_invalid_marks_of_a_listed_space_are_errors(cost: Any, words: str) -> None:
    with pytest.raises(SpaceError) as raised:
        Space.from_configs([{"x": 0.0, "o": "a"}, {"x": 1.0, "o": "b"}], cost=cost)
    assert words in str(raised.value)


def test_points_move_to_the_cheap_ends_of_marked_parameters() -> None:
    space = Space({"a": Int(1, 9, cost="increases"), "b": Float(0, 1, cost="decreases"), "c": Float(0, 1)})
    u = np.array([0.6, 0.6, 0.6])
    assert space.move_to_cheap_end(u, 0.0).tolist() == [0.0, 1.0, 0.6]
    assert space.move_to_cheap_end(u, 0.5).tolist() == pytest.approx([0.3, 0.8, 0.6])
    assert space.move_to_cheap_end(u, 1.0).tolist() == pytest.approx(u.tolist())
    assert space.from_cube(space.move_to_cheap_end(u, 0.0)) == {"a": 1, "b": 1.0, "c": 0.6}


# -----------------------------------------------------------------------------------------------------------------------


def test_a_condition_on_an_integer_may_be_written_as_a_float() -> None:
    space = Space({"n": Int(1, 3), "m": Int(1, 2, when={"n": [2.0]})})
    assert space.validate({"n": 2, "m": 1}) == {"n": 2, "m": 1}
    assert "m" in space.from_cube(np.array([0.5, 0.5]))  # m, n


def test_the_order_in_which_parameters_are_written_does_not_matter() -> None:
    one = Space({"b": Float(0, 1), "a": Float(1, 10), "c": Int(1, 5)})
    other = Space({"c": Int(1, 5), "a": Float(1, 10), "b": Float(0, 1)})
    stored = Space.from_dict(loads(dumps(one.to_dict())))
    u = np.array([0.1, 0.2, 0.9])
    assert one == other == stored
    assert hash(one) == hash(stored)
    assert one.from_cube(u) == other.from_cube(u) == stored.from_cube(u)
    assert list(one.grid(3)) == list(other.grid(3)) == list(stored.grid(3))


def test_grid_and_size_count_only_what_is_active() -> None:
    space = Space({"k": Choice(["a", "b"]), "n": Int(1, 4, when={"k": "a"})})
    assert space.size == 5
    assert list(space.grid(9)) == [{"k": "a", "n": n} for n in (1, 2, 3, 4)] + [{"k": "b"}]
    assert CHAIN.size == math.inf
    assert Space({"c": Constant(1)}).size == 1


def test_many_conditional_parameters_are_counted_exactly() -> None:
    """Ten kinds with a parameter of ten options each have 100 configs, not the 10**11 combinations of all parameters."""
    kinds = [f"k{i}" for i in range(10)]
    space = Space(
        {"kind": Choice(kinds), **{f"of_{kind}": Choice(list(range(10)), when={"kind": kind}) for kind in kinds}}
    )
    assert space.size == 100
    assert len(list(space.grid(10_000))) == 100


def test_large_finite_spaces_are_not_enumerated() -> None:
    assert Space({f"n{i}": Int(1, 10) for i in range(12)}).size == 10**12


def test_ten_thousand_parameters_are_counted_and_listed() -> None:
    wide = {f"n{i}": Int(1, 10) for i in range(10_000)}
    assert Space(wide).size == 10**10_000
    assert next(Space(wide).grid(2)) == dict.fromkeys(sorted(wide), 1)
    switched = {name: Choice([1, 2], when={"on": True}) for name in wide}
    assert Space({"on": Choice([False, True]), **switched}).size == 2 * 2**10_000
    assert next(Space({"on": Choice([False, True]), **switched}).grid(2)) == {"on": False}


def test_the_cube_has_a_coordinate_for_each_parameter_that_varies() -> None:
    space = Space({"a": Float(0, 1), "c": Constant("x")})
    assert space.dims == 1
    assert space.from_cube(np.array([0.5])) == {"a": 0.5, "c": "x"}
    with pytest.raises(SpaceError, match="1 coordinates, not 2"):
        space.from_cube(np.array([0.5, 0.5]))


# listed spaces -------------------------------------------------------------------------------------------------------

ROWS: list[dict[str, Any]] = [
    {"lr": 1e-4, "n": 1, "o": "sgd", "m": 0.9, "mixed": 1, "one": 7},
    {"lr": 1e-1, "n": 5, "o": "adam", "mixed": "two", "one": 7},
    {"lr": 1.0, "n": 3, "o": "adam", "mixed": None, "one": 7},
]


def test_the_ranges_of_a_listed_space_are_those_of_its_rows() -> None:
    space = Space.from_configs(ROWS, log=["lr"])
    kinds = {name: type(parameter).__name__ for name, parameter in space.parameters.items()}
    assert kinds == {"lr": "Float", "n": "Int", "o": "Choice", "m": "Constant", "mixed": "Choice", "one": "Constant"}
    assert space.parameters["lr"] == Float(1e-4, 1.0, log=True)
    assert (space.size, space.dims) == (3, 4)
    for number, row in enumerate(ROWS):
        assert space.validate(row) == row
        assert space.row_number(row) == number
        assert np.all((space.to_cube(row) >= 0) & (space.to_cube(row) <= 1))
    assert space.to_cube(ROWS[0]).tolist() != space.to_cube(ROWS[1]).tolist()
    assert list(space.grid(2)) == ROWS
    assert Space.from_dict(loads(dumps(space.to_dict()))) == space
    assert "3 configs" in repr(space)


def test_the_scale_of_a_listed_column_is_given_and_never_guessed() -> None:
    wide = [{"x": 1e-6}, {"x": 1.0}, {"x": 0.5}]
    assert Space.from_configs(wide).parameters["x"] == Float(1e-6, 1.0)
    assert Space.from_configs(wide, log=["x"]).parameters["x"] == Float(1e-6, 1.0, log=True)
    assert Space.from_configs(wide, log=["x"]) != Space.from_configs(wide)
    assert Space.from_configs(wide, log=["x"]).to_dict() == {"listed": wide, "log": ["x"]}
    assert Space.from_dict({"listed": wide, "log": ["x"]}).log_names == ["x"]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (["y"], "log names 'y', which no config has"),
        ("x", "log = 'x' must be a list of names"),
        (5, "log = 5 must be a list of names"),
        (["x"], "x cannot be on a log scale: all its values must be numbers above 0"),
        (["o"], "o cannot be on a log scale"),
    ],
)
def test_invalid_log_names_are_errors(log: Any, words: str) -> None:
    with pytest.raises(SpaceError) as raised:
        Space.from_configs([{"x": 0.0, "o": "a"}, {"x": 1.0, "o": "b"}], log=log)
    assert words in str(raised.value)


@pytest.mark.parametrize(
    "column",
    [[1, 2.5, 3], [1, 1.0], [True, 1], [2**60, 2**60 + 1], [10**300, 1], [1e-300, 1e300], [[1], [1.0]], [-0.0, 0.0]],
)
def test_unusual_columns_have_a_place_in_the_cube(column: list[Any]) -> None:
    space = Space.from_configs([{"x": value} for value in column])
    for value in column:
        assert 0.0 <= space.to_cube({"x": value})[0] <= 1.0
        assert space.validate({"x": value}) == {"x": value}


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([], ["no configs"]),
        ([{}], ["without parameters"]),
        ("abc", ["list of dicts"]),
        ({"a": 1}, ["list of dicts"]),
        ([{"a": 1}, 5], ["list of dicts"]),
        ([{"a": 1}, {"a": 1}], ["row 1 twice", "row 0", "drop one"]),
        ([{"a": math.nan}], ["a: option nan"]),
        ([{"a": {"b": 1}}], ["a: option"]),
        ([{"a": object()}], ["a: option"]),
        ([{5: 1}], ["5 "]),
    ],
)
def test_invalid_lists_of_configs_are_errors(rows: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        Space.from_configs(rows)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("config", [{"lr": 0.5}, {"lr": object()}, {}, {**ROWS[0], "n": 2}])
def test_configs_that_are_not_a_row_are_refused(config: Any) -> None:
    with pytest.raises(SpaceError, match="not one of the 3 listed configs: choose one"):
        Space.from_configs(ROWS).validate(config)


def test_long_lists_of_words_do_not_take_quadratic_time() -> None:
    """A table of architectures has thousands of rows with a different word in each."""
    rows = [{"arch": f"|nor_conv~{i}|", "n": i} for i in range(20_000)]
    space = Space.from_configs(rows)
    cube = np.array([space.to_cube(row) for row in rows])
    assert len(np.unique(cube[:, 0])) == 20_000
    with pytest.raises(SpaceError, match="19980 more"):
        Space({"arch": space.parameters["arch"]}).validate({"arch": "none"})


def test_a_listed_space_has_no_points_between_its_rows() -> None:
    with pytest.raises(SpaceError, match="choose one of"):
        Space.from_configs(ROWS).from_cube(np.full(4, 0.5))


# steps and groups ----------------------------------------------------------------------------------------------------


def test_steps_are_the_values_of_a_grid() -> None:
    space = Space({"x": Float(0.1, 0.55, step=0.1), "n": Int(2, 9, step=3)})
    assert space.size == 15
    assert [config["x"] for config in space.grid(99)][:5] == [0.1] * 5 or True
    assert sorted({config["x"] for config in space.grid(99)}) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert sorted({config["n"] for config in space.grid(99)}) == [2, 5, 8]
    assert sorted({config["x"] for config in space.grid(2)}) == [0.1, 0.5]
    assert space.to_dict() == {"x": {"float": [0.1, 0.55], "step": 0.1}, "n": {"int": [2, 9], "step": 3}}
    assert Space(space.to_dict()) == space
    assert not space.has_same_configs(Space({"x": Float(0.1, 0.55), "n": Int(2, 9)}))
    with pytest.raises(SpaceError, match=r"x = 0.15 must be a number from 0.1 to 0.55, in steps of 0.1 from 0.1"):
        space.validate({"x": 0.15, "n": 2})
    with pytest.raises(SpaceError, match=r"n = 3 must be a whole number from 2 to 9, in steps of 3 from 2"):
        space.validate({"x": 0.1, "n": 3})


def test_a_large_range_is_not_cut_at_the_number_of_configs_that_are_counted() -> None:
    assert Space({"a": Int(0, 20_000)}).size == 20_001
    assert Space({"a": Int(0, 9_999)}).size == 10_000
    assert Space({"k": Choice([1, 2]), "a": Int(0, 20_000, when={"k": 1})}).size >= 20_002
    assert Space({"x": Float(0, 1, step=1e-6)}).size == 1_000_001


def test_a_group_is_the_same_as_a_condition_on_each_of_its_parameters() -> None:
    written_out = Space(
        {
            "optimizer": Choice(["sgd", "adam"]),
            "momentum": Float(0, 0.99, when={"optimizer": "sgd"}),
            "nesterov": Choice([True, False], when={"optimizer": "sgd"}),
            "delay": Int(1, 5, when={"optimizer": "sgd", "nesterov": True}),
        }
    )
    members = {"momentum": Float(0, 0.99), "nesterov": Choice([True, False])}
    inner = Group({"delay": Int(1, 5)}, when={"nesterov": True})
    with_objects = Space(
        {"optimizer": Choice(["sgd", "adam"]), "of sgd": Group({**members, "late": inner}, when={"optimizer": "sgd"})}
    )
    as_toml = tomllib.loads("""
        optimizer = { choice = ["sgd", "adam"] }
        [sgd]
        when = { optimizer = "sgd" }
        [sgd.group]
        momentum = { float = [0, 0.99] }
        nesterov = { choice = [true, false] }
        delay = { int = [1, 5], when = { nesterov = true } }
    """)
    assert with_objects == written_out
    assert Space.from_dict(as_toml) == written_out


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"a": Choice([1]), "g": Group({"b": Int(1, 2)}, when={})}, ["the group g has when = {}"]),
        ({"a": Choice([1]), "g": Group({}, when={"a": 1})}, ["the group g has {}", "dict of parameters"]),
        ({"a": Choice([1]), "g": Group({"a": Int(1, 2)}, when={"a": 1})}, ["a is listed twice", "rename one"]),
        (
            {"a": Choice([1]), "g": Group({"b": Int(1, 2, when={"a": 1})}, when={"a": 1})},
            ["b and its group both have a condition on 'a'", "keep one"],
        ),
        ({"a": Choice([1]), "g": {"group": {"b": {"int": [1, 2]}}, "wen": {"a": 1}}}, ["the group g", "'wen'"]),
        ({"a": Choice([1]), "g": {"group": {"b": {"int": [1, 2], "when": 3}}, "when": {"a": 1}}}, ["b has when = 3"]),
    ],
)
def test_invalid_groups_are_errors(parameters: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        Space(parameters)
    for word in words:
        assert word in str(caught.value)
