"""A parameter from what somebody wrote: from its description, or from the values of a column of given configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.core.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.strict_json import dumps
from shoestring.errors import SpaceError, did_you_mean

_KINDS: dict[str, type[Float] | type[Int] | type[Choice] | type[Constant]] = {
    parameter.kind: parameter for parameter in (Float, Int, Choice, Constant)
}


def parse(name: str, spec: Any) -> Parameter:
    """A parameter from its description, as in `lr = { float = [1e-4, 1.0], log = true }`."""
    if isinstance(spec, Float | Int | Choice | Constant):
        return spec
    remedy = 'write {"float": [low, high]}, {"int": [low, high]}, {"choice": [...]} or {"constant": value}'
    if not isinstance(spec, Mapping):
        raise SpaceError(f"{name} = {spec!r} is not a parameter: {remedy}")
    kinds = [key for key in spec if key in _KINDS]
    if len(kinds) != 1:
        unknown = next((key for key in spec if key not in _KINDS and key not in ("log", "when")), None)
        hint = f" {did_you_mean(str(unknown), _KINDS)}" if unknown is not None and not kinds else ""
        raise SpaceError(f"{name} = {dict(spec)!r} must name exactly one kind: {remedy}.{hint}")
    kind = kinds[0]
    allowed = {kind, "when"} | ({"log"} if kind in ("float", "int") else set())
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
    log = spec.get("log", False)
    return Float(body[0], body[1], log, when) if kind == "float" else Int(body[0], body[1], log, when)


def infer(name: str, values: list[Any], *, log: bool = False) -> Parameter:
    """The parameter that a column of listed configs looks like; its scale is never guessed."""
    distinct = _distinct(name, values)
    if log and not (all(type(v) in (int, float) for v in distinct) and min(distinct) > 0):
        raise SpaceError(f"{name} cannot be on a log scale: all its values must be numbers above 0; take it out of log")
    if len(distinct) == 1:
        return Constant(distinct[0])
    if not all(type(v) in (int, float) for v in distinct):
        return Choice(distinct)
    low, high = min(distinct), max(distinct)
    if all(isinstance(v, int) for v in distinct) and Int(low, high, log).rule() is None:
        return Int(low, high, log)
    return Float(low, high, log) if Float(low, high, log).rule() is None else Choice(distinct)


def _distinct(name: str, values: list[Any]) -> list[Any]:
    distinct: list[Any] = []
    keys = set()
    for value in values:
        if (problem := Choice([value]).rule()) is not None:
            raise SpaceError(f"{name}: {problem}")
        if (key := dumps([type(value).__name__, value])) not in keys:
            keys.add(key)
            distinct.append(value)
    return distinct
