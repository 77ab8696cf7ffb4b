"""The parametric families against formulas written out in scalars."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring.models.stopping.curve_families import FAMILIES, CurveFamily

# Each formula once more, in scalars, at one point of its box.
WORKED = [
    ("vapor_pressure", (-0.6, -1.8, 0.05), lambda x: math.exp(-0.6 - 1.8 / x + 0.05 * math.log(x))),
    ("ilog2", (0.8, 0.4), lambda x: 0.8 - 0.4 / math.log(x + 1)),
    ("weibull", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 * math.exp(-((0.1 * x) ** 1.3))),
    ("pow3", (0.84, 0.52, 0.7), lambda x: 0.84 - 0.52 * x**-0.7),
    ("pow4", (0.9, math.log(2.0), 3.0, 0.5), lambda x: 0.9 - (2.0 * x + 3.0) ** -0.5),
    ("mmf", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 / (1 + (0.1 * x) ** 1.3)),
    ("janoschek", (0.7, 0.6, math.log(0.1), 1.3), lambda x: 0.7 - 0.6 * math.exp(-0.1 * x**1.3)),
    ("loglog_linear", (0.2, 1.5), lambda x: math.log(0.2 * math.log(x) + 1.5)),
    ("log_power", (0.8, 1.0, -0.5), lambda x: 0.8 / (1 + (x / math.e**1.0) ** -0.5)),
    ("exp4", (0.8, math.log(0.4), 0.6, -0.8), lambda x: 0.8 - math.exp(-0.4 * x**0.6 - 0.8)),
    ("hill3", (0.8, math.log(2.0), 0.9), lambda x: 0.8 * x**0.9 / (2.0**0.9 + x**0.9)),
]


def test_there_are_eleven_families_each_with_a_worked_formula() -> None:
    assert len(FAMILIES) == 11
    assert [name for name, _, _ in WORKED] == [family.name for family in FAMILIES]


@pytest.mark.parametrize(("name", "theta", "formula"), WORKED)
def test_the_formula(name: str, theta: tuple[float, ...], formula: Any) -> None:
    epochs = np.array([1.0, 2.0, 10.0, 50.0])
    got = {family.name: family for family in FAMILIES}[name].at(epochs, np.array([theta, theta]))
    np.testing.assert_allclose(got, [[formula(x) for x in epochs]] * 2, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@given(data=st.data())
@examples(14, thorough=40)
def test_within_its_box_a_family_is_finite_and_never_falls(family: CurveFamily, data: st.DataObject) -> None:
    theta = [data.draw(st.floats(low, high)) for low, high in zip(family.low, family.high, strict=True)]
    curve = family.at(np.arange(1.0, 201.0), np.array([theta]))[0]
    assert np.isfinite(curve).all()
    assert (np.diff(curve) >= -1e-12 * np.abs(curve[1:])).all()
