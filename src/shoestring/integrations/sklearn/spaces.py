"""Search spaces in the forms of scikit-learn: options of any type, distributions of `scipy.stats`, and lists of dicts.

    scikit-learn                                in the ledger
    [1, 2.5, "a", None]                         the same options
    [(64,), StandardScaler(), np.log1p]         a text for each: its index, type and repr
    loguniform(a, b), uniform(a, b - a)         a float from a to b
    randint(a, b)                               a whole number from a to b - 1
    another frozen distribution                 its quantile, from 0.001 to 0.999
    an object with `rvs` only                   100 options that were drawn from it
    [{…}, {…}]                                  which item of the list, and its parameters under that condition

The parameters of a configuration are made from the very objects that the user gave. A list whose options have changed is noticed
when a stored search is continued, because its texts have changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
from sklearn.base import clone

from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import SpaceError

ITEM = "list item"  # says which dict of a list a configuration is from; it cannot be the name of a parameter
_TAIL = 0.001  # probability that is left out at each end of a distribution: its ends may be infinite
_CHECKED = 32  # configurations that are tried to find a parameter that does not exist
_DRAWN = 100  # options drawn from a distribution without quantiles
_MAX_REPR = 200
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")  # differs from process to process
_PLAIN = (str, int, float, bool, type(None))
Decode = Callable[[Any], Any]


@dataclass(frozen=True)
class SearchSpace:
    """A space whose configurations the ledger can hold, and how each value becomes an object of the user."""

    space: Space
    decoders: Mapping[str, Decode]
    names: Mapping[str, str]  # name of the estimator's parameter by name in the ledger

    def decode(self, config: Config) -> dict[str, Any]:
        """Return the estimator's parameters for a configuration of the ledger."""
        return {
            self.names[name]: self.decoders[name](value) if name in self.decoders else value
            for name, value in config.items()
            if name in self.names
        }

    def check_names(self, estimator: Any) -> None:
        """Raise the estimator's own error if it does not have a parameter of this space.

        A parameter may belong to an object that is itself an option, so several configurations are tried.
        """
        rng, missing = np.random.default_rng(0), set(self.names)
        error: Exception | None = None
        for _ in range(_CHECKED):
            config = self.space.from_cube(rng.random(self.space.dims))
            try:
                clone(estimator).set_params(**clone(self.decode(config), safe=False))
                missing -= set(config)
            except Exception as problem:
                error = error or problem
            if not missing:
                return
        if error is not None:
            raise error


def to_search_space(space: Any) -> SearchSpace:
    """Return what `space` describes: a Space, a dict of parameters, options and distributions, or a list of such dicts."""
    if isinstance(space, Space):
        return SearchSpace(space, {}, {name: name for name in space.parameters})
    if not _is_list_of_dicts(space):
        return _combine([space]) if isinstance(space, Mapping) else _reject(space)
    return _combine(list(space))


def _is_list_of_dicts(space: Any) -> bool:
    return isinstance(space, list | tuple) and bool(space) and all(isinstance(item, Mapping) for item in space)


def _reject(space: Any) -> SearchSpace:
    raise SpaceError(
        f"space={space!r} must be a Space, a dict of parameters such as {{'C': [0.1, 1, 10]}} or a list of such dicts"
    )


def _combine(items: Sequence[Mapping[str, Any]]) -> SearchSpace:
    """Return the space of these dicts; if there are several, each configuration is of one of them."""
    parameters: dict[str, Parameter] = {}
    decoders: dict[str, Decode] = {}
    names: dict[str, str] = {}
    all_names = [name for item in items for name in item]
    if len(items) > 1:
        parameters[ITEM] = Choice(list(range(len(items))))
    for number, item in enumerate(items):
        stored = {name: name if all_names.count(name) == 1 else f"{name} [{number}]" for name in item}
        for name, spec in item.items():
            parameter, decode = _read(name, spec)
            if len(items) > 1:
                conditions = {stored.get(parent, parent): values for parent, values in parameter.when.items()}
                parameter = replace(parameter, when={**conditions, ITEM: number})
            parameters[stored[name]] = parameter
            names[stored[name]] = name
            if decode is not None:
                decoders[stored[name]] = decode
    return SearchSpace(Space(parameters), decoders, names)


def _read(name: Any, spec: Any) -> tuple[Any, Decode | None]:
    """Return a parameter, and the function that makes the user's object from a value (None: the value itself)."""
    if isinstance(spec, np.ndarray):
        if spec.ndim != 1:
            raise SpaceError(
                f"{name} is an array of {spec.ndim} dimensions: give a list of options, or an array of one"
            )
        return _read_options(list(spec))
    if hasattr(spec, "rvs"):
        return _read_distribution(spec)
    if isinstance(spec, Sequence) and not isinstance(spec, str | bytes):
        return _read_options(list(spec))
    if isinstance(spec, Float | Int | Choice | Constant):
        return spec, None
    return Space({str(name): spec}).parameters[str(name)], None  # a description, or an error that says what is allowed


def _read_options(options: list[Any]) -> tuple[Parameter, Decode]:
    plain = [option.item() if isinstance(option, np.generic) else option for option in options]
    are_plain = all(type(option) in _PLAIN for option in plain) and len({dumps(option) for option in plain}) == len(
        plain
    )
    labels = plain if are_plain else [describe_option(number, option) for number, option in enumerate(options)]
    choice = Choice(labels)
    return choice, lambda label: options[choice.index(label)]


def describe_option(number: int, option: Any) -> str:
    """Return the text of an option that the ledger holds: its index, type and repr."""
    text = _ADDRESS.sub("", " ".join(repr(option).split()))
    if len(text) > _MAX_REPR:
        text = f"{text[:_MAX_REPR]}… {sha256(text.encode()).hexdigest()[:8]}"
    return f"{number}: {type(option).__name__} {text}"


def _read_distribution(spec: Any) -> tuple[Parameter, Decode | None]:
    kind = getattr(getattr(spec, "dist", None), "name", "")
    if kind in ("loguniform", "reciprocal", "uniform", "randint") and np.isfinite(spec.support()).all():
        low, high = (number.item() if isinstance(number, np.generic) else number for number in spec.support())
        if kind == "randint":
            return (Int(int(low), int(high)), None) if low < high else (Constant(int(low)), None)
        if low < high:
            return Float(float(low), float(high), log=kind in ("loguniform", "reciprocal")), None
    if hasattr(spec, "ppf"):
        return Float(_TAIL, 1.0 - _TAIL), lambda quantile: _to_number(spec.ppf(quantile), hasattr(spec.dist, "pmf"))
    rng = np.random.RandomState(0)  # the same options whenever a stored search is continued
    return _read_options([spec.rvs(random_state=rng) for _ in range(_DRAWN)])


def _to_number(value: Any, is_whole: bool) -> int | float:
    return int(value) if is_whole else float(value)
