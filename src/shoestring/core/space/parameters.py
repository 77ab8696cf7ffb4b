"""The kinds of hyperparameters: what values they allow, and where a value lies on the unit interval.

A value is never stored as its place on the unit interval. From that place, integers and choices are recovered exactly. Floats
are recovered to about 1e-12 of their range (on a log scale: of their own size), and are never outside it. Each discrete value has
a bin of the same size and lies in the middle of it, so that a uniform draw gives each the same chance (on a log scale: its share
of the log range).

    float   u = (v - low) / (high - low)                 log: the same with logarithms
    int     u = (v - low + 1/2) / n                      log: between log(low - 1/2) and log(high + 1/2)
    choice  u = (index + 1/2) / n

`parse` makes a parameter from its description in a file, `infer` from the values of a column of given configs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, get_args

from shoestring.core.values.checks import is_finite, is_number, is_plain, is_same, is_whole, to_plain
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import MAX_BYTES
from shoestring.errors import SpaceError, did_you_mean

Scalar = str | int | float | bool | None
When = Mapping[str, Any]
CostMark = Literal["increases", "decreases"]  # what the cost of a trial does as the parameter grows

_LARGEST_INTEGER = 2**53
_MAX_INTEGERS = 2**50  # integers in a range; with more, neighbours would be the same float in [0, 1]
_MAX_LOG_INTEGER = 2**40  # the largest integer on a log scale, for the same reason
_ZERO_TOLERANCE = 1e-12  # share of the range; smaller numbers become 0, because some libraries cannot handle 1e-54
_MAX_SHOWN = 20  # options of a choice that a message lists


class _Parameter:
    """The methods that all kinds of parameters have."""

    __slots__ = ()

    def find_problem(self) -> str | None:
        """Return what is wrong with this definition.

        Returns
        -------
        str or None
            The rule that it breaks, and what to do; None if the definition is valid.
        """
        raise NotImplementedError

    def accept(self, value: Any) -> Any:
        """Return a value as it is stored.

        Parameters
        ----------
        value : object
            The value.

        Returns
        -------
        object
            The value, as a plain Python object.

        Raises
        ------
        ValueError
            If the value is not allowed; the message states the rule.
        """
        raise NotImplementedError

    def levels(self, points: int) -> list[Any]:
        """Return values for a grid, from the lowest to the highest.

        Parameters
        ----------
        points : int
            The number of values of a float or integer. A choice returns all its options in their own order.

        Returns
        -------
        list
            The values; fewer than `points` if the parameter has fewer.
        """
        raise NotImplementedError

    @property
    def size(self) -> float:
        """The number of values; infinite for floats."""
        raise NotImplementedError

    def describe(self) -> dict[str, Any]:
        """Return the description that the ledger stores, without the conditions of `when`.

        Returns
        -------
        dict
            The same keys as in a TOML file, such as `{"float": [0.001, 1.0], "log": True}`.
        """
        raise NotImplementedError


class _Varying(_Parameter):
    """The methods of parameters that vary: they have a place on the unit interval."""

    __slots__ = ()

    def to_unit(self, value: Any) -> float:
        """Return where a value lies on the unit interval.

        Parameters
        ----------
        value : object
            An allowed value.

        Returns
        -------
        float
            A number from 0 to 1.
        """
        raise NotImplementedError

    def from_unit(self, u: float) -> Any:
        """Return the value at a point of the unit interval.

        Parameters
        ----------
        u : float
            A number from 0 to 1.

        Returns
        -------
        object
            The value.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class _Range(_Varying):
    """What floats and integers have in common: two bounds, perhaps a log scale, and perhaps a mark of the cost."""

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict)
    cost: CostMark | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high", "log"):  # NumPy's numbers could overflow, or be compared with low precision
            object.__setattr__(self, name, to_plain(getattr(self, name)))

    def find_problem(self) -> str | None:
        if problem := self._find_problem_of_bounds():
            return problem
        if not isinstance(self.log, bool):
            return f"log = {self.log!r} must be true or false"
        if self.cost is not None and not (isinstance(self.cost, str) and self.cost in get_args(CostMark)):
            return (
                f'cost = {self.cost!r} must be "increases" if a larger value costs more, or "decreases" if it costs less; '
                "leave it out if neither holds"
            )
        if self.low >= self.high:
            return f"low {self.low!r} must be below high {self.high!r}; for one value use constant"
        return self._find_problem_of_range()

    def _find_problem_of_bounds(self) -> str | None:
        raise NotImplementedError

    def _find_problem_of_range(self) -> str | None:
        raise NotImplementedError

    def move_to_cheap_end(self, u: float, share: float) -> float:
        """Return a place on the unit interval moved towards the cheap end, if the cost is marked.

        Parameters
        ----------
        u : float
            The place, from 0 to 1.
        share : float
            The share of the interval that is left, counted from the cheap end: 0 is that end, 1 moves nothing.

        Returns
        -------
        float
            The moved place.
        """
        if self.cost is None:
            return u
        return share * u if self.cost == "increases" else 1.0 - share * (1.0 - u)

    def _describe_options(self) -> dict[str, Any]:
        return {**({"log": True} if self.log else {}), **({} if self.cost is None else {"cost": self.cost})}

    def _spread(self, points: int) -> list[Any]:
        """Return `points` values spread evenly over the range, both ends included."""
        return [self.from_unit(i / (points - 1)) for i in range(points)] if points > 1 else [self.from_unit(0.5)]


