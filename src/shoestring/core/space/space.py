"""The search space: named parameters, some of them active only when others have certain values, or a list of given configs.

    Space({"lr": Float(1e-5, 1.0, log=True),
           "optimizer": Choice(["sgd", "adam"]),
           "momentum": Float(0.0, 0.99, when={"optimizer": "sgd"})})

A config is a plain dict with the values of the active parameters. Inactive parameters are left out, so two configs that differ
only in inactive parameters are the same config. A space can be written as a dict or as TOML with the same keys.

An option that is no plain value, such as a tuple or a function, is a text in the config: the core, the ledger and reports see
configs of plain values only. `with_objects` puts the options in place of their texts, for training code and Python users.
`Space.from_configs(configs)` is for tables, replays and a user's own candidates: policies choose among its rows, and no other
configuration is possible.

Parameters are kept in the order of their names. The ledger does not store the order in which the user wrote them, so a study
that is read back must have the same unit cube whatever that order was.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.space.options import StoredObject
from shoestring.core.space.parameters import Choice, Constant, CostMark, Float, Group, Int, Parameter, infer, parse
from shoestring.core.values.checks import is_same, to_plain
from shoestring.core.values.strict_json import dumps
from shoestring.core.values.text import MAX_NAME_CHARS
from shoestring.errors import SpaceError, did_you_mean

Config = Mapping[str, Any]
_EXAMPLE = "such as lr = { float = [1e-4, 1.0], log = true }"
_DIGITS = 9  # of distances that are compared: they must be equal on all processors
_MAX_COUNTED = 10_000  # a finite space of at most this size is counted exactly, with its conditions


class Space:
    """A search space: parameters by name, or a list of complete configurations (`Space.from_configs`).

    A parameter may have a condition, `when={"solver": "sgd"}`: it is active only in configs in which `solver` is "sgd", and it is
    left out of all other configs. A list stands for several values, `when={"solver": ["sgd", "rmsprop"]}`. If a condition names
    several parameters, all of them must have the given values. A condition on an inactive parameter is not fulfilled.

    `Group({...}, when={...})` puts one condition on several parameters; the name of the group is a label.

    An option of a `Choice` may be any Python object. In the ledger and in the configs that `validate` returns, its text stands
    for it; training code, `study.best` and `study.trials` have the object. When a stored study is begun again, types and texts of
    its options are compared.

    A number may have a mark, `cost="increases"` or `cost="decreases"`: a trial costs more, or less, as the parameter grows.
    Marks change no configuration, only with which ones a policy may begin.

    Parameters
    ----------
    parameters : mapping
        `Float`, `Int`, `Choice`, `Constant` and `Group` objects by name, or their descriptions as in a TOML file.

    Attributes
    ----------
    parameters : dict
        The parameters, sorted by name.
    rows : tuple of Config or None
        The configs of a space that `from_configs` made; None for other spaces.
    cube_names : tuple of str
        The names of the parameters that can vary, in the order of the dimensions of the unit cube.
    conditions : dict
        For each parameter the stored values of other parameters with which it is active; an empty dict if it always is.

    Raises
    ------
    SpaceError
        If a parameter or a condition is not valid.

    Examples
    --------
    >>> space = Space({
    ...     "lr": Float(1e-5, 1.0, log=True),
    ...     "solver": Choice(["adam", "sgd"]),
    ...     "momentum": Float(0.5, 0.99, when={"solver": "sgd"}),  # only if solver is "sgd"
    ... })
    >>> space.validate({"lr": 0.1, "solver": "adam"})
    {'lr': 0.1, 'solver': 'adam'}
    """

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        if not isinstance(parameters, Mapping):
            raise SpaceError(f"a space is a dict of parameters, not {parameters!r}: {_EXAMPLE}")
        if not parameters:
            raise SpaceError(f"the space is empty: give at least one parameter, {_EXAMPLE}")
        described = dict[str, Any]()
        _collect(parameters, {}, described)
        self.parameters: dict[str, Parameter] = {name: parse(name, described[name]) for name in sorted(described)}
        self.rows: tuple[Config, ...] | None = None
        for name, parameter in self.parameters.items():
            problem = parameter.find_problem()
            if problem:
                raise SpaceError(f"{name}: {problem}")
        self.conditions = {name: self._read_conditions(name) for name in self.parameters}
        self._order = self._sort_parents_first()
        self.cube_names = tuple(name for name, p in self.parameters.items() if not isinstance(p, Constant))

    @classmethod
    def from_configs(
        cls, configs: Sequence[Config], *, log: Sequence[str] = (), cost: Mapping[str, CostMark] | None = None
    ) -> Space:
        """Return a space of exactly these configs.

        A policy chooses only among them. The range of each parameter, by which policies compare configs, is taken from them.

        Parameters
        ----------
        configs : sequence of Config
            Dicts of values by name. Configs may have different names, but no config may be listed twice.
        log : sequence of str
            Names of the parameters that have a log scale.
        cost : mapping, optional
            "increases" or "decreases" by name: what the cost of a trial does as the parameter grows.

        Returns
        -------
        Space
            A space whose `rows` are these configs.

        Raises
        ------
        SpaceError
            If the list is empty or lists a config twice.
        """
        if not isinstance(configs, Sequence) or not all(isinstance(config, Mapping) for config in configs):
            raise SpaceError(f"Space.from_configs takes a list of dicts of parameters, not {configs!r}")
        if not configs:
            raise SpaceError("Space.from_configs got no configs: give at least one")
        rows = [{name: to_plain(config[name]) for name in _check_names(config)} for config in configs]
        names = list(dict.fromkeys(name for row in rows for name in row))
        if not names:
            raise SpaceError("Space.from_configs got configs without parameters: give at least one name and value")
        logs, marks = _check_log_names(log, names), _check_cost_marks({} if cost is None else cost, names)
        columns = {name: [row[name] for row in rows if name in row] for name in names}
        space = cls({name: infer(name, columns[name], log=name in logs, cost=marks.get(name)) for name in columns})
        space.rows = tuple(rows)
        keys = space._row_numbers
        if len(keys) < len(rows):
            seen: dict[str, int] = {}
            for number, row in enumerate(rows):
                first = seen.setdefault(space.key(row), number)
                if first != number:
                    raise SpaceError(
                        f"Space.from_configs has row {number} twice (it equals row {first}): {row!r}; drop one"
                    )
        return space

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Space:
        """Return the space with this description.

        Parameters
        ----------
        body : mapping
            Parameters by name, or `{"listed": [configs], "log": [names], "cost": {name: mark}}`.

        Returns
        -------
        Space
            The space.

        Raises
        ------
        SpaceError
            If the description is not valid.
        """
        rows = body.get("listed") if isinstance(body, Mapping) else None
        if not isinstance(rows, list | tuple):
            return cls(body)
        if other := next((name for name in body if name not in ("listed", "log", "cost")), None):
            raise SpaceError(
                f"the space has {other!r} besides 'listed': a listed space has rows, 'log' and 'cost' only, remove one of the two"
            )
        return cls.from_configs(rows, log=body.get("log", ()), cost=body.get("cost"))

    def to_dict(self) -> dict[str, Any]:
        """Return the description of the space, as the ledger stores it and `from_dict` reads it.

        Returns
        -------
        dict
            The description.
        """
        if self.rows is not None:
            scales = {"log": self.log_names} if self.log_names else {}
            marks = {"cost": self.cost_marks} if self.cost_marks else {}
            return {"listed": [dict(row) for row in self.rows], **scales, **marks}
        described = {}
        for name, parameter in self.parameters.items():
            conditions = {"when": {parent: list(values) for parent, values in self.conditions[name].items()}}
            described[name] = parameter.describe() | (conditions if self.conditions[name] else {})
        return described

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Space) and dumps(self.to_dict()) == dumps(other.to_dict())

    def __hash__(self) -> int:
        return hash(dumps(self.to_dict()))

    def __repr__(self) -> str:
        if self.rows is not None:
            return f"Space.from_configs({len(self.rows)} configs of {', '.join(self.parameters)})"
        return f"Space({self.to_dict()!r})"

    @cached_property
    def has_objects(self) -> bool:
        """Whether an option is an object, so that `with_objects` changes configs."""
        described = (p.describe() for p in self.parameters.values() if isinstance(p, Choice | Constant))
        return any("types" in body or "type" in body for body in described)

    @property
    def log_names(self) -> list[str]:
        """The names of the parameters that have a log scale."""
        return [name for name, parameter in self.parameters.items() if getattr(parameter, "log", False)]

    @property
    def cost_marks(self) -> dict[str, CostMark]:
        """What the cost of a trial does as a parameter grows, by the names of the marked parameters."""
        marks = {name: getattr(parameter, "cost", None) for name, parameter in self.parameters.items()}
        return {name: mark for name, mark in marks.items() if mark is not None}

    def has_same_configs(self, other: Space) -> bool:
        """Return whether another space has the same parameters and rows, whatever the marks of the cost are.

        Parameters
        ----------
        other : Space
            The other space.

        Returns
        -------
        bool
            True if the configurations and scales are the same, so that results of one space are results of the other.
        """
        return self._without_cost() == other._without_cost()

    def _without_cost(self) -> str:
        described = self.to_dict()
        if self.rows is not None:
            return dumps({key: body for key, body in described.items() if key != "cost"})
        return dumps({name: {k: v for k, v in body.items() if k != "cost"} for name, body in described.items()})

    # configs ---------------------------------------------------------------------------------------------------------

    def validate(self, config: Config) -> dict[str, Any]:
        """Check a config, and return it as the ledger stores it.

        Parameters
        ----------
        config : Config
            A value for each active parameter, by name.

        Returns
        -------
        dict
            The same values as plain Python objects, in the order of the space's parameters.

        Raises
        ------
        SpaceError
            If the config is not in the space. The message names the parameter, its value and the rule.
        """
        if not isinstance(config, Mapping):
            raise SpaceError(f"a config is a dict of parameters, not {config!r}")
        for name in config:
            if name not in self.parameters:
                raise SpaceError(f"unknown parameter {name!r}. {did_you_mean(str(name), self.parameters)}")
        return self._find_row(config) if self.rows is not None else self._check_values(config)

    def _find_row(self, config: Config) -> dict[str, Any]:
        assert self.rows is not None
        try:
            number = self.row_number(config)
        except TypeError:  # a value that cannot be stored: no row has it
            number = None
        if number is None:
            raise SpaceError(f"{dict(config)!r} is not one of the {len(self.rows)} listed configs: choose one of them")
        return dict(self.rows[number])

    def _check_values(self, config: Config) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        for name in self._order:
            if self._is_active(name, checked):
                if name not in config:
                    raise SpaceError(f"{name} is missing from the config {dict(config)!r}: give it a value")
                try:
                    checked[name] = self.parameters[name].accept(config[name])
                except ValueError as rule:
                    raise SpaceError(f"{name} = {config[name]!r} {rule}") from None
            elif name in config:
                condition = self.describe_conditions(name)
                raise SpaceError(
                    f"{name} = {config[name]!r} is given, but it is active only when {condition}: leave it out"
                )
        return {name: checked[name] for name in self.parameters if name in checked}

    def with_objects(self, config: Config) -> dict[str, Any]:
        """Return a config as training code gets it: with the options themselves in place of their texts.

        Parameters
        ----------
        config : Config
            A config as the ledger stores it.

        Returns
        -------
        dict
            The same config; options are the very objects that the space was made with. In a space that was read from a ledger,
            objects that are no tuples, lists, dicts, sets or bytes stay texts.
        """
        if not self.has_objects:
            return dict(config)
        return {name: self.parameters[name].with_object(value) for name, value in config.items()}

    def require_objects(self) -> None:
        """Raise an error if training code cannot get an option, because the space was read from a ledger.

        Raises
        ------
        SpaceError
            If the ledger has only the text of an option.
        """
        for name, parameter in self.parameters.items():
            options = parameter.options if isinstance(parameter, Choice) else [getattr(parameter, "value", None)]
            if missing := next((option for option in options if isinstance(option, StoredObject)), None):
                raise SpaceError(
                    f"the option {missing} of {name} is a Python object ({missing.type}), and the ledger has only its text: "
                    "give the space again, with Study.begin(space, …) or the call of tune that began the study"
                )

    def key(self, config: Config) -> str:
        """Return a text that is the same for equal configs, and different for all others.

        Parameters
        ----------
        config : Config
            A config that `validate` returned.

        Returns
        -------
        str
            The config as JSON.
        """
        return dumps(config)

    def row_number(self, config: Config) -> int | None:
        """Return which row of a listed space is equal to a config.

        Parameters
        ----------
        config : Config
            Values by name.

        Returns
        -------
        int or None
            The index of the row in `rows`; None if no row is equal.
        """
        return self._row_numbers.get(self.key(config))

    @cached_property
    def _row_numbers(self) -> dict[str, int]:
        return {self.key(row): number for number, row in enumerate(self.rows or ())}

    @cached_property
    def size(self) -> float:
        """The number of different configs; an upper bound if there are too many to count; infinite if there is a float."""
        if self.rows is not None:
            return len(self.rows)
        # This would be the number if all parameters were always active.
        bound = math.prod(parameter.size for parameter in self.parameters.values())
        if bound == math.inf:
            return bound
        always_active = [p.size for name, p in self.parameters.items() if not self.conditions[name]]
        if math.prod(min(size, _MAX_COUNTED + 1) for size in always_active) > _MAX_COUNTED:
            return bound
        # With one point more than are counted, a large range is never mistaken for a small one.
        counted = sum(1 for _ in islice(self._walk_grid(_MAX_COUNTED + 1), _MAX_COUNTED + 1))
        return bound if counted > _MAX_COUNTED else counted

    def grid(self, points: int) -> Iterator[dict[str, Any]]:
        """Yield every combination of the parameters' values, each config once. A listed space yields its rows.

        Parameters
        ----------
        points : int
            Values for each numeric parameter, spread evenly over its range; an integer parameter may have fewer. A choice
            has all its options.

        Yields
        ------
        dict
            The next config.
        """
        if self.rows is not None:
            yield from (dict(row) for row in self.rows)
            return
        for config in self._walk_grid(points):
            yield {name: config[name] for name in self.parameters if name in config}

    def _walk_grid(self, points: int) -> Iterator[Config]:
        """Yield the configs of `grid`. It is one dict that changes, so that a step costs only what differs."""
        config: dict[str, Any] = {}
        left: list[Iterator[Any]] = []  # values still to come, of each parameter of `_order` that has its turn

        def set_next() -> bool:
            """Give the last parameter of `left` its next value; return False if there is none."""
            name = self._order[len(left) - 1]
            config.pop(name, None)
            for value in left[-1]:
                config[name] = value
                return True
            return False

        while True:
            for name in self._order[len(left) :]:
                left.append(iter(self.parameters[name].levels(points) if self._is_active(name, config) else ()))
                set_next()
            yield config
            while left and not set_next():
                left.pop()
            if not left:
                return

    # the unit cube ---------------------------------------------------------------------------------------------------

    @property
    def dims(self) -> int:
        """The number of dimensions of the unit cube: one for each parameter that can vary."""
        return len(self.cube_names)

    def to_cube(self, config: Config) -> NDArray[np.float64]:
        """Return the point of the unit cube that represents a config.

        Parameters
        ----------
        config : Config
            A config that `validate` returned.

        Returns
        -------
        array (dims,)
            A number from 0 to 1 for each parameter that is not a constant; 0.5 for inactive parameters.
        """
        parameters = self.parameters
        return np.array([parameters[n].to_unit(config[n]) if n in config else 0.5 for n in self.cube_names])  # type: ignore[union-attr]

    def from_cube(self, u: NDArray[np.float64]) -> dict[str, Any]:
        """Return the config at a point of the unit cube.

        Parameters
        ----------
        u : array (dims,)
            A number from 0 to 1 for each parameter that is not a constant.

        Returns
        -------
        dict
            The values of the active parameters, with the constants.

        Raises
        ------
        SpaceError
            If the space is listed, or the point has another number of coordinates.
        """
        if self.rows is not None:
            raise SpaceError("a listed space has no points between its rows: choose one of `space.rows`")
        if len(u) != self.dims:
            raise SpaceError(f"a point of this cube has {self.dims} coordinates, not {len(u)}")
        values: dict[str, Any] = {n: p.stored_value for n, p in self.parameters.items() if isinstance(p, Constant)}
        for name, coordinate in zip(self.cube_names, u, strict=True):
            values[name] = self.parameters[name].from_unit(float(coordinate))  # type: ignore[union-attr]
        return self.keep_active(values)

    def keep_active(self, values: Config) -> dict[str, Any]:
        """Return those of these values whose parameters are active.

        Parameters
        ----------
        values : Config
            A value for each parameter, as the ledger stores it.

        Returns
        -------
        dict
            The config.
        """
        active: dict[str, Any] = {}
        for name in self._order:
            if self._is_active(name, active):
                active[name] = values[name]
        return {name: active[name] for name in self.parameters if name in active}

    def move_to_cheap_end(self, u: NDArray[np.float64], share: float) -> NDArray[np.float64]:
        """Return a point of the unit cube whose marked coordinates are moved towards their cheap ends.

        Parameters
        ----------
        u : array (dims,)
            A point of the unit cube.
        share : float
            The share of each marked range that is left, counted from the cheap end: 0 is that end, 1 moves nothing.

        Returns
        -------
        array (dims,)
            The moved point.
        """
        moved = u.copy()
        for j, name in enumerate(self.cube_names):
            if isinstance(parameter := self.parameters[name], Float | Int):
                moved[j] = parameter.move_to_cheap_end(float(u[j]), share)
        return moved

    @cached_property
    def row_distances(self) -> NDArray[np.float64]:
        """How far each row of a listed space is from the cheap ends of the marked parameters, (rows,), from 0 to 1.

        It is the mean over the marked parameters, on the unit interval; a parameter that a row lacks counts as 0.
        """
        marks = self.cost_marks
        if self.rows is None or not marks:
            raise SpaceError("only a listed space with marks of the cost has rows that are nearer to a cheap end")
        distances = np.zeros(len(self.rows))
        for name, mark in marks.items():
            parameter = self.parameters[name]
            assert isinstance(parameter, Float | Int)
            places = np.array([parameter.to_unit(row[name]) if name in row else math.nan for row in self.rows])
            distances += np.nan_to_num(places if mark == "increases" else 1.0 - places)
        return np.round(distances / len(marks), _DIGITS)

    # conditions ------------------------------------------------------------------------------------------------------

    def _read_conditions(self, name: str) -> dict[str, list[Any]]:
        conditions: dict[str, list[Any]] = {}
        when = self.parameters[name].when
        if not isinstance(when, Mapping):
            raise SpaceError(
                f'{name} has when = {when!r}, which must map a parameter to its values, such as {{"optimizer": "sgd"}}'
            )
        for parent, values in when.items():
            if parent not in self.parameters or parent == name:
                raise SpaceError(
                    f"{name} depends on {parent!r}, which is not another parameter. "
                    f"{did_you_mean(str(parent), [other for other in self.parameters if other != name])}"
                )
            if isinstance(self.parameters[parent], Float):
                raise SpaceError(
                    f"{name} depends on {parent}, a float: only choice, int and constant parameters can activate others"
                )
            wanted = list(values) if isinstance(values, list | tuple) else [values]
            if not wanted:
                raise SpaceError(f"{name} is never active: {parent} has no values in its condition")
            conditions[parent] = []
            for value in wanted:
                try:
                    conditions[parent].append(self.parameters[parent].accept(value))
                except ValueError as rule:
                    raise SpaceError(f"{name} is active when {parent} = {value!r}, but {parent} {rule}") from None
        return conditions

    def _sort_parents_first(self) -> list[str]:
        order: dict[str, None] = {}
        remaining = list(self.parameters)
        while remaining:
            ready = [name for name in remaining if all(parent in order for parent in self.conditions[name])]
            if not ready:
                raise SpaceError(f"the conditions of {', '.join(remaining)} form a circle: remove one")
            order |= dict.fromkeys(ready)
            remaining = [name for name in remaining if name not in order]
        return list(order)

    def _is_active(self, name: str, config: Config) -> bool:
        return all(
            parent in config and any(is_same(config[parent], value) for value in values)
            for parent, values in self.conditions[name].items()
        )

    def describe_conditions(self, name: str) -> str:
        """Return the conditions of a parameter in words, such as "optimizer is 'sgd'".

        Parameters
        ----------
        name : str
            The name of the parameter.

        Returns
        -------
        str
            The conditions; empty if it has none.
        """
        return " and ".join(f"{parent} is {' or '.join(map(repr, v))}" for parent, v in self.conditions[name].items())


def _check_log_names(log: Any, names: Sequence[str]) -> set[str]:
    if isinstance(log, str) or not isinstance(log, Sequence | set | frozenset):
        raise SpaceError(f"log = {log!r} must be a list of names of parameters, such as ['lr']")
    for name in log:
        if not isinstance(name, str) or name not in names:
            raise SpaceError(f"log names {name!r}, which no config has. {did_you_mean(str(name), names)}")
    return set(log)


def _check_cost_marks(cost: Any, names: Sequence[str]) -> Mapping[str, CostMark]:
    if not isinstance(cost, Mapping):
        raise SpaceError(f'cost = {cost!r} must map names of parameters to "increases" or "decreases"')
    for name, mark in cost.items():
        if not isinstance(name, str) or name not in names:
            raise SpaceError(f"cost names {name!r}, which no config has. {did_you_mean(str(name), names)}")
        if (problem := Float(0.0, 1.0, cost=mark).find_problem()) is not None:
            raise SpaceError(f"{name}: {problem}")
    return cost


def _collect(parameters: Mapping[str, Any], when: Mapping[str, Any], found: dict[str, Any]) -> None:
    """Add the parameters to `found`, with those of groups; each gets the conditions of its groups beside its own."""
    for name in _check_names(parameters):
        spec = parameters[name]
        if isinstance(spec, Mapping) and Group.kind in spec:
            spec = _read_group(name, spec)
        if not isinstance(spec, Group):
            if name in found:
                raise SpaceError(f"{name} is listed twice, in a group and outside of it: rename one")
            found[name] = _add_conditions(name, spec, when) if when else spec
            continue
        if not isinstance(spec.parameters, Mapping) or not spec.parameters:
            raise SpaceError(
                f"the group {name} has {spec.parameters!r}, which must be a dict of parameters: {_EXAMPLE}"
            )
        if not isinstance(spec.when, Mapping) or not spec.when:
            raise SpaceError(
                f"the group {name} has when = {spec.when!r}, which must map a parameter to its values, such as "
                '{"optimizer": "sgd"}'
            )
        _collect(spec.parameters, _join_conditions(f"the group {name}", when, spec.when), found)


def _read_group(name: str, spec: Mapping[str, Any]) -> Group:
    for key in spec:
        if key not in (Group.kind, "when"):
            raise SpaceError(
                f"the group {name} has an unknown setting {key!r}: it has only group = {{…}}, its parameters, and when = {{…}}"
            )
    return Group(spec[Group.kind], spec.get("when", {}))


def _add_conditions(name: str, spec: Any, when: Mapping[str, Any]) -> Any:
    if isinstance(spec, Mapping):
        return {**spec, "when": _join_conditions(name, when, spec.get("when", {}))}
    parameter = parse(name, spec)
    return replace(parameter, when=_join_conditions(name, when, parameter.when))


def _join_conditions(owner: str, outer: Mapping[str, Any], own: Any) -> Mapping[str, Any]:
    if not isinstance(own, Mapping):
        raise SpaceError(
            f'{owner} has when = {own!r}, which must map a parameter to its values, such as {{"optimizer": "sgd"}}'
        )
    if twice := next((parent for parent in own if parent in outer), None):
        raise SpaceError(f"{owner} and its group both have a condition on {twice!r}: keep one of them")
    return {**outer, **own}


def _check_names(parameters: Mapping[str, Any]) -> list[str]:
    """Return the names of the parameters; raise an error if one cannot be the name of a parameter."""
    for name in parameters:
        if not isinstance(name, str) or not name:
            raise SpaceError(f"{name!r} cannot be the name of a parameter: a name is a string that is not empty")
        if len(name) > MAX_NAME_CHARS:
            raise SpaceError(f"the name {name[:20]!r}… has {len(name):,} characters: use at most {MAX_NAME_CHARS}")
    return list(parameters)
