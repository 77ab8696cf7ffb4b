"""Single parameters: their rules, and the ends of their unit interval."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from shoestring.core.space.parameters import Choice, Constant, Float, Int, parse
from shoestring.core.values.checks import is_same, to_plain
from shoestring.errors import SpaceError


@pytest.mark.parametrize(
    ("parameter", "words"),
    [
        (Float(1, 0), ["low 1 must be below high 0; for one value use constant"]),
        (Float(1.0, 1.0), ["constant"]),
        (Float(2**53, 2**53 + 1), ["are the same float", "constant"]),
        (Float(0, math.inf), ["finite", "inf"]),
        (Float(0, math.nan), ["finite", "nan"]),
        (Float(0, 10**400), ["finite"]),
        (Float(0, "1"), ["finite numbers", "'1'"]),  # type: ignore[arg-type]
        (Float(False, True), ["finite numbers"]),
        (Float(0.0, 1.0, log=True), ["low > 0", "drop log"]),
        (Float(0.1, 1.0, log="yes"), ["log = 'yes'", "true or false"]),  # type: ignore[arg-type]
        (
            Float(0.1, 1.0, cost="more"),  # type: ignore[arg-type]
            [
                'cost = \'more\' must be "increases" if a larger value costs more, or "decreases" if it costs less',
                "leave it out",
            ],
        ),
        (Int(1, 9, cost=["increases"]), ["cost = ['increases'] must be"]),  # type: ignore[arg-type]
        (Float(-1e308, 1e308), ["overflows", "narrow"]),
        (Int(1, 1), ["constant"]),
        (Int(1.5, 3), ["whole numbers", "1.5"]),  # type: ignore[arg-type]
        (Int(0, 4, log=True), ["low >= 1", "drop log"]),
        (Int(0, 2**50), ["2**50", "use float"]),
        (Int(2**60, 2**60 + 3), ["2**53", "use float"]),
        (Int(1, 2**40 + 1, log=True), ["2**40", "use float"]),
        (Choice([]), ["at least one option"]),
        (Choice("sgd"), ["list", "'sgd'", "['sgd']"]),
        (Choice({"a", "b"}), ["list"]),  # type: ignore[arg-type]
        (Choice([1, 1]), ["option 1", "twice"]),
        (Choice([(1, 2), (1, 2)]), ["option (1, 2)", "twice"]),
        (Choice([len, "a", len]), ["option <built-in function len>", "twice"]),
        (Float(0, 1, step=0.0), ["step = 0.0 must be above 0"]),
        (Float(0, 1, step=math.nan), ["step = nan must be a finite number"]),
        (Float(0, 1, step=2), ["step = 2 is above high - low", "lower it or use constant"]),
        (Float(0.1, 1, log=True, step=0.1), ["step = 0.1 does not go with a log scale", "drop log"]),
        (Float(1e6, 1e6 + 1, step=1e-9), ["step = 1e-09 is too small beside"]),
        (Int(1, 9, step=0), ["step = 0 must be above 0"]),
        (Int(1, 9, step=1.5), ["step = 1.5 must be a whole number"]),  # type: ignore[arg-type]
        (Int(1, 9, log=True, step=2), ["step = 2 does not go with a log scale"]),
    ],
)
def test_messages_name_the_value_and_a_remedy(parameter: Any, words: list[str]) -> None:
    problem = parameter.find_problem()
    assert problem is not None
    for word in words:
        assert word in problem


def test_booleans_and_numbers_are_different_options() -> None:
    choice = Choice([1, 1.0, True, "1", None, [1], [True], [1.0]])
    assert choice.find_problem() is None
    for option in choice.options:
        assert is_same(choice.from_unit(choice.to_unit(option)), option)
    assert choice.accept(True) is True
    assert choice.accept((1.0,)) == [1.0]


@pytest.mark.parametrize(
    ("parameter", "value", "stored"),
    [
        (Float(0, 1), 1, 1.0),
        (Float(0, 1), np.float32(0.5), 0.5),
        (Int(1, 9), 3.0, 3),
        (Int(1, 9), np.int8(3), 3),
        (Int(1, 9), np.float32(3.0), 3),
        (Choice(["a", 2]), np.int64(2), 2),
        (Constant([1, 2]), (1, 2), [1, 2]),
        (Constant((1, 2)), [1, 2], "(1, 2)"),
        (Float(0.1, 1, step=0.1), 0.1 + 0.2, 0.3),
        (Int(1, 9, step=2), 3.0, 3),
    ],
)
def test_values_are_accepted_as_the_ledger_reads_them_back(parameter: Any, value: Any, stored: Any) -> None:
    accepted = parameter.accept(value)
    assert is_same(accepted, stored)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        (Float(0.7, 1), np.float32(0.7)),  # 0.699999988: equal to 0.7 only at half precision
        (Float(0, 1, step=0.1), 0.25),
        (Int(1, 9, step=2), 4),
        (Float(0, 1), True),
        (Float(0, 1), math.nan),
        (Float(0, 1), "0.5"),
        (Float(0, 1), np.array([0.5])),
        (Float(0, 1), np.add),
        (Int(1, 9), 2.5),
        (Int(1, 9), True),
        (Int(1, 9), 10),
        (Int(1, 9), math.inf),
        (Choice([1]), True),
        (Choice(["a"]), "b"),
        (Constant(1), 1.0),
    ],
)
def test_values_outside_a_parameter_are_refused(parameter: Any, value: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        parameter.accept(value)


def test_small_numpy_bounds_do_not_overflow() -> None:
    wide = Int(np.int8(-100), np.int8(100))  # type: ignore[arg-type]
    assert wide.find_problem() is None
    assert wide.size == 201
    assert [wide.from_unit(wide.to_unit(n)) for n in (-100, 0, 100)] == [-100, 0, 100]
    assert Float(np.float32(0.1), 1.0).low == float(np.float32(0.1))  # type: ignore[arg-type]


@pytest.mark.parametrize("u", [-1.0, -1e-300, 0.0, 1.0, 1.0 + 1e-15, 7.0])
def test_points_at_and_beyond_the_edge_stay_in_range(u: float) -> None:
    for parameter in (Float(0.1, 0.3), Float(1e-5, 1e5, log=True), Int(1, 7), Int(3, 9000, log=True)):
        assert parameter.low <= parameter.from_unit(u) <= parameter.high
    assert Choice(["abcd"]).from_unit(u) == "abcd"
    assert Choice(list("abcd")).from_unit(u) == ("a" if u < 0.5 else "d")


@pytest.mark.parametrize("u", [5e-324, 2e-52, 1e-39, 9e-13])
def test_numbers_next_to_zero_become_zero(u: float) -> None:
    """A search along a bound comes this close to it, and XGBoost refuses numbers beyond the range of 32 bits."""
    assert Float(0, 7).from_unit(u) == 0.0
    assert Float(-1, 1).from_unit(0.5 + u / 4) == 0.0
    assert Float(0, 7).from_unit(2e-12) == 1.4e-11
    assert Float(1e-15, 1).from_unit(u) == 1e-15
    assert Float(1e-60, 1e-50).from_unit(0.5) == pytest.approx(5e-51, rel=1e-9)


def test_discrete_values_have_bins_of_equal_size() -> None:
    n = 7
    for u, index in ((0.0, 0), (1 / 7 - 1e-12, 0), (1 / 7 + 1e-12, 1), (6 / 7 + 1e-12, 6), (1.0, 6)):
        assert Int(1, n).from_unit(u) == 1 + index
        assert Choice(list(range(n))).from_unit(u) == index


def test_levels_include_both_ends() -> None:
    assert list(Float(0, 1).levels(3)) == [0.0, 0.5, 1.0]
    assert list(Float(0, 1).levels(1)) == [0.5]
    assert list(Float(0.1, 0.3).levels(5))[-1] == 0.3
    assert list(Int(1, 3).levels(10)) == [1, 2, 3]
    assert list(Int(0, 100).levels(3)) == [0, 50, 100]
    assert next(iter(Int(1, 1000, log=True).levels(4))) == 1
    assert list(Choice(["a", "b"]).levels(1)) == ["a", "b"]
    assert list(Constant(5).levels(3)) == [5]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (5, ["lr = 5", "lr = { float = [1e-4, 1.0], log = true }", '{"lr": {"float": [1e-4, 1.0], "log": True}}']),
        ({}, ["exactly one kind"]),
        ({"flot": [0, 1]}, ["'flot'", "'float'?"]),
        ({"float": [0, 1], "int": [0, 1]}, ["exactly one kind"]),
        ({"float": [0]}, ["float = [0]", "[low, high]"]),
        ({"choice": "abc"}, ["a list of options"]),
        ({"choice": ["a"], "log": True}, ["unknown setting 'log'"]),
        ({"float": [0, 1], "lgo": True}, ["'lgo'", "'log'?"]),
        ({"float": [0, 1], 5: True}, ["unknown setting 5"]),
    ],
)
def test_invalid_descriptions_are_errors(spec: Any, words: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        parse("lr", spec)
    assert str(caught.value).startswith("lr")
    for word in words:
        assert word in str(caught.value)


def test_listed_values_are_stored_as_json_would() -> None:
    assert to_plain((1, (np.float64(2.0), np.str_("x")))) == [1, [2.0, "x"]]
    assert type(to_plain(np.int32(4))) is int
    assert to_plain(np.array([1, 2])) == [1, 2]
