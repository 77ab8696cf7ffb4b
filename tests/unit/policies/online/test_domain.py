"""Spaces as kernel columns, and the competitors on a finite domain."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shoestring.core.parameters import Choice, Constant, Float, Int
from shoestring.core.space import Space
from shoestring.models.online.query_rules import local_maxima
from shoestring.policies.online.domain import CubeKernel, Encoding, is_finite, points_of

MIXED = Space(
    {
        "lr": Float(1e-4, 1.0, log=True),
        "depth": Int(1, 9),
        "optimizer": Choice(["sgd", "adam", "lion"]),
        "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"}),
        "batch": Constant(32),
    }
)
OPTIMIZER = MIXED.cube_names.index("optimizer")


def test_a_conditional_parameter_is_two_columns() -> None:
    encoding = Encoding(MIXED)
    sgd = encoding.columns({"lr": 1.0, "depth": 9, "optimizer": "sgd", "momentum": 0.0, "batch": 32})
    adam = encoding.columns({"lr": 1.0, "depth": 9, "optimizer": "adam", "batch": 32})
    assert sgd.shape == adam.shape == (5,)
    momentum = MIXED.cube_names.index("momentum")
    assert (sgd[momentum], sgd[4]) == (0.0, 1.0)
    assert (adam[momentum], adam[4]) == (0.5, 0.0)
    assert sorted(encoding.numbers) == [j for j in range(4) if j != OPTIMIZER]
    assert encoding.options == (OPTIMIZER, 4)


def test_points_of_the_cube_and_their_configs_agree_where_nothing_is_rounded() -> None:
    encoding = Encoding(MIXED)
    config = {"lr": 0.01, "depth": 5, "optimizer": "adam", "batch": 32}
    columns, moves = encoding.columns_of_cube(MIXED.to_cube(config)[None])
    np.testing.assert_allclose(columns[0], encoding.columns(config), rtol=1e-12)
    assert moves.tolist() == [[name in ("lr", "depth") for name in MIXED.cube_names]]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**32 - 1))
def test_the_gradient_in_the_cube_is_that_of_differences(seed: int) -> None:
    rng = np.random.default_rng(seed)
    encoding = Encoding(MIXED)
    kernel = CubeKernel(encoding, *encoding.kernel("matern52", 0.3, 1.7))
    x, z = rng.random((1, 4)), rng.random((3, 4))
    k, gradient = kernel(x, z)
    assert k.shape == (1, 3)
    assert (k <= 1.7 + 1e-12).all()
    for j in encoding.numbers:
        step = np.zeros((1, 4))
        step[0, j] = 1e-6
        if encoding.columns_of_cube(x + step)[1][0, j]:
            numeric = (kernel(x + step, z)[0] - kernel(x - step, z)[0]) / 2e-6
            np.testing.assert_allclose(gradient[:, :, j], numeric, rtol=1e-4, atol=1e-7)
        else:
            assert (gradient[:, :, j] == 0.0).all()
    assert (gradient[:, :, OPTIMIZER] == 0.0).all()


def test_different_options_are_unrelated_arms_and_all_others_compete() -> None:
    space = Space({"mode": Choice(["train", "tune"])})
    encoding = Encoding(space)
    points = points_of(encoding)
    kernel, theta = encoding.kernel("matern52", 0.2, 1.0)
    assert kernel.matrix(theta, points.columns, points.columns)[0, 1] < 1e-5
    assert points.rivals(np.array([0.0, 1.0]), 1).tolist() == [0]


def test_along_one_number_competitors_are_the_other_local_maxima_whatever_the_order_of_rows() -> None:
    rng = np.random.default_rng(0)
    x = np.linspace(0.0, 1.0, 40)
    shuffled = rng.permutation(40)
    points = points_of(Encoding(Space.listed([{"x": float(v)} for v in x[shuffled]])))
    for _ in range(20):
        height = rng.normal(size=40)
        chosen = int(np.argmax(height[shuffled]))
        peaks = [p for p in local_maxima(height) if p != shuffled[chosen]]
        assert sorted(shuffled[points.rivals(height[shuffled], chosen)]) == sorted(peaks)


def test_on_a_grid_competitors_are_its_other_humps_within_equal_options() -> None:
    space = Space({"a": Int(1, 21), "b": Int(1, 21), "kind": Choice(["u", "v"])})
    points = points_of(Encoding(space))
    a, b = (np.array([config[name] for config in points.configs], dtype=float) for name in "ab")
    is_u = np.array([config["kind"] == "u" for config in points.configs])
    hump = np.exp(-((a - 6) ** 2 + (b - 6) ** 2) / 9) + 0.9 * np.exp(-((a - 16) ** 2 + (b - 15) ** 2) / 9)
    height = np.where(is_u, hump, 0.5 * np.exp(-((a - 11) ** 2 + (b - 11) ** 2) / 30))
    chosen = int(np.argmax(height))
    assert (points.configs[chosen]["a"], points.configs[chosen]["b"]) == (6, 6)
    rivals = {(c["a"], c["b"], c["kind"]) for c in (points.configs[i] for i in points.rivals(height, chosen))}
    assert rivals == {(16, 15, "u"), (11, 11, "v")}


def test_what_is_finite() -> None:
    assert is_finite(Space.listed([{"x": 0.1}, {"x": 0.2}]))
    assert is_finite(Space({"n": Int(1, 2000)}))
    assert not is_finite(Space({"n": Int(1, 2001)}))
    assert not is_finite(MIXED)


def test_a_space_where_nothing_varies_has_one_point() -> None:
    points = points_of(Encoding(Space({"batch": Constant(32)})))
    assert points.columns.shape == (1, 1)
    assert points.rivals(np.zeros(1), 0).size == 0
