"""Sums that forget nothing: a float as a whole number of the smallest float there is.

A sum that is kept for years, with every part added once and taken away once, must not drift; kept in whole numbers it is what
adding all parts afresh would give, rounded once.
"""

from __future__ import annotations

_BITS = 1074  # the smallest float above 0 is 2**-1074
_ONE = 1 << _BITS


def to_exact(number: float) -> int:
    """A finite float in units of 2**-1074: exact for every one of them."""
    above, below = number.as_integer_ratio()  # below is a power of two
    return above << (_BITS + 1 - below.bit_length())


def to_float(units: int) -> float:
    """The float next to so many units."""
    return units / _ONE
