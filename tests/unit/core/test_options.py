"""Options that are objects: plain texts in the ledger and in reports, the very objects for Python."""

from __future__ import annotations

import math
from enum import Enum
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.amendments import _describe_difference
from shoestring.core.space.options import StoredObject
from shoestring.core.space.parameters import Choice, Constant
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import SpaceError


class Plain:
    """An object without a `repr` of its own: its text would be its address."""


class Model:
    def __init__(self, width: int) -> None:
        self.width = width

    def __repr__(self) -> str:
        return f"Model(\n  width={self.width})"


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def relu(x: float) -> float:
    return max(0.0, x)


Colour = Enum("Colour", "RED")
OBJECTS: list[Any] = [(64, 32), {"a": 1}, {3, 1}, b"x", math.nan, [1, (2, 3)], np.array([1, 2]), Colour.RED]
OBJECTS += [relu, Model, Model(3), Broken(), Plain(), lambda x: x, lambda x: -x]
TEXTS = ["(64, 32)", "{'a': 1}", "{1, 3}", "b'x'", "nan", "[1, (2, 3)]", "array([1, 2])", "<Colour.RED: 1>"]
TEXTS += ["relu", "Model", "Model( width=3)", "<Broken>", f"<{__name__}.Plain object>", "<lambda>", "<lambda> #14"]


def test_each_object_has_a_text_and_is_given_back_itself() -> None:
    space = Space({"o": Choice(["plain", 1, *OBJECTS])})
    assert space.parameters["o"].describe()["choice"] == ["plain", 1, *TEXTS[:-1], "<lambda> #16"]
    for option in OBJECTS:
        config = space.validate({"o": option})
        assert type(config["o"]) is str
        assert space.validate(config) == config  # as the ledger has it
        assert space.with_objects(config)["o"] is option
        assert space.from_cube(space.to_cube(config)) == config
    assert space.with_objects({"o": 1}) == {"o": 1}


def test_plain_values_are_described_as_before() -> None:
    space = Space({"o": Choice(["a", 1, 1.0, True, None, [1, [2]], np.int64(7)])})
    assert space.to_dict() == {"o": {"choice": ["a", 1, 1.0, True, None, [1, [2]], 7]}}
    assert not space.has_objects


def test_a_ledger_gives_tuples_back_and_of_other_objects_the_text() -> None:
    space = Space({"o": Choice(["plain", *OBJECTS]), "c": Constant((1, "a"))})
    read = Space.from_dict(loads(dumps(space.to_dict())))
    assert read == space
    options = read.parameters["o"].options  # type: ignore[union-attr]
    assert options[:5] == ["plain", (64, 32), {"a": 1}, {1, 3}, b"x"]
    assert math.isnan(options[5])
    assert options[6] == [1, (2, 3)]
    assert all(isinstance(option, StoredObject) for option in options[7:])
    assert read.with_objects({"o": "(64, 32)", "c": "(1, 'a')"}) == {"o": (64, 32), "c": (1, "a")}
    assert read.with_objects({"o": "relu"}) == {"o": "relu"}
    with pytest.raises(SpaceError, match=r"option array\(\[1, 2\]\) of o is a Python object \(ndarray\)"):
        read.require_objects()
    space.require_objects()


def test_equal_objects_that_were_made_again_are_the_same_option() -> None:
    space = Space({"o": Choice([Model(1), Model(2), (1, 2)])})
    assert space.validate({"o": Model(2)}) == {"o": "Model( width=2)"}
    assert space.validate({"o": [1, 2]}) == {"o": "(1, 2)"}  # JSON has no tuples
    with pytest.raises(SpaceError, match="must be one of Model"):
        space.validate({"o": Model(3)})
    with pytest.raises(SpaceError, match="must be one of"):
        Space({"o": Choice([Plain()])}).validate({"o": Plain()})


def test_a_text_and_an_object_with_the_same_text_differ() -> None:
    space = Space({"o": Choice(["(1, 2)", (1, 2)])})
    assert space.validate({"o": "(1, 2)"}) == {"o": "(1, 2)"}
    assert space.with_objects({"o": "(1, 2)"}) == {"o": "(1, 2)"}
    config = space.validate({"o": (1, 2)})
    assert space.with_objects(config) == {"o": (1, 2)}
    assert Space.from_dict(space.to_dict()).with_objects(config) == {"o": (1, 2)}


def test_a_long_text_is_cut_but_a_change_in_it_is_seen() -> None:
    one, other = (Space({"o": Choice([tuple(range(1000)), (*range(999), last)])}) for last in (5, 6))
    texts = one.to_dict()["o"]["choice"]
    assert all(len(text) < 300 for text in texts)
    assert texts[0] != texts[1]
    assert one != other
    assert not one.has_same_configs(other)


def test_an_option_can_be_a_condition() -> None:
    space = Space(
        {
            "net": Choice([(8,), relu]),
            "depth": Choice([1, 2], when={"net": [(8,)]}),
            "k": Choice([1], when={"net": relu}),
        }
    )
    assert space.validate({"net": (8,), "depth": 2}) == {"net": "(8,)", "depth": 2}
    assert space.size == 3


def test_the_difference_names_the_option() -> None:
    class Definition:
        def __init__(self, *options: Any) -> None:
            self.space = Space({"o": Choice([*options])})

    def differs(was: Definition, now: Definition) -> str:
        return _describe_difference(was, now)  # type: ignore[arg-type]

    assert differs(Definition(1, Model(1)), Definition(1, Model(2))) == (
        "option 1 of o was Model( width=1) (Model), not Model( width=2) (Model)"
    )
    assert (
        differs(Definition((1, 2), relu), Definition((1, 3), relu))
        == "option 0 of o was (1, 2) (tuple), not (1, 3) (tuple)"
    )
    assert differs(Definition(relu, 1), Definition(relu, 2)) == "option 1 of o was 1, not 2"
    assert "{'choice': ['relu']" in differs(Definition(relu), Definition(relu, 2))


def test_a_list_that_contains_itself_is_an_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(SpaceError, match="a list in a list"):
        Space({"o": Choice([endless])})
