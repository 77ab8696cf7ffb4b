"""Settings out of range are refused with name and value, the rule and its reason, and a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

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
