"""Plain values, as JSON would give them back, and what they are. NumPy's numbers and tuples become Python's own and lists.

Arguments of a wrong type or value are told at the door, in one line, before anything is done with them.

Settings of policies that are out of range say so in one line: name and value, the rule and its reason, a remedy.

    require_whole(self, "arms", 2, "there must be something to choose from", "Leave it out.")
    PolicyError: SequentialHalving(arms=1) must be an integer >= 2: there must be something to choose from. Leave it out.

`optional=True` lets None pass: a setting that is left to the policy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.values.text import rule_of_name
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError, did_you_mean

_DEEPEST = 50  # lists in lists; one that holds itself never ends


def to_plain(value: Any, depth: int = 0) -> Any:
    """Tuples as lists and NumPy's numbers as Python's: what JSON would give back, so that a resumed study sees the same."""
    if isinstance(value, list | tuple):
        if depth == _DEEPEST:
            raise SpaceError(f"a value is a list in a list in a list, {_DEEPEST} deep: no parameter is like that")
        return [to_plain(item, depth + 1) for item in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


def is_same(a: Any, b: Any) -> bool:
    """Equality that tells True from 1 and 1 from 1.0, as options of a choice must."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and bool(a == b)


def is_number(value: Any) -> bool:
    """True and False are not the numbers 1 and 0."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Whether this is a finite float, or a whole number that can be one."""
    return -sys.float_info.max <= value <= sys.float_info.max


def is_plain(value: Any) -> bool:
    """A string, a finite number, a boolean, None, or a list of these."""
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return is_finite(value) if type(value) in (int, float) else value is None or type(value) in (str, bool)


def whole(name: str, value: Any, least: int, why: str = "", kind: type[ShoestringError] = StudyError) -> int:
    """A whole number, `least` or more; NumPy's are welcome, True and False are none."""
    number = to_plain(value)
    if not is_whole(number) or number < least:
        raise kind(f"{name}={value!r} must be a whole number, {least} or more" + (f": {why}" if why else ""))
    return int(number)


def word(name: str, value: Any, words: tuple[str, ...]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in words:
        raise StudyError(f"{name}={value!r} must be {' or '.join(map(repr, words))}")
    return value


def study_name(value: Any) -> str:
    if problem := rule_of_name(value):
        raise StudyError(f"{problem}: a name is one line of printable characters")
    return str(value)


def mapping(name: str, value: Any, example: str) -> Mapping[str, Any]:
    """A dict, or none at all."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise StudyError(f"{name}={value!r} must be a dict, as {example}")
    return value


def configs(name: str, value: Any) -> Sequence[Any]:
    """A list; what it holds is checked against the space."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise StudyError(f"{name}={value!r} must be a list of configs, as [{{'lr': 0.1}}]")
    return value


def function(name: str, value: Any, example: str) -> None:
    """Something that can be called, or None."""
    if value is not None and not callable(value):
        raise StudyError(f"{name}={value!r} must be a function, as {example}")


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
