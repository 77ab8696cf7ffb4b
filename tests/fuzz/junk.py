"""Values of every type and size that a user may pass by mistake, drawn from a seeded generator."""

from __future__ import annotations

import collections
import enum
import math
import signal
import types
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

import numpy as np

HUNG_S = 30


class Word(str):
    """A subclass of text."""


class Whole(int):
    """A subclass of int."""


class Real(float):
    """A subclass of float."""


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Meaningless:
    """An object without attributes that any function expects."""

    def __repr__(self) -> str:
        return "Thing(\n)"


class Trap:
    """Cannot be converted to anything."""

    def __float__(self) -> float:
        raise RuntimeError("no float")

    def __int__(self) -> int:
        raise RuntimeError("no int")

    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("cannot be compared")

    __hash__ = None  # type: ignore[assignment]


def _endless() -> list[Any]:
    loop: list[Any] = []
    loop.append(loop)
    return loop


NUMBERS: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 3, 7, 2**31, 2**53 + 1, 2**64, -(10**30), 10**400),
    *(0.0, -0.0, 0.5, 1.0, 1.5, -2.5, 5e-324, 1e-300, 1e308, -1e308, math.nan, math.inf, -math.inf, 1j),
    *(
        np.float32(0.5),
        np.float64(math.nan),
        np.float16(65504),
        np.int64(3),
        np.uint8(255),
        np.int8(-1),
        np.bool_(True),
    ),
    *(np.array(1.0), Decimal("1.5"), Decimal("NaN"), Decimal("sNaN"), Fraction(1, 3), Whole(4), Real(0.25), Level.LOW),
]
TEXTS: list[Any] = [
    *("", " ", "x", "lr", "study", "0", "-1", "nan", "inf", "None", "min", "max", "local", "each", "~nan", "~", "{x}"),
    *("\x00", "a\x00b", "\x1b[31mred", "a\nb", "\r", "\t", "\x7f", "\ud800", "é", "日本", "\u202e", "\u2028", "😀" * 3),
    *(
        "x" * 5000,
        "'",
        '"',
        "../x",
        "/",
        ".",
        "%s",
        "5 epochs",
        "90s",
        "$5 at 1/h",
        "20%",
        "3 passes",
        "2GB",
        "1e999 epochs",
    ),
    *(b"", b"x", b"\xff\x00", bytearray(b"x"), memoryview(b"x"), np.str_("a"), Word("w"), Path("x"), Colour.RED),
]
OBJECTS: list[Callable[[], Any]] = [
    *(object, Meaningless, Trap, list, dict, set, tuple, _endless),
    *(lambda: object, lambda: Meaningless, lambda: int, lambda: len, lambda: math, lambda: ..., lambda: NotImplemented),
    *(lambda: lambda: None, lambda: lambda config: 0.5, lambda: lambda config: config, lambda: lambda a, b, c: 1.0),
    *(lambda: (i for i in range(3)), lambda: iter([]), lambda: range(5), lambda: range(2, 0, -1), lambda: slice(1)),
    *(lambda: {1, 2}, lambda: frozenset("ab"), lambda: ValueError("x"), lambda: datetime(2020, 1, 1, tzinfo=UTC)),
    *(
        lambda: np.array([]),
        lambda: np.array([1.0, 2.0]),
        lambda: np.ones((2, 2)),
        lambda: np.array(["a"], dtype=object),
    ),
    *(lambda: np.datetime64("2020-01-01"), lambda: np.array([math.nan]), lambda: np.zeros((3,), dtype="i1")),
    *(lambda: {"x": 1}, lambda: {1: 2}, lambda: {None: None}, lambda: {"": 1}, lambda: {"x": {}}, lambda: {"x": []}),
    *(lambda: {"float": [0, 1]}, lambda: {"int": [1, 9]}, lambda: {"choice": ["a", "b"]}, lambda: {"constant": 1}),
    *(lambda: {"float": [0, 1], "when": {"x": 1}}, lambda: {"float": [1, 0]}, lambda: {"int": [0, 2**70]}),
    *(
        lambda: types.MappingProxyType({"x": 0.5}),
        lambda: collections.OrderedDict(x=0.5),
        lambda: collections.Counter("ab"),
    ),
    *(lambda: [{"x": 0.5}], lambda: [{}], lambda: [None], lambda: ["a", "a"], lambda: [[1], [2]], lambda: [0, 1]),
]


class Junk:
    """Draws values: `draw()` returns the next one; the same seed gives the same values."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)

    def draw(self, depth: int = 2) -> Any:
        kind = self.rng.random()
        if kind < 0.35:
            return self.rng.choice(NUMBERS)
        if kind < 0.6:
            return self.rng.choice(TEXTS)
        if kind < 0.85 or depth == 0:
            return self.rng.choice(OBJECTS)()
        items = [self.draw(depth - 1) for _ in range(self.rng.randrange(4))]
        if kind < 0.93:
            return items if self.rng.random() < 0.7 else tuple(items)
        keys = ["x", "lr", "float", "log", "when", "cost", "listed", 1, None, "\x00"]
        return {self.rng.choice(keys): item for item in items}

    def replace_some(self, good: Mapping[str, Any]) -> dict[str, Any]:
        """Return these arguments, usually with one or two of them replaced."""
        replaced = self.rng.sample(sorted(good), k=min(len(good), self.rng.choice((0, 1, 1, 1, 2))))
        return {**good, **{name: self.draw() for name in replaced}}


class TimeLimitExceeded(BaseException):
    """A call did not return in time."""


def limit_time(action: Callable[[], Any]) -> Any:
    def give_up(number: int, frame: FrameType | None) -> None:
        raise TimeLimitExceeded

    former = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(HUNG_S)
    try:
        return action()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, former)
