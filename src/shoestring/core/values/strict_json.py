"""Strict JSON for the ledger: it is read back exactly as it was written, and any JSON reader can read it.

JSON has no NaN and no infinity, so a non-finite number becomes a tagged string: "~nan", "~inf", "~-inf". A user's own string
that begins with "~" gets one more "~" in front, so that a tag can never be mistaken for text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

TAG = "~"
_DECODED = {"~nan": math.nan, "~inf": math.inf, "~-inf": -math.inf}
# ASCII only: a traceback may contain half a surrogate pair (of a file name), which no database accepts as text.
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_encode_sorted = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True).encode


def dumps(value: Any, *, in_order: bool = False) -> str:
    """Return the value as canonical JSON: equal values give equal text. Keys are sorted, unless `in_order` is true."""
    return (_encode if in_order else _encode_sorted)(tag(value))


def loads(text: str) -> Any:
    """Return the value that `dumps` wrote."""
    value = json.loads(text)
    # Nearly all rows have no tag, and it would be slow to look at each value.
    return untag(value) if f'"{TAG}' in text else value


def tag(value: Any) -> Any:
    """Return the value as dicts, lists, strings, finite numbers, booleans and None; other floats become tags."""
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else f"{TAG}{value}"
    if kind is int or kind is bool or value is None:
        return value
    if kind is str:
        return TAG + value if value.startswith(TAG) else value
    if isinstance(value, Mapping):
        return {_key(key): tag(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [tag(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return tag(value.tolist())
    if isinstance(value, str | float | int):  # subclasses, such as enumerations
        return tag(next(base(value) for base in (str, float, int) if isinstance(value, base)))
    raise TypeError(
        f"{value!r} ({kind.__name__}) cannot be stored: use numbers, strings, booleans, None, lists or dicts"
    )


def _key(key: Any) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{key!r} cannot be a key in the ledger: keys are strings")
    return key


def untag(value: Any) -> Any:
    """Return the value that `tag` turned into this one."""
    if isinstance(value, str):
        if not value.startswith(TAG):
            return value
        return _DECODED[value] if value in _DECODED else value[len(TAG) :]
    if isinstance(value, list):
        return [untag(item) for item in value]
    if isinstance(value, dict):
        return {key: untag(item) for key, item in value.items()}
    return value