@dataclass(frozen=True, slots=True)
class Float(_Range):
    """A number from `low` to `high`.

    Parameters
    ----------
    low, high : float
        The bounds, both included.
    log : bool
        Use a log scale; then `low` must be above 0.
    when : mapping, optional
        The values of other parameters with which this one is active, such as `{"optimizer": "sgd"}`. Without it, this
        parameter is always active.
    cost : {"increases", "decreases"}, optional
        What you know about the cost of a trial: it increases, or decreases, as this parameter grows. It does not change which
        configurations the space has.
    """

    kind: ClassVar[str] = "float"

    def _find_problem_of_bounds(self) -> str | None:
        if not all(is_number(bound) and is_finite(bound) for bound in (self.low, self.high)):
            return f"float bounds must be finite numbers, not {self.low!r} and {self.high!r}"
        return None

    def _find_problem_of_range(self) -> str | None:
        if self.log and self.low <= 0:
            return f"a log scale needs low > 0, not {self.low!r}; raise it or drop log"
        if float(self.low) == float(self.high):
            return f"{self.low!r} and {self.high!r} are the same float; widen the range or use constant"
        if not math.isfinite(float(self.high) - float(self.low)):
            return f"the range {self.low!r} to {self.high!r} overflows; narrow it"
        return None

    def accept(self, value: Any) -> float:
        value = to_plain(value)
        if not is_number(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be a number from {self.low!r} to {self.high!r}")
        return float(value)

    def to_unit(self, value: float) -> float:
        low, high, value = float(self.low), float(self.high), float(value)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5

    def from_unit(self, u: float) -> float:
        low, high = float(self.low), float(self.high)
        if self.log:
            value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
        else:
            value = low + u * (high - low)
            value = 0.0 if abs(value) < _ZERO_TOLERANCE * (high - low) else value
        return min(max(value, low), high)

    def levels(self, points: int) -> list[float]:
        return self._spread(points)

    @property
    def size(self) -> float:
        return math.inf

    def describe(self) -> dict[str, Any]:
        return {"float": [float(self.low), float(self.high)], **self._describe_options()}


@dataclass(frozen=True, slots=True)
class Int(_Range):
    """A whole number from `low` to `high`.

    Parameters
    ----------
    low, high : int
        The bounds, both included.
    log : bool
        Use a log scale; then `low` must be at least 1.
    when : mapping, optional
        As for `Float`.
    cost : {"increases", "decreases"}, optional
        As for `Float`.
    """

    low: int
    high: int
    kind: ClassVar[str] = "int"

    def _find_problem_of_bounds(self) -> str | None:
        if not all(is_whole(bound) for bound in (self.low, self.high)):
            return f"int bounds must be whole numbers, not {self.low!r} and {self.high!r}"
        return None

    def _find_problem_of_range(self) -> str | None:
        if self.log and self.low < 1:
            return f"a log scale needs low >= 1, not {self.low!r}; raise it or drop log"
        if max(abs(self.low), abs(self.high)) > _LARGEST_INTEGER:
            return f"{self.low!r} to {self.high!r} goes beyond 2**53, where not every JSON reader is exact; use float"
        if self.high - self.low >= _MAX_INTEGERS:
            return f"{self.low!r} to {self.high!r} has more than 2**50 whole numbers; use float"
        if self.log and self.high > _MAX_LOG_INTEGER:
            return f"on a log scale integers must be at most 2**40, not {self.high!r}; use float"
        return None

    def accept(self, value: Any) -> int:
        value = to_plain(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_whole(value) or not self.low <= value <= self.high:
            raise ValueError(f"must be a whole number from {self.low!r} to {self.high!r}")
        return int(value)

    def to_unit(self, value: int) -> float:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return (math.log(value) - low) / (high - low)
        return (value - self.low + 0.5) / (self.high - self.low + 1)

    def from_unit(self, u: float) -> int:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            value = math.floor(math.exp(low + u * (high - low)) + 0.5)
        else:
            value = self.low + math.floor(u * (self.high - self.low + 1))
        return min(max(value, self.low), self.high)

    def levels(self, points: int) -> list[int]:
        if self.high - self.low < points:
            return list(range(self.low, self.high + 1))
        return sorted(set(self._spread(points)))

    @property
    def size(self) -> float:
        return self.high - self.low + 1

    def describe(self) -> dict[str, Any]:
        return {"int": [int(self.low), int(self.high)], **self._describe_options()}


@dataclass(frozen=True, slots=True)
class Choice(_Varying):
    """One of several options.

    Parameters
    ----------
    options : sequence
        Strings, numbers, booleans, None, or lists of these; each once.
    when : mapping, optional
        As for `Float`.
    """

    options: Sequence[Any]
    when: When = field(default_factory=dict)
    # The position of each option, found by its text, because a table can have choices with thousands of options.
    _places: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        options = to_plain(self.options)
        if isinstance(options, Sequence) and not isinstance(options, str | bytes):
            object.__setattr__(self, "options", [to_plain(option) for option in options])
            for i, option in enumerate(self.options):
                if is_plain(option):
                    self._places.setdefault(dumps(option), i)

    def find_problem(self) -> str | None:
        if not isinstance(self.options, list):
            return f"options must be a list, not {self.options!r}; write [{self.options!r}] for a single one"
        if not self.options:
            return "a choice needs at least one option"
        for i, option in enumerate(self.options):
            if not is_plain(option):
                return f"option {option!r} must be a string, number, boolean, None or a list of these"
            if problem := _find_problem_of_length(option):
                return f"option {i} {problem}"
            if self.index(option) != i:
                return f"option {option!r} is listed twice"
        return None

    def accept(self, value: Any) -> Any:
        place = self._places.get(dumps(value)) if is_plain(value := to_plain(value)) else None
        if place is not None:
            return self.options[place]
        first = ", ".join(map(repr, self.options[:_MAX_SHOWN]))
        more = len(self.options) - _MAX_SHOWN
        raise ValueError(f"must be one of {first}" + (f" and {more} more" if more > 0 else ""))

    def to_unit(self, value: Any) -> float:
        return (self.index(value) + 0.5) / len(self.options)

    def from_unit(self, u: float) -> Any:
        return self.options[min(max(int(u * len(self.options)), 0), len(self.options) - 1)]

    def index(self, value: Any) -> int:
        """Return the number of an option.

        Parameters
        ----------
        value : object
            The option.

        Returns
        -------
        int
            Its position in `options`.
        """
        return self._places[dumps(value)]

    def levels(self, points: int) -> list[Any]:
        return list(self.options)

    @property
    def size(self) -> float:
        return len(self.options)

    def describe(self) -> dict[str, Any]:
        return {"choice": list(self.options)}


@dataclass(frozen=True, slots=True)
class Constant(_Parameter):
    """A fixed value that is part of every config.

    Parameters
    ----------
    value : str or int or float or bool or None or list
        The value.
    when : mapping, optional
        As for `Float`.
    """

    value: Any
    when: When = field(default_factory=dict)
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", to_plain(self.value))

    def find_problem(self) -> str | None:
        if not is_plain(self.value):
            return f"the constant {self.value!r} must be a string, number, boolean, None or a list of these"
        problem = _find_problem_of_length(self.value)
        return f"the constant {problem}" if problem else None

    def accept(self, value: Any) -> Any:
        if not is_same(to_plain(value), self.value):
            raise ValueError(f"must be the constant {self.value!r}")
        return self.value

    def levels(self, points: int) -> list[Any]:
        return [self.value]

    @property
    def size(self) -> float:
        return 1

    def describe(self) -> dict[str, Any]:
        return {"constant": self.value}


def _find_problem_of_length(value: Any) -> str | None:
    """Return what is wrong with the length of a value; None if nothing is.

    A config is stored with every order, so its texts must be short.
    """
    size = len(value) if isinstance(value, str) else len(dumps(value)) if isinstance(value, list) else 0
    if size <= MAX_BYTES:
        return None
    return f"is {size:,} characters long, above {MAX_BYTES:,}: use a short name, and look the long text up in the training code"


Parameter = Float | Int | Choice | Constant


_KINDS: dict[str, type[Float] | type[Int] | type[Choice] | type[Constant]] = {
    parameter.kind: parameter for parameter in (Float, Int, Choice, Constant)
}


def parse(name: str, spec: Any) -> Parameter:
    """Return the parameter with this description, as in `lr = { float = [1e-4, 1.0], log = true }`."""
    if isinstance(spec, Float | Int | Choice | Constant):
        return spec
    remedy = (
        "give it one of float = [low, high], int = [low, high], choice = [...], constant = value, as in "
        'lr = { float = [1e-4, 1.0], log = true } (in Python {"lr": {"float": [1e-4, 1.0], "log": True}})'
    )
    if not isinstance(spec, Mapping):
        raise SpaceError(f"{name} = {spec!r} is not a parameter: {remedy}")
    kinds = [key for key in spec if key in _KINDS]
    if len(kinds) != 1:
        unknown = next((key for key in spec if key not in _KINDS and key not in ("log", "when", "cost")), None)
        hint = f" {did_you_mean(str(unknown), _KINDS)}" if unknown is not None and not kinds else ""
        raise SpaceError(f"{name} = {dict(spec)!r} must name exactly one kind: {remedy}.{hint}")
    kind = kinds[0]
    allowed = {kind, "when"} | ({"log", "cost"} if kind in ("float", "int") else set())
    if "cost" in spec and "cost" not in allowed:
        raise SpaceError(
            f"{name} has cost = {spec['cost']!r}, but a {kind} has no larger and smaller values: remove cost, or write "
            "int = [low, high] or float = [low, high]"
        )
    for key in spec:
        if key not in allowed:
            raise SpaceError(f"{name} has an unknown setting {key!r} for a {kind}. {did_you_mean(str(key), allowed)}")
    when = spec.get("when", {})
    body = spec[kind]
    if kind == "constant":
        return Constant(body, when)
    if isinstance(body, str) or not isinstance(body, Sequence) or (kind != "choice" and len(body) != 2):
        wanted = "a list of options" if kind == "choice" else "[low, high]"
        raise SpaceError(f"{name} has {kind} = {body!r}, which must be {wanted}")
    if kind == "choice":
        return Choice(body, when)
    log, cost = spec.get("log", False), spec.get("cost")
    return Float(body[0], body[1], log, when, cost) if kind == "float" else Int(body[0], body[1], log, when, cost)


def infer(name: str, values: list[Any], *, log: bool = False, cost: CostMark | None = None) -> Parameter:
    """Return the parameter that fits a column of listed configs. It has a log scale and a mark only if the arguments say so."""
    distinct = _distinct(name, values)
    if log and not (all(type(v) in (int, float) for v in distinct) and min(distinct) > 0):
        raise SpaceError(f"{name} cannot be on a log scale: all its values must be numbers above 0; remove it from log")
    are_numbers = all(type(v) in (int, float) for v in distinct)
    if cost is not None and not are_numbers:
        raise SpaceError(f"{name} cannot have cost = {cost!r}: all its values must be numbers; remove it from cost")
    if len(distinct) == 1:
        return Constant(distinct[0])
    if not are_numbers:
        return Choice(distinct)
    low, high = min(distinct), max(distinct)
    if all(isinstance(v, int) for v in distinct):
        whole = Int(low, high, log, cost=cost)
        if whole.find_problem() is None:
            return whole
    real = Float(low, high, log, cost=cost)
    return real if real.find_problem() is None else Choice(distinct)


def _distinct(name: str, values: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    keys = set()
    for value in values:
        if (problem := Choice([value]).find_problem()) is not None:
            raise SpaceError(f"{name}: {problem}")
        if (key := dumps([type(value).__name__, value])) not in keys:
            keys.add(key)
            distinct.append(value)
    return distinct
