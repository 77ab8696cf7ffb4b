"""Checks of values: plain values, the arguments of public functions, and the settings of policies.

**Plain values** are values that JSON can represent: `to_plain` turns NumPy's numbers into Python's own, and tuples into lists.

**Arguments** of public functions are checked before anything is done with them: `check_whole`, `check_word` and the others raise
an error of one line if the type or the value is wrong.

**Settings** of policies are checked by `require_whole` and the others. Their errors have one line too: name and value, the rule,
its reason and a remedy:

    require_whole(self, "arms", 2, "there must be something to choose from", "Leave it out.")
    PolicyError: sequential_halving(arms=1) must be an integer >= 2: there must be something to choose from. Leave it out.

`optional=True` lets None pass: a setting that the policy may choose itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.values.text import find_problem_of_name
from shoestring.errors import PolicyError, ShoestringError, SpaceError, StudyError, did_you_mean, show_argument

_MAX_METRIC_NAME = 60  # characters; a longer name has no room in a figure
_NO_NUMBERS = ("b", "S", "U", "V", "M", "m")  # NumPy's kinds of truth values, bytes, text, records and times
_MAX_DEPTH = 50  # deepest nesting of lists; a list that contains itself would never end


def to_plain(value: Any, depth: int = 0) -> Any:
    """Return the value with tuples as lists and NumPy's numbers as Python's own, as a resumed study reads it back from JSON."""
    if isinstance(value, list | tuple):
        if depth == _MAX_DEPTH:
            raise SpaceError(
                f"a value is a list in a list in a list, {_MAX_DEPTH} deep: no parameter can have such a value"
            )
        return [to_plain(item, depth + 1) for item in value]
    if type(value).__module__ == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value


def is_same(a: Any, b: Any) -> bool:
    """Return whether two values are equal and of the same type: True is not 1, and 1 is not 1.0."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(is_same, a, b))
    return type(a) is type(b) and bool(a == b)


def is_number(value: Any) -> bool:
    """Return whether this is a number; True and False are not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def to_number(value: Any) -> float:
    """Return a reported number as a float: of Python, of NumPy, or of another package whose objects convert themselves.

    Text, bytes, True and False, times, and complex numbers with an imaginary part are no numbers, although `float` converts some
    of them. Raises TypeError if the value is no number.
    """
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    is_convertible = (
        hasattr(type(value), "__float__") or hasattr(type(value), "__index__") or isinstance(value, complex)
    )
    if not is_convertible or isinstance(value, str | bytes | bool) or kind in _NO_NUMBERS:
        raise TypeError(f"{type(value).__name__} is not a number")
    if isinstance(value, complex) or kind == "c":
        if value.imag != 0:
            raise TypeError("a complex number has no order")
        value = value.real
    try:
        return float(value)
    except (
        TypeError,
        ValueError,
        OverflowError,
        RuntimeError,
    ) as error:  # an array of several numbers, or a large integer
        raise TypeError(f"{type(value).__name__} is not one number: {error}") from None


def is_whole(value: Any) -> bool:
    """Return whether this is a whole number; True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_finite(value: float) -> bool:
    """Return whether this is a finite float, or a whole number within the range of floats."""
    return -sys.float_info.max <= value <= sys.float_info.max


def is_plain(value: Any) -> bool:
    """Return whether this is a string, a finite number, a boolean, None, or a list of these."""
    if isinstance(value, list):
        return all(is_plain(item) for item in value)
    return is_finite(value) if type(value) in (int, float) else value is None or type(value) in (str, bool)


def check_whole(name: str, value: Any, least: int, why: str = "", kind: type[ShoestringError] = StudyError) -> int:
    """Return the argument as a whole number; raise an error if it is not one, or is below `least`."""
    number = to_plain(value)
    if not is_whole(number) or number < least:
        raise kind(
            f"{show_argument(name, value)} must be a whole number, {least} or more" + (f": {why}" if why else "")
        )
    return int(number)


def check_word(name: str, value: Any, words: tuple[str, ...]) -> str:
    """Return the argument; raise an error if it is not one of these words."""
    if not isinstance(value, str) or value not in words:
        raise StudyError(f"{show_argument(name, value)} must be {' or '.join(map(repr, words))}")
    return value


def check_study_name(value: Any) -> str:
    """Return the name of a study; raise an error if it cannot be one."""
    if problem := find_problem_of_name(value):
        raise StudyError(f"{problem}: a name is one line of printable characters")
    return str(value)


def check_metric_name(value: Any) -> str:
    """Return the name of a metric; raise an error if it cannot be shown beside an axis."""
    if not isinstance(value, str) or not value.isprintable() or not 0 < len(value.strip()) <= _MAX_METRIC_NAME:
        raise StudyError(
            f"metric={value!r} must be one line of 1 to {_MAX_METRIC_NAME} printable characters, such as 'validation error'"
        )
    return value.strip()


def check_mapping(name: str, value: Any, example: str) -> Mapping[str, Any]:
    """Return the argument, an empty dict for None; raise an error if it is not a dict."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise StudyError(f"{name}={value!r} must be a dict, such as {example}")
    return value


def check_configs(name: str, value: Any) -> Sequence[Any]:
    """Return the argument; raise an error if it is not a list. Its items are checked against the space later."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise StudyError(f"{name}={value!r} must be a list of configs, such as [{{'lr': 0.1}}]")
    return value


def check_functions(name: str, value: Any, example: str) -> None:
    """Raise an error if the argument is not a list of functions."""
    if isinstance(value, str | bytes) or not isinstance(value, Sequence) or not all(map(callable, value)):
        raise StudyError(f"{name}={value!r} must be a list of functions, such as {example}")


