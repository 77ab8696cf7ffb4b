"""The kinds of hyperparameters: what values they allow, and where a value lies on the unit interval.

A value is never stored as its place on the unit interval. From that place, integers and choices are recovered exactly. Floats
are recovered to about 1e-12 of their range (on a log scale: of their own size), and are never outside it. Each discrete value has
a bin of the same size and lies in the middle of it, so that a uniform draw gives each the same chance (on a log scale: its share
of the log range).

    float   u = (v - low) / (high - low)                 log: the same with logarithms
    int     u = (v - low + 1/2) / n                      log: between log(low - 1/2) and log(high + 1/2)
    step    u = (k + 1/2) / n                            v = low + k step, for floats and integers with a step
    choice  u = (index + 1/2) / n

`parse` makes a parameter from its description in a file, `infer` from the values of a column of given configs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, ClassVar, Literal, get_args

from shoestring.core.space.options import Options, StoredObject, read_options
from shoestring.core.values.checks import is_finite, is_number, is_plain, is_whole, to_plain
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
_MIN_STEP = 1e-12  # share of the larger bound; with smaller steps, neighbours would be nearly the same float
_STEP_TOLERANCE = 1e-9  # share of a step by which a value may miss a multiple: 3 * 0.1 is not 0.3
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

    def with_object(self, value: Any) -> Any:
        """Return the value that training code gets for a stored value.

        Parameters
        ----------
        value : object
            A value as `accept` returned it.

        Returns
        -------
        object
            The option itself, if the value is the text of an option; otherwise the value. The text of an object that the
            ledger does not hold stays a text.
        """
        return value

    def levels(self, points: int) -> Iterable[Any]:
        """Return values for a grid, from the lowest to the highest.

        Parameters
        ----------
        points : int
            The number of values of a float or integer. A choice returns all its options in their own order.

        Returns
        -------
        iterable
            The values as they are stored; fewer than `points` if the parameter has fewer.
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


def has_room(low: float, high: float, step: float) -> bool:
    """Return whether a step fits between two bounds, as decimals: 0.1 to 0.3 has room for 0.2, although 0.3 - 0.1 < 0.2."""
    return Decimal(repr(step)) <= Decimal(repr(high)) - Decimal(repr(low))


