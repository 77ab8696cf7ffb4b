"""Arguments of a wrong type or value are told at the door, in one line, before anything is done with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.texts import rule_of_name
from shoestring.core.values import is_whole, to_plain
from shoestring.errors import ShoestringError, StudyError


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