def check_function(name: str, value: Any, example: str) -> None:
    """Raise an error if the argument is neither a function nor None."""
    if value is not None and not callable(value):
        raise StudyError(f"{name}={value!r} must be a function, such as {example}")


_MAX_COUNT = 10_000_000  # the largest value of a setting that is a whole number


def require_whole(
    owner: object, setting: str, least: int, because: str, remedy: str, *, optional: bool = False
) -> None:
    """Raise an error unless the setting is a whole number, `least` or more and at most ten million.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    least : int
        The smallest allowed number.
    because : str
        The reason of the rule, for the message.
    remedy : str
        What to do instead, for the message.
    optional : bool
        Also allow None.

    Raises
    ------
    PolicyError
        If the rule is broken.
    """
    value = getattr(owner, setting)
    holds = is_whole(value) and least <= value <= _MAX_COUNT
    rule = f"an integer >= {least}" + (f" and <= {_MAX_COUNT}" if is_whole(value) and value > _MAX_COUNT else "")
    _require(owner, setting, holds, rule, because, remedy, optional)


def require_between(
    owner: object, setting: str, low: float, high: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """Raise an error unless the setting is a number strictly between `low` and `high`.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    low, high : float
        The bounds.
    because : str
        The reason of the rule, for the message.
    remedy : str
        What to do instead, for the message.
    optional : bool
        Also allow None.

    Raises
    ------
    PolicyError
        If the rule is broken.
    """
    rule = f"above {low:g}" if math.isinf(high) else f"between {low:g} and {high:g}"
    value = getattr(owner, setting)
    _require(owner, setting, _is_real(value) and low < value < high, f"a number {rule}", because, remedy, optional)


def require_within(
    owner: object, setting: str, low: float, high: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """Raise an error unless the setting is a number from `low` to `high`, both included; `high` may be infinite.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    low, high : float
        The bounds.
    because : str
        The reason of the rule, for the message.
    remedy : str
        What to do instead, for the message.
    optional : bool
        Also allow None.

    Raises
    ------
    PolicyError
        If the rule is broken.
    """
    rule = f">= {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
    value = getattr(owner, setting)
    _require(owner, setting, _is_real(value) and low <= value <= high, f"a number {rule}", because, remedy, optional)


def require_at_least(
    owner: object, setting: str, low: float, because: str, remedy: str, *, optional: bool = False
) -> None:
    """Raise an error unless the setting is a finite number, `low` or more.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    low : float
        The smallest allowed number.
    because : str
        The reason of the rule, for the message.
    remedy : str
        What to do instead, for the message.
    optional : bool
        Also allow None.

    Raises
    ------
    PolicyError
        If the rule is broken.
    """
    value = getattr(owner, setting)
    holds = _is_real(value) and low <= value < math.inf
    _require(owner, setting, holds, f"a finite number >= {low:g}", because, remedy, optional)


def require_share(
    owner: object, setting: str, because: str, remedy: str, *, may_be_zero: bool = True, may_be_one: bool = True
) -> None:
    """Raise an error unless the setting is a number from 0 to 1, perhaps without one of the ends.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    because : str
        The reason of the rule, for the message.
    remedy : str
        What to do instead, for the message.
    may_be_zero, may_be_one : bool
        Whether the ends are allowed.

    Raises
    ------
    PolicyError
        If the rule is broken.
    """
    value = getattr(owner, setting)
    holds = _is_real(value) and 0.0 <= value <= 1.0 and (may_be_zero or value > 0.0) and (may_be_one or value < 1.0)
    rule = f"{'from 0' if may_be_zero else 'above 0'}, {'at most 1' if may_be_one else 'below 1'}"
    _require(owner, setting, holds, f"a number {rule}", because, remedy, optional=False)


def require_one_of(owner: object, setting: str, options: Sequence[object]) -> None:
    """Raise an error unless the setting is one of the options: a word, True or False. 1 and 0 do not count as True and False.

    Parameters
    ----------
    owner : object
        The policy.
    setting : str
        Name of the setting.
    options : sequence
        The allowed values.

    Raises
    ------
    PolicyError
        If the value is not one of them.
    """
    value = getattr(owner, setting)
    if not any(value is option or (isinstance(value, str) and value == option) for option in options):
        known = ", ".join(map(repr, options))
        words = [option for option in options if isinstance(option, str)]
        hint = did_you_mean(str(value), words) if words else ""
        hint = f" {hint}" if hint.startswith("Did") else ""
        raise PolicyError(f"{_name(owner, setting)} is unknown: it must be one of {known}.{hint}")


def require_reduction_factor(owner: object) -> None:
    """Raise an error unless the setting `reduction_factor` is a whole number, 2 or more."""
    require_whole(owner, "reduction_factor", 2, "with 1 no trial is ever dropped", "Try 3.")


def _is_real(value: Any) -> bool:
    """Return whether this is a number that a float can hold; infinity is left to the bounds."""
    return is_number(value) and (isinstance(value, float) or is_finite(value))


def _require(owner: object, setting: str, holds: bool, rule: str, because: str, remedy: str, optional: bool) -> None:
    if not holds and not (optional and getattr(owner, setting) is None):
        # The reason explains the range; for a value of a wrong type it would not fit.
        reason = f": {because}" if is_number(getattr(owner, setting)) else ""
        raise PolicyError(f"{_name(owner, setting)} must be {rule}{reason}. {remedy}")


def _name(owner: object, setting: str) -> str:
    name = getattr(owner, "name", type(owner).__name__)  # a policy has a name in the registry
    return f"{name}({setting}={getattr(owner, setting)!r})"