@dataclass(frozen=True, slots=True)
class _Range(_Varying):
    """What floats and integers have in common: two bounds, perhaps a log scale, a step, and a mark of the cost."""

    low: float
    high: float
    log: bool = False
    when: When = field(default_factory=dict)
    cost: CostMark | None = None
    step: float | None = None

    def __post_init__(self) -> None:
        for name in ("low", "high", "log", "step"):  # NumPy's numbers could overflow, or be compared with low precision
            object.__setattr__(self, name, to_plain(getattr(self, name)))

    def find_problem(self) -> str | None:
        if problem := self._find_problem_of_numbers():
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
        if self.has_step:
            assert self.step is not None
            if self.step <= 0:
                return f"step = {self.step!r} must be above 0"
            if self.log:
                return f"step = {self.step!r} does not go with a log scale: remove step, or drop log"
            if not has_room(self.low, self.high, self.step):
                return (
                    f"step = {self.step!r} is above high - low, so only {self.low!r} is left; lower it or use constant"
                )
        return self._find_problem_of_range()

    @property
    def has_step(self) -> bool:
        """Whether the values are the multiples of a step, counted from `low`."""
        raise NotImplementedError

    def _find_problem_of_numbers(self) -> str | None:
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
        options: dict[str, Any] = {"log": True} if self.log else {}
        if self.has_step:
            options["step"] = self.step
        return options | ({} if self.cost is None else {"cost": self.cost})

    def _spread(self, points: int) -> list[Any]:
        """Return `points` values spread evenly over the range, both ends included."""
        return [self.from_unit(i / (points - 1)) for i in range(points)] if points > 1 else [self.from_unit(0.5)]

    def _rule_of_step(self) -> str:
        return f", in steps of {self.step!r} from {self.low!r}" if self.has_step else ""


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
    step : float, optional
        Allow only `low`, `low + step`, `low + 2 step` and so on, up to `high`; not on a log scale.
    """

    kind: ClassVar[str] = "float"

    @property
    def has_step(self) -> bool:
        return self.step is not None

    def _find_problem_of_numbers(self) -> str | None:
        if not all(is_number(bound) and is_finite(bound) for bound in (self.low, self.high)):
            return f"float bounds must be finite numbers, not {self.low!r} and {self.high!r}"
        if self.step is not None and not (is_number(self.step) and is_finite(self.step)):
            return f"step = {self.step!r} must be a finite number"
        return None

    def _find_problem_of_range(self) -> str | None:
        if self.log and self.low <= 0:
            return f"a log scale needs low > 0, not {self.low!r}; raise it or drop log"
        if float(self.low) == float(self.high):
            return f"{self.low!r} and {self.high!r} are the same float; widen the range or use constant"
        if not math.isfinite(float(self.high) - float(self.low)):
            return f"the range {self.low!r} to {self.high!r} overflows; narrow it"
        if self.step is not None and self.step < _MIN_STEP * max(abs(self.low), abs(self.high)):
            return f"step = {self.step!r} is too small beside {self.low!r} and {self.high!r}; raise it or leave it out"
        return None

    def accept(self, value: Any) -> float:
        value = to_plain(value)
        if is_number(value) and self.low <= value <= self.high:
            if self.step is None:
                return float(value)
            near = self._value(self._multiple(float(value)))
            rounding = 1e-15 * max(abs(self.low), abs(self.high))
            if abs(near - value) <= _STEP_TOLERANCE * self.step + rounding:
                return near
        raise ValueError(f"must be a number from {self.low!r} to {self.high!r}{self._rule_of_step()}")

    def to_unit(self, value: float) -> float:
        if self.step is not None:
            return (self._multiple(float(value)) + 0.5) / self.size
        low, high, value = float(self.low), float(self.high), float(value)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / (high - low) if high > low else 0.5

    def from_unit(self, u: float) -> float:
        low, high = float(self.low), float(self.high)
        if self.step is not None:
            return self._value(min(max(math.floor(u * self.size), 0), int(self.size) - 1))
        if self.log:
            value = math.exp(math.log(low) + u * (math.log(high) - math.log(low)))
        else:
            value = low + u * (high - low)
            value = 0.0 if abs(value) < _ZERO_TOLERANCE * (high - low) else value
        return min(max(value, low), high)

    def _multiple(self, value: float) -> int:
        """Return how many steps the nearest allowed value is above `low`."""
        assert self.step is not None
        return min(max(round((value - float(self.low)) / self.step), 0), int(self.size) - 1)

    def _value(self, multiple: int) -> float:
        """Return the value so many steps above `low`. Decimals are added as they were written: 0.1 + 2 * 0.1 is 0.3."""
        return float(Decimal(repr(self.low)) + multiple * Decimal(repr(self.step)))

    def levels(self, points: int) -> Iterable[float]:
        if self.size <= points:
            return map(self._value, range(int(self.size)))
        return self._spread(points)

    @property
    def size(self) -> float:
        if self.step is None:
            return math.inf
        return int((Decimal(repr(self.high)) - Decimal(repr(self.low))) // Decimal(repr(self.step))) + 1

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
    step : int, optional
        Allow only `low`, `low + step`, `low + 2 step` and so on, up to `high`; not on a log scale.
    """

    low: int
    high: int
    step: int = 1
    kind: ClassVar[str] = "int"

    @property
    def has_step(self) -> bool:
        return self.step != 1

    def _find_problem_of_numbers(self) -> str | None:
        if not all(is_whole(bound) for bound in (self.low, self.high)):
            return f"int bounds must be whole numbers, not {self.low!r} and {self.high!r}"
        return None if is_whole(self.step) else f"step = {self.step!r} must be a whole number"

    def _find_problem_of_range(self) -> str | None:
        if self.log and self.low < 1:
            return f"a log scale needs low >= 1, not {self.low!r}; raise it or drop log"
        if max(abs(self.low), abs(self.high)) > _LARGEST_INTEGER:
            return f"{self.low!r} to {self.high!r} goes beyond 2**53, where not every JSON reader is exact; use float"
        if self.size > _MAX_INTEGERS:
            return f"{self.low!r} to {self.high!r} has more than 2**50 whole numbers; use float"
        if self.log and self.high > _MAX_LOG_INTEGER:
            return f"on a log scale integers must be at most 2**40, not {self.high!r}; use float"
        return None

    def accept(self, value: Any) -> int:
        value = to_plain(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not is_whole(value) or not self.low <= value <= self.high or (value - self.low) % self.step:
            raise ValueError(f"must be a whole number from {self.low!r} to {self.high!r}{self._rule_of_step()}")
        return int(value)

    def to_unit(self, value: int) -> float:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return (math.log(value) - low) / (high - low)
        return ((value - self.low) // self.step + 0.5) / self.size

    def from_unit(self, u: float) -> int:
        if self.log:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            value = math.floor(math.exp(low + u * (high - low)) + 0.5)
            return min(max(value, self.low), self.high)
        return self.low + self.step * min(max(math.floor(u * self.size), 0), int(self.size) - 1)

    def levels(self, points: int) -> Iterable[int]:
        if self.size <= points:
            return range(self.low, self.high + 1, self.step)
        return sorted(set(self._spread(points)))

    @property
    def size(self) -> float:
        return (self.high - self.low) // self.step + 1

    def describe(self) -> dict[str, Any]:
        return {"int": [int(self.low), int(self.high)], **self._describe_options()}


@dataclass(frozen=True, slots=True)
class Choice(_Varying):
    """One of several options.

    Parameters
    ----------
    options : sequence
        Strings, numbers, booleans, None, lists of these, or any other objects: tuples, functions, estimators. Each once.
        Training code gets the very object, not a copy. The ledger and reports have its text, usually its `repr`.
    when : mapping, optional
        As for `Float`.
    """

    options: Sequence[Any]
    when: When = field(default_factory=dict)
    _read: Options = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "choice"

    def __post_init__(self) -> None:
        options = to_plain(self.options) if hasattr(self.options, "tolist") else self.options
        are_listed = isinstance(options, Sequence) and not isinstance(options, str | bytes)
        object.__setattr__(self, "_read", Options(list(options) if are_listed else ()))
        if are_listed:
            object.__setattr__(self, "options", self._read.given)

    def __eq__(self, other: object) -> bool:  # options may be arrays, which `==` cannot compare
        return isinstance(other, Choice) and (self.describe(), self.when) == (other.describe(), other.when)

    @property
    def stored_options(self) -> list[Any]:
        """The options as the ledger stores them: plain values, and texts in place of objects."""
        return self._read.stored

    def find_problem(self) -> str | None:
        if not isinstance(self.options, list):
            return f"options must be a list, not {self.options!r}; write [{self.options!r}] for a single one"
        if not self.options:
            return "a choice needs at least one option"
        for i, option in enumerate(self.stored_options):
            if problem := _find_problem_of_length(option):
                return f"option {i} {problem}"
        if self._read.repeated is not None:
            return f"option {self.options[self._read.repeated]!r} is listed twice"
        return None

    def accept(self, value: Any) -> Any:
        place = self._read.find(value)
        if place is not None:
            return self.stored_options[place]
        first = ", ".join(map(repr, self.options[:_MAX_SHOWN]))
        more = len(self.options) - _MAX_SHOWN
        raise ValueError(f"must be one of {first}" + (f" and {more} more" if more > 0 else ""))

    def with_object(self, value: Any) -> Any:
        option = self.options[self.index(value)]
        return value if isinstance(option, StoredObject) else option

    def to_unit(self, value: Any) -> float:
        return (self.index(value) + 0.5) / len(self.options)

    def from_unit(self, u: float) -> Any:
        return self.stored_options[min(max(int(u * len(self.options)), 0), len(self.options) - 1)]

    def index(self, value: Any) -> int:
        """Return the number of an option.

        Parameters
        ----------
        value : object
            The option, as `accept` returned it.

        Returns
        -------
        int
            Its position in `options`.
        """
        return self._read.index(value)

    def levels(self, points: int) -> Iterable[Any]:
        return list(self.stored_options)

    @property
    def size(self) -> float:
        return len(self.options)

    def describe(self) -> dict[str, Any]:
        types = {"types": list(self._read.types)} if self._read.has_objects else {}
        return {"choice": list(self.stored_options), **types}


@dataclass(frozen=True, slots=True)
class Constant(_Parameter):
    """A fixed value that is part of every config.

    Parameters
    ----------
    value : object
        A string, number, boolean, None, a list of these, or any other object, as for `Choice`.
    when : mapping, optional
        As for `Float`.
    """

    value: Any
    when: When = field(default_factory=dict)
    _read: Options = field(init=False, repr=False, compare=False)
    kind: ClassVar[str] = "constant"

    def __post_init__(self) -> None:
        object.__setattr__(self, "_read", Options([self.value]))
        object.__setattr__(self, "value", self._read.given[0])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and (self.describe(), self.when) == (other.describe(), other.when)

    @property
    def stored_value(self) -> Any:
        """The value as the ledger stores it: a text in place of an object."""
        return self._read.stored[0]

    def find_problem(self) -> str | None:
        problem = _find_problem_of_length(self.stored_value)
        return f"the constant {problem}" if problem else None

    def accept(self, value: Any) -> Any:
        if self._read.find(value) is None:
            raise ValueError(f"must be the constant {self.value!r}")
        return self.stored_value

    def with_object(self, value: Any) -> Any:
        return value if isinstance(self.value, StoredObject) else self.value

    def levels(self, points: int) -> Iterable[Any]:
        return [self.stored_value]

    @property
    def size(self) -> float:
        return 1

    def describe(self) -> dict[str, Any]:
        types = {"type": self._read.types[0]} if self._read.has_objects else {}
        return {"constant": self.stored_value, **types}


@dataclass(frozen=True, slots=True)
class Group:
    """Parameters that have a condition in common.

    The name of the group is a label. Configurations have the parameters of the group under their own names.

    Parameters
    ----------
    parameters : mapping
        The parameters by name, as for `Space`; a group may hold groups.
    when : mapping
        The condition, as for `Float`. A parameter may have conditions of its own: then all of them must hold.
    """

    parameters: Mapping[str, Any]
    when: When
    kind: ClassVar[str] = "group"


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
_SETTINGS = {  # what a description may have besides its kind and `when`
    "float": ("log", "cost", "step"),
    "int": ("log", "cost", "step"),
    "choice": ("types",),
    "constant": ("type",),
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
        settings = ("log", "when", "cost", "step")
        unknown = next((key for key in spec if key not in _KINDS and key not in settings), None)
        hint = f" {did_you_mean(str(unknown), _KINDS)}" if unknown is not None and not kinds else ""
        raise SpaceError(f"{name} = {dict(spec)!r} must name exactly one kind: {remedy}.{hint}")
    kind = kinds[0]
    _check_settings(name, kind, spec)
    when, body = spec.get("when", {}), spec[kind]
    if kind == "constant":
        return Constant(read_options([body], [spec.get("type")])[0], when)
    if isinstance(body, str) or not isinstance(body, Sequence) or (kind != "choice" and len(body) != 2):
        wanted = "a list of options" if kind == "choice" else "[low, high]"
        raise SpaceError(f"{name} has {kind} = {body!r}, which must be {wanted}")
    if kind == "choice":
        return Choice(_read_choice(name, body, spec.get("types")), when)
    log, cost = spec.get("log", False), spec.get("cost")
    if kind == "float":
        return Float(body[0], body[1], log, when, cost, spec.get("step"))
    return Int(body[0], body[1], log, when, cost, spec.get("step", 1))


def _check_settings(name: str, kind: str, spec: Mapping[str, Any]) -> None:
    allowed = {kind, "when", *_SETTINGS[kind]}
    if "cost" in spec and "cost" not in allowed:
        raise SpaceError(
            f"{name} has cost = {spec['cost']!r}, but a {kind} has no larger and smaller values: remove cost, or write "
            "int = [low, high] or float = [low, high]"
        )
    for key in spec:
        if key not in allowed:
            raise SpaceError(f"{name} has an unknown setting {key!r} for a {kind}. {did_you_mean(str(key), allowed)}")


def _read_choice(name: str, stored: Sequence[Any], types: Any) -> Sequence[Any]:
    if types is None:
        return stored
    if not isinstance(types, list) or len(types) != len(stored):
        raise SpaceError(f"{name} has types = {types!r}, which must be one name or null for each option: leave it out")
    return read_options(stored, types)


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
        if not is_plain(value):
            raise SpaceError(f"{name}: option {value!r} must be a string, number, boolean, None or a list of these")
        if (problem := Choice([value]).find_problem()) is not None:
            raise SpaceError(f"{name}: {problem}")
        if (key := dumps([type(value).__name__, value])) not in keys:
            keys.add(key)
            distinct.append(value)
    return distinct
