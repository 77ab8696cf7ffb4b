"""Plain values, as JSON would give them back, and what they are. NumPy's numbers and tuples become Python's own and lists."""

from __future__ import annotations

import sys
from typing import Any

from shoestring.errors import SpaceError

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
