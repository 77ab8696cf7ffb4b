"""`printed=True` gives settings the values of a paper, and never changes in silence what the user has given."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring.core.deciding.printed_form import as_printed
from shoestring.errors import PolicyError


@as_printed(samples=10, features=(), until=None)
@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    name: ClassVar[str] = "method"
    samples: int = 1
    features: tuple[str, ...] = ("a",)
    until: float | None = 8.0
    arms: int = 3
    printed: bool = False


def test_the_values_of_the_paper_are_set() -> None:
    assert Method() == Method(printed=False, samples=1, features=("a",), until=8.0)
    printed = Method(printed=True, arms=5)
    assert (printed.samples, printed.features, printed.until, printed.arms) == (10, (), None, 5)


@pytest.mark.parametrize("given", [{"samples": 10}, {"until": None}, {"features": []}, {"samples": np.int64(10)}])
def test_the_same_values_are_accepted(given: dict[str, Any]) -> None:
    assert Method(printed=True, **given).samples == 10


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"samples": 1},
            "method(samples=1) contradicts printed=True, the form of the paper, in which samples=10. Leave one",
        ),
        ({"samples": 3}, "method(samples=3)"),
        ({"until": 8.0}, "method(until=8.0) contradicts printed=True, the form of the paper, in which until=None."),
        ({"features": ["b"]}, "method(features=['b'])"),
    ],
)
def test_another_value_is_an_error_even_if_it_is_the_default(given: dict[str, Any], message: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(message)):
        Method(printed=True, **given)


def test_copies_keep_the_form() -> None:
    assert replace(Method(printed=True), arms=9) == Method(printed=True, arms=9)
    with pytest.raises(PolicyError, match="contradicts"):
        replace(Method(printed=True), samples=2)


def test_printed_is_true_or_false() -> None:
    with pytest.raises(PolicyError, match=r"method\(printed=1\) is unknown: it must be one of True, False"):
        Method(printed=1)  # type: ignore[arg-type]
