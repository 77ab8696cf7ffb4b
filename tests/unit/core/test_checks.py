"""Settings out of range are refused with name and value, the rule and its reason, and a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoestring.core.values import checks
from shoestring.errors import PolicyError


@dataclass(frozen=True)
class Owner:
    x: Any


def message_about(rule: str, value: Any, *arguments: Any, **options: Any) -> str:
    """Return the message about this value; empty if the value is allowed."""
    try:
        getattr(checks, rule)(Owner(value), "x", *arguments, **options)
    except PolicyError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("rule", "arguments", "options", "good", "bad"),
    [
        ("require_whole", (2,), {}, [2, 9], [1, 2.0, True, "2", None, math.nan]),
        ("require_between", (0.0, 1.0), {}, [0.5, 1e-9], [0, 1, -1.0, True, "0.5", None, math.nan]),
        ("require_between", (0.0, math.inf), {}, [1, 1e300], [0.0, math.inf, math.nan]),
        ("require_within", (0.0, 1.0), {}, [0, 1, 0.5], [-0.1, 1.1, False, None, math.nan]),
        ("require_within", (1.0, math.inf), {}, [1, math.inf], [0.9, math.nan]),
        ("require_at_least", (0.0,), {}, [0, 1e300], [-1e-9, math.inf, math.nan, None]),
        ("require_share", (), {}, [0, 1, 0.3], [-0.1, 1.1, True, None, math.nan]),
        ("require_share", (), {"may_be_zero": False}, [1, 1e-9], [0.0]),
        ("require_share", (), {"may_be_one": False}, [0, 0.999], [1.0]),
    ],
)
def test_settings_that_are_numbers(
    rule: str, arguments: tuple[Any, ...], options: Any, good: list[Any], bad: list[Any]
) -> None:
    for value in good:
        assert not message_about(rule, value, *arguments, "because", "Try 1.", **options)
    for value in bad:
        message = message_about(rule, value, *arguments, "because", "Try 1.", **options)
        assert message.startswith(f"Owner(x={value!r}) must be ")
        assert message.endswith(": because. Try 1." if checks.is_number(value) else ". Try 1.")
        assert ("because" in message) == checks.is_number(value)


@pytest.mark.parametrize("rule", ["require_whole", "require_at_least"])
def test_none_is_allowed_for_optional_settings(rule: str) -> None:
    assert not message_about(rule, None, 1, "because", "Try 1.", optional=True)
    assert message_about(rule, 0, 1, "because", "Try 1.", optional=True)


@pytest.mark.parametrize(
    ("rule", "value", "bounds", "options", "words"),
    [
        ("require_whole", 1, (2,), {}, "an integer >= 2"),
        ("require_whole", 10**400, (2,), {}, "an integer >= 2 and <= 10000000"),
        ("require_between", 2, (0.0, 1.0), {}, "a number between 0 and 1"),
        ("require_between", 2, (3.0, math.inf), {}, "a number above 3"),
        ("require_within", 2, (0.0, 1.0), {}, "a number from 0 to 1"),
        ("require_within", 0, (1.0, math.inf), {}, "a number >= 1"),
        ("require_at_least", -1, (0.0,), {}, "a finite number >= 0"),
        ("require_share", 2, (), {}, "a number from 0, at most 1"),
        ("require_share", 0, (), {"may_be_zero": False}, "a number above 0, at most 1"),
        ("require_share", 1, (), {"may_be_one": False}, "a number from 0, below 1"),
    ],
)
def test_the_message_states_the_rule(
    rule: str, value: Any, bounds: tuple[float, ...], options: dict[str, bool], words: str
) -> None:
    message = message_about(rule, value, *bounds, "it is a count", "Try 3.", **options)
    assert message == f"Owner(x={value!r}) must be {words}: it is a count. Try 3."


def test_settings_that_are_words() -> None:
    assert not message_about("require_one_of", "full", ("full", "none"))
    message = message_about("require_one_of", "ful", ("full", "none"))
    assert message == "Owner(x='ful') is unknown: it must be one of 'full', 'none'. Did you mean 'full'?"
    assert not message_about("require_one_of", True, (True, False))
    assert message_about("require_one_of", 1, (True, False)) == "Owner(x=1) is unknown: it must be one of True, False."


class Strange:
    def __float__(self) -> float:
        raise ValueError("a bug")

    def __repr__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3.0),
        (0.5, 0.5),
        (math.inf, math.inf),
        (np.float32(0.5), 0.5),
        (np.int8(-3), -3.0),
        (np.array(0.5), 0.5),
        (np.array(3), 3.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 2), 0.5),
        (np.complex128(0.5), 0.5),
        (np.complex64(0.5), 0.5),
        (np.array(0.5 + 0j), 0.5),
        (0.5 + 0j, 0.5),
    ],
)
def test_numbers_of_every_kind_are_read(value: Any, number: float) -> None:
    assert checks.to_number(value) == number
    assert type(checks.to_number(value)) is float


@pytest.mark.parametrize(
    "value",
    [
        "0.5",
        b"0.5",
        bytearray(b"0.5"),
        memoryview(b"0.5"),
        np.str_("0.5"),
        np.bytes_(b"0.5"),
        np.array("0.5"),
        np.array(b"0.5"),
        True,
        np.True_,
        np.array(True),
        0.5 + 1e-9j,
        np.complex128(1 + 2j),
        np.complex64(1j),
        np.array(1 + 2j),
        complex(0.5, math.nan),
        np.timedelta64(5, "s"),
        np.datetime64("2026-01-01"),
        np.array([1.0, 2.0]),
        10**400,
        None,
        [0.5],
        {},
        object(),
        Strange(),
    ],
)
@pytest.mark.filterwarnings("error")
def test_what_float_would_convert_wrongly_is_no_number(value: Any) -> None:
    with pytest.raises(TypeError, match=r"is not|no order"):
        checks.to_number(value)
