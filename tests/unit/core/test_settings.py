"""Settings out of range: name and value, the rule and its reason, a remedy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest

from shoestring.core.values import checks as settings
from shoestring.errors import PolicyError


@dataclass(frozen=True)
class Owner:
    x: Any


def refuses(rule: str, value: Any, *arguments: Any, **options: Any) -> str:
    """What the rule says about this value; empty when it holds."""
    try:
        getattr(settings, rule)(Owner(value), "x", *arguments, **options)
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
def test_numbers(rule: str, arguments: tuple[Any, ...], options: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert not refuses(rule, value, *arguments, "because", "Try 1.", **options)
    for value in bad:
        said = refuses(rule, value, *arguments, "because", "Try 1.", **options)
        assert said.startswith(f"Owner(x={value!r}) must be ")
        assert said.endswith(": because. Try 1.")


@pytest.mark.parametrize("rule", ["require_whole", "require_at_least"])
def test_none_passes_where_it_is_allowed(rule: str) -> None:
    assert not refuses(rule, None, 1, "because", "Try 1.", optional=True)
    assert refuses(rule, 0, 1, "because", "Try 1.", optional=True)


def test_the_rule_is_said_in_words() -> None:
    assert "a number from 0, at most 1:" in refuses("require_share", 2, "b", "r")
    assert "a number above 0, at most 1:" in refuses("require_share", 0, "b", "r", may_be_zero=False)
    assert "a number from 0, below 1:" in refuses("require_share", 1, "b", "r", may_be_one=False)
    assert "a number above 3:" in refuses("require_between", 2, 3.0, math.inf, "b", "r")


def test_words() -> None:
    assert not refuses("require_one_of", "full", ("full", "none"))
    said = refuses("require_one_of", "ful", ("full", "none"))
    assert said == "Owner(x='ful') is unknown: it must be one of 'full', 'none'. Did you mean 'full'?"
    assert not refuses("require_one_of", True, (True, False))
    assert refuses("require_one_of", 1, (True, False)) == "Owner(x=1) is unknown: it must be one of True, False."
