"""A config that goes through the unit cube comes back, whatever the space; invalid input gives an error of shoestring.

Values and bounds are drawn by bit pattern and as typed decimals, never through the space; only what the space itself
refuses with an error is left out.
"""

from __future__ import annotations

import contextlib
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.space.encoding import Encoding
from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.space.space import Space
from shoestring.core.values.checks import is_same
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import ShoestringError, SpaceError

EXACT = 1e-12  # of the range; on a log scale, of the value itself


def from_bits(bits: int) -> float:
    number: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return number


bit_patterns = st.integers(0, 2**64 - 1).map(from_bits)
positive_bits = st.integers(0, 2**63 - 1).map(from_bits)
typed_decimals = st.builds(
    lambda sign, whole, part, power: float(f"{sign}{whole}.{part}e{power}"),
    st.sampled_from(["", "-"]),
    st.integers(0, 10**6),
    st.integers(0, 10**9),
    st.integers(-20, 20),
)


@st.composite
def neighbours(draw: st.DrawFn) -> list[float]:
    """Draw numbers that are a few floats apart: the narrowest ranges there are."""
    first = draw(st.integers(0, 2**63 - 2**20))
    sign = draw(st.sampled_from([1.0, -1.0]))
    return [
        sign * from_bits(first + offset) for offset in draw(st.lists(st.integers(0, 2**20), min_size=3, max_size=3))
    ]


threes = st.one_of(
    st.lists(bit_patterns, min_size=3, max_size=3),
    st.lists(positive_bits, min_size=3, max_size=3),
    st.lists(typed_decimals, min_size=3, max_size=3),
    neighbours(),
)


def near(parameter: Parameter, back: Any, value: Any) -> bool:
    """Return whether a value came back through the cube: floats to 1e-12 and within their range, all others exactly."""
    if not isinstance(parameter, Float):
        return is_same(back, value)
    scale = value if parameter.log else float(parameter.high) - float(parameter.low)
    return bool(parameter.low <= back <= parameter.high and abs(back - value) <= EXACT * scale)


def round_trip(space: Space, config: dict[str, Any]) -> dict[str, Any]:
    u = space.to_cube(config)
    assert u.shape == (space.dims,)
    assert np.all((u >= 0.0) & (u <= 1.0))
    return space.from_cube(u)


@examples(120, thorough=1000)
@given(threes, st.booleans())
@example([5e-324, 1.0, 1.7976931348623157e308], True)
@example([5e-324, 1e-310, 1e-300], True)
@example([1e16, 1e16 + 2, 1e16 + 6], False)
@example([-1e10, 1e-11, 1e-10], False)
@example([1.0, 1.0 + 2**-52, 1.0 + 2**-51], True)
@example([0.0, 5e-324, 1e-323], False)
@example([1e300, 1e300 * (1 + 2**-52), 1e300 * (1 + 2**-51)], True)
def test_floats_come_back_to_1e_12_and_stay_in_range(numbers: list[float], log: bool) -> None:
    assume(not any(map(math.isnan, numbers)))  # nan cannot be sorted; the space's own refusal of it is tested elsewhere
    low, value, high = sorted(numbers)
    parameter = Float(low, high, log)
    try:
        space = Space({"x": parameter})
    except SpaceError:
        return
    config = space.validate({"x": value})
    assert config == {"x": value}
    for given_value in (low, value, high):
        assert near(parameter, round_trip(space, {"x": given_value})["x"], given_value)


typed_integers = st.integers(-(2**60), 2**60).map(lambda n: int(str(n)))
patterned_integers = st.integers(0, 2**64 - 1).map(lambda b: struct.unpack("<q", struct.pack("<Q", b))[0] >> 10)


