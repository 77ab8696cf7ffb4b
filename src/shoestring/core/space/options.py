"""Options of a choice that JSON cannot represent: tuples, classes, functions, estimators.

The ledger, policies and reports have a text in place of such an option, usually its `repr`. Python users and training code get
the object itself. Nothing is pickled. Tuples, lists, dicts, sets and bytes of plain values are read back from their text; of any
other object the ledger remembers only the type and the text, as a `StoredObject`, and the user gives the object again.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from shoestring.core.values.checks import is_plain, to_plain
from shoestring.core.values.strict_json import dumps

_MAX_TEXT_CHARS = 200  # a config is stored with every order; a longer text is cut, and gets a checksum
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # in the default `repr`; it differs between processes
_LITERALS = ("tuple", "list", "dict", "set", "bytes")  # types whose text can be read back


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that is known only by what the ledger stores of it: the name of its type and its text."""

    type: str
    text: str

    def __repr__(self) -> str:
        return self.text


class Options:
    """Options as the user gave them, and as the ledger stores them.

    Parameters
    ----------
    given : sequence
        The options. NumPy's numbers become Python's own.

    Attributes
    ----------
    given : list
        The options; a `StoredObject` stands for an object that cannot be made from the ledger.
    stored : list
        Plain values: the same for a string, number, boolean, None or a list of these, and a text for any other option.
    types : list of (str or None)
        The name of the type of each option that is stored as a text; None for a plain value.
    """

    def __init__(self, given: Sequence[Any]) -> None:
        self.given: list[Any] = []
        self.stored: list[Any] = []
        self.types: list[str | None] = []
        self._places: dict[str, int] = {}  # by the stored value; a table can have choices with thousands of options
        self.repeated: int | None = None  # the first option that is equal to an earlier one
        taken = {option for option in given if isinstance(option, str)}
        for number, option in enumerate(given):
            self._add(number, option, taken)

    def _add(self, number: int, option: Any, taken: set[str]) -> None:
        plain = _plain_list_or_scalar(option)
        kind, stored = (None, plain) if is_plain(plain) else describe_object(option)
        if kind is not None and stored in taken:  # by a string of the same letters, or by an object with the same text
            is_equal = any(kind == other for other, text in zip(self.types, self.stored, strict=True) if text == stored)
            if is_equal and (not _has_no_value(option) or any(option is other for other in self.given)):
                self.repeated = number if self.repeated is None else self.repeated
            stored = f"{stored} #{number}"
        if kind is not None:
            taken.add(stored)
        if self._places.setdefault(dumps(stored), number) != number and self.repeated is None:
            self.repeated = number
        self.given.append(option if kind is not None else plain)
        self.stored.append(stored)
        self.types.append(kind)

    @property
    def has_objects(self) -> bool:
        """Whether an option is stored as a text."""
        return any(kind is not None for kind in self.types)

    def find(self, value: Any) -> int | None:
        """Return the number of an option, given as the user or as the ledger has it; None if it is not an option.

        JSON and TOML have no tuples, so a list also stands for the tuple of the same values, and the reverse.
        """
        number = self._find(value)
        if number is None and isinstance(value, list | tuple):
            return self._find(tuple(value) if isinstance(value, list) else list(value))
        return number

    def _find(self, value: Any) -> int | None:
        plain = _plain_list_or_scalar(value)
        if is_plain(plain):
            return self._places.get(dumps(plain))
        if (number := next((i for i, option in enumerate(self.given) if option is value), None)) is not None:
            return number
        kind, text = describe_object(value)
        number = self._places.get(dumps(text))
        return number if number is not None and self.types[number] == kind and not _has_no_value(value) else None

    def index(self, stored: Any) -> int:
        """Return the number of an option, given as the ledger has it."""
        return self._places[dumps(stored)]


def read_options(stored: Sequence[Any], types: Sequence[str | None]) -> list[Any]:
    """Return options from what the ledger stores."""
    return [
        option if kind is None else _read_object(kind, str(option)) for option, kind in zip(stored, types, strict=True)
    ]


def describe_object(value: Any) -> tuple[str, str]:
    """Return the name of an object's type, and a text of one line that is the same in every process."""
    if isinstance(value, StoredObject):
        return value.type, value.text
    kind = type(value).__qualname__
    if _is_named(value):
        text = value.__qualname__
    elif isinstance(value, set):  # their order differs between processes
        text = "{" + ", ".join(sorted(map(repr, value))) + "}"
    else:
        try:
            text = repr(value)
        except Exception:  # it is the user's code
            text = f"<{kind}>"
    text = " ".join(_ADDRESS.sub("", text).split())
    if len(text) > _MAX_TEXT_CHARS:
        text = f"{text[:_MAX_TEXT_CHARS]}… ({zlib.crc32(text.encode(errors='replace')):08x})"
    return kind, text


def _is_named(value: Any) -> bool:
    """Return whether this is a function or a class."""
    return callable(value) and isinstance(getattr(value, "__qualname__", None), str)


def _has_no_value(option: Any) -> bool:
    """Return whether two options of this kind may differ although they have the same text.

    These are functions and classes, which are named by their text, and objects whose `repr` is their address.
    """
    try:
        return _is_named(option) or _ADDRESS.search(repr(option)) is not None
    except Exception:  # it is the user's code
        return True


def _read_object(kind: str, text: str) -> Any:
    try:
        value = ast.literal_eval(text) if kind in _LITERALS else float(text) if kind == "float" else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    is_same = value is not None and type(value).__qualname__ == kind
    return value if is_same else StoredObject(kind, text)


def _plain_list_or_scalar(value: Any) -> Any:
    """Return the value with NumPy's numbers as Python's own, unless it holds a tuple or an array."""
    if isinstance(value, list):
        plain = to_plain(value)  # raises an error for a list that contains itself
        return plain if is_plain(plain) and not _holds_tuple(value) else value
    is_scalar = type(value).__module__ == "numpy" and getattr(value, "ndim", None) == 0 and hasattr(value, "tolist")
    return value.tolist() if is_scalar else value


def _holds_tuple(values: list[Any]) -> bool:
    return any(isinstance(value, tuple) or (isinstance(value, list) and _holds_tuple(value)) for value in values)
