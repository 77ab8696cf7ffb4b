"""Values are read back exactly as they were written."""

from __future__ import annotations

import json
import math
from enum import Enum, IntEnum
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoestring.core.values.strict_json import dumps, loads

OBJECT = object()
COLOUR = Enum("COLOUR", "RED")

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["~", "~nan", "~~inf"])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=10,
)


def is_equal(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_equal(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(a == b)


@given(values)
def test_a_value_is_read_back_as_it_was_written(value: Any) -> None:
    text = dumps(value)
    assert is_equal(loads(text), value)
    assert dumps(loads(text)) == text
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    text.encode("ascii")  # every database accepts ASCII, also for half a surrogate pair


def test_half_a_surrogate_pair_is_read_back() -> None:
    assert loads(dumps("file-\udcff")) == "file-\udcff"


def test_equal_values_give_equal_text() -> None:
    assert dumps({"b": (1, 2), "a": np.float64(0.5)}) == dumps({"a": 0.5, "b": [1, 2]}) == '{"a":0.5,"b":[1,2]}'
    assert dumps(1) != dumps(1.0) != dumps(True)
    assert dumps(np.array([[1, 2]])) == "[[1,2]]"
    assert dumps([math.nan, math.inf, -math.inf]) == '["~nan","~inf","~-inf"]'


def test_subclasses_are_stored_as_their_plain_types() -> None:
    class Size(IntEnum):
        SMALL = 1

    assert dumps([Size.SMALL, np.int8(3), np.bool_(True), np.str_("x")]) == '[1,3,true,"x"]'


@pytest.mark.parametrize(
    ("value", "part"),
    [(OBJECT, OBJECT), ({"a": {3}}, {3}), ([b"x"], b"x"), (1j, 1j), (COLOUR, COLOUR)],
)
def test_a_value_that_cannot_be_stored_is_named(value: Any, part: Any) -> None:
    with pytest.raises(TypeError) as caught:
        dumps(value)
    rule = "cannot be stored: use numbers, strings, booleans, None, lists or dicts"
    assert str(caught.value) == f"{part!r} ({type(part).__name__}) {rule}"


def test_a_key_that_is_no_string_is_named() -> None:
    with pytest.raises(TypeError, match=r"^1 cannot be a key in the ledger: keys are strings$"):
        dumps({1: 2})
