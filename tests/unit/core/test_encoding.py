"""Configs as rows of numbers: equal configs are equal rows, distinct configs differ, and kernels on rows are covariances."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.core.space.encoding import NO_OPTION, Encoding
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Space
from shoestring.models.gp.kernels import kernel_for

MIXED = Space(
    {
        "lr": Float(1e-5, 1.0, log=True),
        "dropout": Float(0.0, 0.9),
        "units": Int(8, 512, log=True),
        "layers": Int(1, 4),
        "fixed": Constant("yes"),
        "optimizer": Choice(["sgd", "adam", "lamb"]),
        "momentum": Float(0.0, 0.99, when={"optimizer": ["sgd", "lamb"]}),
        "schedule": Choice(["step", "cosine"], when={"optimizer": "sgd"}),
        "period": Int(1, 20, when={"schedule": "cosine", "fixed": "yes"}),
        "wide": Float(1.0, 2.0, when={"layers": [3, 4]}),
        "tenths": Float(0.1, 0.95, step=0.1),
        "even": Int(2, 11, step=2),
        "shape": Choice([(1, 2), (3,), len], when={"even": [2, 4]}),
        "far": Float(0.0, 1.0, when={"shape": [(3,), len]}),
    }
)
cubes = st.lists(st.floats(0.0, 1.0, exclude_max=True), min_size=MIXED.dims, max_size=MIXED.dims)


def encode(space: Space, configs: list[Any]) -> np.ndarray[Any, Any]:
    encoding = Encoding(space)
    return encoding.features(encoding.points(configs))


@examples(67, thorough=200)
@given(cubes)
def test_a_point_and_its_config_have_the_same_row(cube: list[float]) -> None:
    encoding = Encoding(MIXED)
    snapped = encoding.snap(np.array([cube]))
    config = encoding.config(snapped, 0)
    assert config == MIXED.from_cube(np.array(cube)) == MIXED.from_cube(snapped.cube[0])
    again = encoding.points([config])
    np.testing.assert_allclose(again.cube, snapped.cube, atol=1e-9)
    np.testing.assert_array_equal(again.active, snapped.active)
    np.testing.assert_allclose(encoding.features(again), encoding.features(snapped), atol=1e-9)


@examples(34, thorough=100)
@given(cubes, cubes)
def test_inactive_values_do_not_matter(one: list[float], other: list[float]) -> None:
    encoding = Encoding(MIXED)
    first = encoding.snap(np.array([one]))
    mixed = np.array([one])
    config = MIXED.from_cube(np.array(one))
    inactive = np.array([name not in config for name in MIXED.cube_names])
    mixed[0, inactive] = np.array(other)[inactive]
    second = encoding.snap(mixed)
    np.testing.assert_array_equal(encoding.features(first), encoding.features(second))
    np.testing.assert_array_equal(first.cube[0, inactive], 0.5)


@examples(17, thorough=50)
@given(st.integers(0, 2**31), st.integers(2, 25))
def test_the_kernel_is_positive_definite_on_distinct_configs(seed: int, n: int) -> None:
    encoding = Encoding(MIXED)
    points = encoding.snap(np.random.default_rng(seed).random((n, MIXED.dims)))
    x = np.unique(encoding.features(points), axis=0)
    kernel = kernel_for(encoding)
    theta = np.full(kernel.n_parameters, np.log(0.3))
    k = kernel.matrix(theta, x, x)
    np.testing.assert_array_equal(k, k.T)
    assert np.linalg.eigvalsh(k).min() > 1e-9


def test_a_parameter_is_one_column_and_a_condition_adds_one() -> None:
    space = Space({"c": Choice(["a", "b"]), "n": Int(1, 4), "x": Float(0, 1, when={"c": "b"})})
    rows = encode(space, [{"c": "a", "n": 1}, {"c": "b", "n": 4, "x": 0.25}])
    np.testing.assert_allclose(rows, [[0.125, 0.5, 0.0, 0.0], [0.875, 0.25, 1.0, 1.0]])
    assert [(b.family, b.dims) for b in kernel_for(Encoding(space)).blocks] == [
        ("matern52", (0, 1, 2)),
        ("hamming", (3,)),
    ]


def test_an_inactive_choice_equals_itself_and_no_option() -> None:
    space = Space({"a": Choice(["x", "y"]), "b": Choice(["u", "v"], when={"a": "y"})})
    rows = encode(space, [{"a": "x"}, {"a": "y", "b": "u"}, {"a": "y", "b": "v"}])
    assert rows[:, -1].tolist() == [NO_OPTION, 0.0, 1.0]


def test_a_listed_parameter_that_some_row_lacks_is_conditional() -> None:
    space = Space.from_configs([{"a": 1, "b": 5}, {"a": 2}, {"a": 1}, {"a": 2, "b": 9}])
    rows = encode(space, list(space.rows or ()))
    assert len(np.unique(rows, axis=0)) == 4
    only_presence = Space.from_configs([{"a": 1, "b": 5}, {"a": 1}])
    rows = encode(only_presence, list(only_presence.rows or ()))
    assert rows.tolist() == [[1.0], [0.0]]
    assert kernel_for(Encoding(only_presence)).n_dims == 1


def test_a_space_where_nothing_varies_has_a_kernel() -> None:
    space = Space({"only": Constant(3)})
    rows = encode(space, [{"only": 3}])
    assert rows.tolist() == [[0.0]]
    assert kernel_for(Encoding(space)).n_dims == Encoding(space).n_columns == 1


def test_choices_only_have_no_matern_block() -> None:
    assert [b.family for b in kernel_for(Encoding(Space({"c": Choice(["a", "b"])}))).blocks] == ["hamming"]


def test_only_active_floats_may_move() -> None:
    encoding = Encoding(MIXED)
    sgd, adam = np.full(MIXED.dims, 0.1), np.full(MIXED.dims, 0.1)
    adam[list(MIXED.cube_names).index("optimizer")] = 0.5
    free = encoding.free(encoding.snap(np.array([sgd, adam])))
    moving = [{name for name, f in zip(MIXED.cube_names, row, strict=True) if f} for row in free]
    assert moving == [{"lr", "dropout", "momentum"}, {"lr", "dropout"}]


@pytest.mark.parametrize("parameter", [Int(1, 7), Int(1, 256, log=True), Int(-3, 3)])
def test_integers_are_at_the_centre_of_their_cell(parameter: Int) -> None:
    space = Space({"n": parameter})
    u = np.linspace(0.0, 1.0, 501)[:, None]
    snapped = Encoding(space).snap(u)
    values = [parameter.from_unit(float(v)) for v in u[:, 0]]
    np.testing.assert_allclose(snapped.cube[:, 0], [parameter.to_unit(v) for v in values], atol=1e-12)
    np.testing.assert_array_equal(Encoding(space).values(0, snapped.cube[:, 0]), values)


def test_options_are_as_distant_as_the_ends_of_a_range() -> None:
    encoding = Encoding(Space({"x": Float(0.0, 1.0), "kind": Choice(["a", "b", "c"])}))
    configs = [{"x": x, "kind": kind} for x in (0.0, 1.0) for kind in "abc"]
    x = encoding.on_simplex(encoding.points(configs))
    squares = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(
        squares, [[(a["x"] != b["x"]) + (a["kind"] != b["kind"]) for a in configs] for b in configs], atol=1e-15
    )
