"""Settings of policies that are out of range say so in one line: name and value, the rule and its reason, a remedy.

    require_whole(self, "arms", 2, "there must be something to choose from", "Leave it out.")
    PolicyError: SequentialHalving(arms=1) must be an integer >= 2: there must be something to choose from. Leave it out.

`optional=True` lets None pass: a setting that is left to the policy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from shoestring.core.values import is_finite, is_number, is_whole
from shoestring.errors import PolicyError, did_you_mean

_MOST = 10_000_000  # of anything that a setting counts


def require_whole(
    owner: object, setting: str, least: int, because: str, remedy: str, *, optional: bool = False
) -> None:
    """The setting must be a whole number, `least` or more; it counts something, so there is an end."""
    value = getattr(owner, setting)
    holds = is_whole(value) and least <= value <= _MOST
    rule = f"an integer >= {least}" + (f" and <= {_MOST}" if is_whole(value) and value > _MOST else "")
    _require(owner, setting, holds, rule, because, remedy, optional)


def require_between(
    owner: object, setting: str, low: float, high: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """The setting must be a number strictly between `low` and `high`."""
    rule = f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
    value = getattr(owner, setting)
    _require(owner, setting, _is_real(value) and low < value < high, f"a number {rule}", because, remedy, optional)


def require_within(
    owner: object, setting: str, low: float, high: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """The setting must be a number from `low` to `high`, both included; an infinite `high` has no upper end."""
    rule = f">= {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
    value = getattr(owner, setting)
    _require(owner, setting, _is_real(value) and low <= value <= high, f"a number {rule}", because, remedy, optional)


def require_at_least(
    owner: object, setting: str, low: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """The setting must be a finite number, `low` or more."""
    value = getattr(owner, setting)
    holds = _is_real(value) and low <= value < math.inf
    _require(owner, setting, holds, f"a finite number >= {low:g}", because, remedy, optional)


def require_share(
    owner: object, setting: str, because: str, remedy: str, *, may_be_zero: bool = True, may_be_one: bool = True
) -> None:
    """The setting must be a number from 0 to 1, perhaps without one of the ends."""
    value = getattr(owner, setting)
    holds = _is_real(value) and 0.0 <= value <= 1.0 and (may_be_zero or value > 0.0) and (may_be_one or value < 1.0)
    rule = f"{'from 0' if may_be_zero else 'above 0'}, {'at most 1' if may_be_one else 'below 1'}"
    _require(owner, setting, holds, f"a number {rule}", because, remedy, optional=False)


def require_one_of(owner: object, setting: str, options: Sequence[object]) -> None:
    """The setting must be one of these words (or of True and False, which are not the numbers 1 and 0)."""
    value = getattr(owner, setting)
    if not any(value is option or (isinstance(value, str) and value == option) for option in options):
        known = ", ".join(map(repr, options))
        words = [option for option in options if isinstance(option, str)]
        hint = did_you_mean(str(value), words) if words else ""
        hint = f" {hint}" if hint.startswith("Did") else ""
        raise PolicyError(f"{_name(owner, setting)} is unknown: it must be one of {known}.{hint}")


def require_reduction_factor(owner: object) -> None:
    """The rule of every `reduction_factor`."""
    require_whole(owner, "reduction_factor", 2, "with 1 nobody is ever dropped", "Try 3.")


def _is_real(value: Any) -> bool:
    """A number that a float can hold; `inf` is left to the bounds."""
    return is_number(value) and (isinstance(value, float) or is_finite(value))


def _require(owner: object, setting: str, holds: bool, rule: str, because: str, remedy: str, optional: bool) -> None:
    if not holds and not (optional and getattr(owner, setting) is None):
        raise PolicyError(f"{_name(owner, setting)} must be {rule}: {because}. {remedy}")


def _name(owner: object, setting: str) -> str:
    return f"{type(owner).__name__}({setting}={getattr(owner, setting)!r})"