@examples(120, thorough=1000)
@given(
    st.one_of(
        st.lists(typed_integers, min_size=3, max_size=3),
        st.lists(patterned_integers, min_size=3, max_size=3),
        st.tuples(st.integers(-(2**53), 2**53), st.integers(0, 2**50), st.integers(0, 2**50)).map(
            lambda t: [t[0], t[0] + t[1], t[0] + t[2]]
        ),
        st.lists(st.integers(1, 2**40), min_size=3, max_size=3),
    ),
    st.booleans(),
)
@example([-(2**49), 0, 2**49 - 1], False)
@example([2**53 - 2**50 + 1, 2**53 - 7, 2**53], False)
@example([1, 2**40 - 1, 2**40], True)
@example([0, 1, 1], False)
def test_integers_come_back_exactly(numbers: list[int], log: bool) -> None:
    low, value, high = sorted(numbers)
    try:
        space = Space({"n": Int(low, high, log)})
    except SpaceError:
        return
    for given_value in {low, value, high, min(low + 1, high), max(high - 1, low)}:
        assert space.validate({"n": given_value}) == {"n": given_value}
        back = round_trip(space, {"n": given_value})
        assert back == {"n": given_value}
        assert type(back["n"]) is int


@examples(120, thorough=1000)
@given(st.integers(-(10**6), 10**6), st.integers(1, 10**4), st.integers(1, 10**6), st.integers(-9, 3), st.data())
@example(1, 1, 10, -1, None)
@example(1, 2, 1, -1, None)
def test_multiples_of_a_step_come_back_exactly(low: int, step: int, steps: int, power: int, data: Any) -> None:
    """Each value is the float nearest to the decimal that a person would write."""
    written = [f"{low + k * step}e{power}" for k in (0, steps, steps + 1)]
    space = Space(
        {
            "x": Float(float(written[0]), float(written[1]), step=float(f"{step}e{power}")),
            "n": Int(low, low + steps * step, step=step),
        }
    )
    assert space.parameters["x"].size == space.parameters["n"].size == steps + 1
    k = steps // 3 if data is None else data.draw(st.integers(0, steps))
    config = {"x": float(f"{low + k * step}e{power}"), "n": low + k * step}
    assert space.validate(config) == config
    assert round_trip(space, config) == config
    u = np.array([0.3, 0.7]) if data is None else np.array([data.draw(st.floats(0, 1)), data.draw(st.floats(0, 1))])
    drawn = space.from_cube(u)
    assert space.validate(drawn) == drawn
    encoding = Encoding(space)
    snapped = encoding.snap(u[None])
    assert encoding.config(snapped, 0) == drawn
    values = encoding.values(1, snapped.cube[:, 1])
    assert abs(values[0] - drawn["x"]) <= 1e-9 * float(f"{step}e{power}")


scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-1, 1), st.text(max_size=3))
options = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2), max_leaves=3)


