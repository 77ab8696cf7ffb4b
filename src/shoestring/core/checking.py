"""Settings of policies that are out of range say so in one line: name and value, the rule and its reason, a remedy."""

from __future__ import annotations

import math
from typing import Any

from shoestring.errors import PolicyError


def whole(owner: object, setting: str, least: int, because: str, remedy: str) -> None:
    """The setting must be a whole number, `least` or more."""
    value = getattr(owner, setting)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise PolicyError(f"{_named(owner, setting, value)} must be an integer >= {least}: {because}. {remedy}")


def between(owner: object, setting: str, low: float, high: float, because: str, remedy: str) -> None:
    """The setting must be a number strictly between `low` and `high`."""
    value = getattr(owner, setting)
    if not isinstance(value, int | float) or isinstance(value, bool) or not low < value < high:
        rule = f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
        raise PolicyError(f"{_named(owner, setting, value)} must be a number {rule}: {because}. {remedy}")


def halving(owner: object) -> None:
    """The rule of every `reduction_factor`."""
    whole(owner, "reduction_factor", 2, "with 1 nobody is ever dropped", "Try 3.")


def _named(owner: object, setting: str, value: Any) -> str:
    return f"{type(owner).__name__}({setting}={value!r})"