@st.composite
def spaces_with_a_config(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """Draw up to six parameters of all kinds, with chains of conditions, and a config of them."""
    written: dict[str, Any] = {}
    config: dict[str, Any] = {}
    for i in range(draw(st.integers(1, 6))):
        name = draw(st.sampled_from("abcdefgh")) + str(i)
        kind = draw(st.sampled_from(["float", "int", "choice", "constant"]))
        spec: dict[str, Any]
        value: Any
        if kind == "float":
            bounds = sorted(draw(st.lists(typed_decimals, min_size=3, max_size=3, unique=True)))
            low, value, high = bounds
            spec = {"float": [low, high]}
        elif kind == "int":
            low, value, high = sorted(draw(st.lists(st.integers(-50, 50), min_size=3, max_size=3, unique=True)))
            spec = {"int": [low, high]}
        elif kind == "choice":
            spec = {"choice": draw(st.lists(options, min_size=1, max_size=4, unique_by=dumps))}
            value = draw(st.sampled_from(spec["choice"]))
        else:
            value = draw(options)
            spec = {"constant": value}
        active = True
        switches = [other for other in written if "float" not in written[other]]
        conditional: bool = draw(st.booleans())
        if switches and conditional:
            parent = draw(st.sampled_from(switches))
            wanted = draw(st.lists(values_of(written[parent]), min_size=1, max_size=3))
            spec["when"] = {parent: wanted}
            active = parent in config and any(is_same(config[parent], w) for w in wanted)
        written[name] = spec
        if active:
            config[name] = value
    return written, config


def values_of(spec: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "int" in spec:
        return st.integers(*spec["int"])
    return st.sampled_from(spec["choice"]) if "choice" in spec else st.just(spec["constant"])


@examples(80, thorough=600)
@given(spaces_with_a_config(), st.randoms(use_true_random=False))
def test_choices_constants_and_conditions_come_back_exactly(
    drawn: tuple[dict[str, Any], dict[str, Any]], shuffler: Any
) -> None:
    written, config = drawn
    space = Space.from_dict(written)
    assert space.validate(config) == config
    back = round_trip(space, config)
    assert back.keys() == config.keys()
    assert all(near(space.parameters[name], back[name], config[name]) for name in config)

    names = list(written)
    shuffler.shuffle(names)
    restored = Space.from_dict(loads(dumps({name: written[name] for name in names})))
    assert restored == space
    assert restored.to_cube(config).tolist() == space.to_cube(config).tolist()
    read_back = Space.from_dict(loads(dumps(space.to_dict())))
    assert read_back == space
    assert read_back.cube_names == space.cube_names


@examples(60, thorough=400)
@given(spaces_with_a_config(), st.data())
def test_every_point_of_the_cube_is_a_valid_config(
    drawn: tuple[dict[str, Any], dict[str, Any]], data: st.DataObject
) -> None:
    space = Space.from_dict(drawn[0])
    one = struct.unpack("<Q", struct.pack("<d", 1.0))[0]
    coordinate = st.integers(0, one).map(from_bits)  # every float from 0 to 1, both included
    u = np.array(data.draw(st.lists(coordinate, min_size=space.dims, max_size=space.dims)))
    config = space.from_cube(u)
    assert space.validate(config) == config
    if space.size <= 300:
        grid = list(space.grid(1000))
        assert len({dumps(point) for point in grid}) == len(grid) == space.size
        assert dumps(config) in {dumps(point) for point in grid}


junk = st.recursive(
    st.one_of(
        scalars,
        st.integers(),
        st.just(10**400),
        st.floats(),
        st.binary(max_size=2),
        st.just(object()),
        st.sampled_from([np.float32(0.5), np.int8(3), np.bool_(True), np.array([1, 2]), np.array(1.0), np.add, {1, 2}]),
        st.sampled_from([Float(0, 1), Int(1, 3), Choice(["a"]), Constant(None)]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(
            st.one_of(
                st.sampled_from(
                    ["float", "int", "choice", "constant", "when", "log", "cost", "increases", "listed", "a", "b"]
                ),
                st.integers(0, 1),
                st.none(),
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@examples(80, thorough=600)
@given(junk, junk)
def test_invalid_input_gives_only_our_errors(description: Any, config: Any) -> None:
    for make in (Space, Space.from_dict, Space.from_configs):
        with contextlib.suppress(ShoestringError):
            make(description).validate(config)


junk_or_list = st.one_of(junk, st.lists(junk, max_size=3))


@examples(60, thorough=400)
@given(junk_or_list, junk_or_list, junk_or_list, junk_or_list)
def test_invalid_parameters_give_only_our_errors(a: Any, b: Any, c: Any, d: Any) -> None:
    for parameter in (Float(a, b, c, d, a), Int(a, b, c, d, a), Float(a, b, c, cost=d), Choice(a, d), Constant(a, d)):
        with contextlib.suppress(SpaceError):
            space = Space({"x": parameter, "y": Int(1, 3)})
            assert space.size >= 3
            space.validate({"x": b, "y": c})


@pytest.mark.parametrize("bounds", [(0.0, math.nan), (math.nan, 1.0), (0.0, math.inf), (-math.inf, 0.0)])
def test_bounds_that_are_not_finite_numbers_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(SpaceError, match="finite"):
        Space({"x": Float(*bounds)})
