"""Configs as rows of numbers for a model: the one way in which all policies encode a space.

Every parameter that can vary has a column, and conditional parameters have a second one.

    parameter       column
    float, int      its place on the unit interval; an integer or a multiple of a step is at the centre of its cell
    choice          the number of its option
    conditional     a second column: 1 if it is active, 0 if not (its first column is then 0.5)

So configs that differ only in inactive values have the same row, and different configs have different rows. Points are rounded
before a model sees them, not after. So an acquisition function is constant within the cell of an integer. In a listed space, a
parameter that some row lacks is conditional. The columns of numbers come first, then those of activities, then those of
options. `on_simplex` turns each column of options into corners of a simplex, for kernels that use only distances.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.arrays import Flags, Floats
from shoestring.core.values.checks import is_finite, is_number, is_same, to_plain

NO_OPTION = 0.5  # stands for the option of an inactive choice; no option has this number


@dataclass(frozen=True, eq=False, slots=True)
class Points:
    """m configs as numbers: points in the unit cube, and which of the optional parameters are active.

    Parameters
    ----------
    cube : array (m, dims)
        One row per config: the place of each parameter on the unit interval.
    active : array of bool (m, n)
        Whether each of the n optional parameters is active.
    """

    cube: Floats  # (m, dims)
    active: Flags  # (m, number of optional parameters)

    def __len__(self) -> int:
        return len(self.cube)

    def take(self, which: Any) -> Points:
        """Return the points that an index array or a mask selects.

        Parameters
        ----------
        which : array or slice
            Indices, or a mask.

        Returns
        -------
        Points
            The selected points.
        """
        return Points(self.cube[which], self.active[which])

    def join(self, others: Points) -> Points:
        """Return these points followed by others.

        Parameters
        ----------
        others : Points
            Points of the same space.

        Returns
        -------
        Points
            All points.
        """
        return Points(np.vstack([self.cube, others.cube]), np.vstack([self.active, others.active]))

    def with_coordinates(self, where: Flags, coordinates: Floats) -> Points:
        """Return these points with some of their coordinates replaced.

        Parameters
        ----------
        where : array of bool (m, dims)
            True for the coordinates to replace.
        coordinates : array (n,)
            The new values, row by row, one for each True of `where`.

        Returns
        -------
        Points
            The moved points, with the same parameters active.
        """
        cube = self.cube.copy()
        cube[where] = coordinates
        return Points(cube, self.active)


class Encoding:
    """How the configs of one space are encoded.

    Parameters
    ----------
    space : Space
        The search space.

    Attributes
    ----------
    is_continuous : array of bool (dims,)
        Which dimensions of the unit cube are floats without a step.
    optional : tuple of str
        The names of the conditional parameters, in the order of the columns of `Points.active`.
    numbers : array of int
        The dimensions of the unit cube that are floats or integers.
    n_columns : int
        The number of columns of `features`; if nothing varies, it is one column of zeros.
    number_columns, activity_columns, option_columns : tuple of int
        Which columns of `features` hold numbers, activities and options.
    """

    def __init__(self, space: Space) -> None:
        self.space = space
        names = space.cube_names
        self._parameters = [space.parameters[name] for name in names]
        self.is_continuous = np.array([_is_continuous(p) for p in self._parameters], dtype=bool)  # (dims,)
        self._is_choice = np.array([isinstance(p, Choice) for p in self._parameters], dtype=bool)
        self._options = np.array([len(p.options) for p in self._parameters if isinstance(p, Choice)], dtype=float)
        self.optional = tuple(name for name, p in space.parameters.items() if self._can_be_absent(name, p))
        self._place = place = {name: j for j, name in enumerate(names)}
        # (position in `optional`, cube dimension); an optional constant of a listed space has an activity, but no dimension
        self._optional_dims = [(k, place[name]) for k, name in enumerate(self.optional) if name in place]
        self.numbers = np.flatnonzero(~self._is_choice)
        self._first_option = self.numbers.size + len(self.optional)
        self.n_columns = max(1, self._first_option + self._options.size)
        varies = self._first_option + self._options.size > 0
        self.number_columns = tuple(range(self.numbers.size)) if varies else (0,)
        self.activity_columns = tuple(range(self.numbers.size, self._first_option))
        self.option_columns = tuple(range(self._first_option, self._first_option + self._options.size))

    def _can_be_absent(self, name: str, parameter: Parameter) -> bool:
        if self.space.rows is not None:
            return any(name not in row for row in self.space.rows)
        return bool(parameter.when) and not isinstance(parameter, Constant)

    # configs and points ----------------------------------------------------------------------------------------------

    def points(self, configs: Sequence[Config]) -> Points:
        """Return configs of the space as points.

        Parameters
        ----------
        configs : sequence of Config
            Configs of the space.

        Returns
        -------
        Points
            One point per config.
        """
        cube = np.array([self.space.to_cube(config) for config in configs])
        active = np.array([[name in config for name in self.optional] for config in configs], dtype=bool)
        return Points(cube.reshape(len(configs), self.space.dims), active.reshape(len(configs), len(self.optional)))

    def snap(self, cube: Floats) -> Points:
        """Return points of the cube moved to the centres of their cells; inactive parameters are moved to 0.5.

        Parameters
        ----------
        cube : array (m, dims)
            Points of the unit cube.

        Returns
        -------
        Points
            The moved points.
        """
        snapped = np.empty_like(cube)
        for j, parameter in enumerate(self._parameters):
            snapped[:, j] = _centres(parameter, cube[:, j])
        known: dict[str, Flags] = {}
        active = np.empty((cube.shape[0], len(self.optional)), dtype=bool)
        for k, j in self._optional_dims:
            active[:, k] = self._is_active(self.optional[k], snapped, known)
            snapped[~active[:, k], j] = 0.5
        return Points(snapped, active)

    def config(self, points: Points, index: int) -> dict[str, Any]:
        """Return the config of one point; not for listed spaces, whose rows are their configs.

        Parameters
        ----------
        points : Points
            The points.
        index : int
            Which of them.

        Returns
        -------
        dict
            The values of the active parameters by name.
        """
        return self.space.from_cube(points.cube[index])

    def free(self, points: Points) -> Flags:
        """Return which coordinates can vary without leaving the cell of the config: those of active floats without a step.

        Parameters
        ----------
        points : Points
            The points.

        Returns
        -------
        array of bool (m, dims)
            True where the coordinate can vary.
        """
        free = np.broadcast_to(self.is_continuous, points.cube.shape).copy()
        for k, j in self._optional_dims:
            free[:, j] &= points.active[:, k]
        return free

    def values(self, dim: int, cube: Floats) -> Floats:
        """Return the values at places of one dimension.

        Parameters
        ----------
        dim : int
            The dimension of the cube.
        cube : array (m,)
            Places on the unit interval.

        Returns
        -------
        array (m,)
            The values; for a choice, the numbers of its options.
        """
        return _values(self._parameters[dim], cube)

    def _is_active(self, name: str, snapped: Floats, known: dict[str, Flags]) -> Flags:
        """Return flags (m,): whether all conditions of a parameter hold, including those of its parents."""
        if name not in known:
            active = np.ones(snapped.shape[0], dtype=bool)
            for parent, wanted in self.space.conditions[name].items():
                active &= self._is_active(parent, snapped, known) & self._holds(parent, wanted, snapped)
            known[name] = active
        return known[name]

    def _holds(self, parent: str, wanted: list[Any], snapped: Floats) -> Flags:
        parameter = self.space.parameters[parent]
        if isinstance(parameter, Constant):
            return np.full(snapped.shape[0], any(is_same(parameter.stored_value, value) for value in wanted))
        numbers = [parameter.index(v) if isinstance(parameter, Choice) else int(v) for v in wanted]
        return np.isin(_values(parameter, snapped[:, self._place[parent]]), numbers)

    # what a model sees -----------------------------------------------------------------------------------------------

    def features(self, points: Points) -> Floats:
        """Return the rows of numbers that a model sees.

        Parameters
        ----------
        points : Points
            The points.

        Returns
        -------
        array (m, n_columns)
            One row per point.
        """
        features = np.zeros((len(points), self.n_columns))
        features[:, : self.numbers.size] = points.cube[:, self.numbers]
        features[:, self.numbers.size : self._first_option] = points.active
        if self._options.size:
            places = points.cube[:, self._is_choice]
            features[:, self._first_option :] = np.minimum(np.floor(places * self._options), self._options - 1.0)
            choices = np.flatnonzero(self._is_choice)
            for k, j in self._optional_dims:
                if self._is_choice[j]:
                    column = self._first_option + int(np.searchsorted(choices, j))
                    features[~points.active[:, k], column] = NO_OPTION
        return features

    def features_elsewhere(self, config: Config, known: Collection[str]) -> Floats:
        """Return the row of numbers of a config of another space that has some of the parameters of this one.

        Parameters
        ----------
        config : Config
            The values of the active parameters by name.
        known : collection of str
            The parameters that both spaces have.

        Returns
        -------
        array (n_columns,)
            The row, with NaN in the columns of all other parameters. A number outside the range of this space has a place
            beyond the unit interval, at most one range away.

        Raises
        ------
        ValueError
            If this space cannot place a value: an option that it does not have, or a number that its scale does not have.
        """
        row = np.full(self.n_columns, math.nan)
        for column, j in enumerate(self.numbers):
            if (name := self.space.cube_names[j]) in known:
                row[column] = _place_number(self._parameters[j], config[name]) if name in config else 0.5
        for k, name in enumerate(self.optional):
            if name in known:
                row[self.numbers.size + k] = float(name in config)
        for column, j in enumerate(np.flatnonzero(self._is_choice), self._first_option):
            if (name := self.space.cube_names[j]) in known:
                row[column] = _find_option(self._parameters[j], config[name]) if name in config else NO_OPTION
        return row

    def on_simplex(self, points: Points) -> Floats:
        """Return rows in which any two options of a choice are as far apart as the two ends of a number's range.

        Parameters
        ----------
        points : Points
            The points.

        Returns
        -------
        array (m, columns)
            One row per point; each choice has one column per option.
        """
        features = self.features(points)
        corners = [
            (features[:, [column]] == np.arange(size)) * math.sqrt(0.5)
            for column, size in zip(self.option_columns, self._options, strict=True)
        ]
        return np.hstack([features[:, : self.n_columns - self._options.size], *corners])


def _place_number(parameter: Parameter, value: Any) -> float:
    """Return the place of a number on the scale of a parameter, at most one range beyond its ends."""
    assert isinstance(parameter, Float | Int)
    value = to_plain(value)
    if not is_number(value) or not is_finite(value) or (parameter.log and value <= 0):
        raise ValueError(f"{value!r} has no place on the scale")
    low, high, number = float(parameter.low), float(parameter.high), float(value)
    if parameter.step is not None:  # values lie in the middle of their cells: see `parameters`
        high = low + (parameter.size - 0.5) * parameter.step
        low -= 0.5 * parameter.step
    if parameter.log:
        low, high, number = math.log(low), math.log(high), math.log(number)
    return min(max((number - low) / (high - low), -1.0), 2.0)


def _find_option(parameter: Parameter, value: Any) -> float:
    """Return the number of an option."""
    assert isinstance(parameter, Choice)
    return float(parameter.index(parameter.accept(value)))


def _values(parameter: Parameter, u: Floats) -> Floats:
    """Return the values at places on the unit interval, (m,); for a choice, the numbers of its options."""
    if isinstance(parameter, Choice):
        return np.asarray(np.minimum(np.floor(u * len(parameter.options)), len(parameter.options) - 1.0))
    assert isinstance(parameter, Float | Int)
    low, high = float(parameter.low), float(parameter.high)
    if _is_continuous(parameter):
        if parameter.log:
            return np.asarray(np.clip(np.exp(np.log(low) + u * (np.log(high) - np.log(low))), low, high))
        return np.asarray(np.clip(low + u * (high - low), low, high))
    if parameter.log:
        a, b = np.log(low - 0.5), np.log(high + 0.5)
        return np.asarray(np.clip(np.floor(np.exp(a + u * (b - a)) + 0.5), low, high))
    assert parameter.step is not None
    return low + float(parameter.step) * _cells(parameter, u)


def _is_continuous(parameter: Parameter) -> bool:
    return isinstance(parameter, Float) and parameter.step is None


def _cells(parameter: Float | Int, u: Floats) -> Floats:
    """Return the numbers of the cells, (m,), of a number with a step; whole numbers have the step 1."""
    return np.asarray(np.clip(np.floor(u * parameter.size), 0.0, parameter.size - 1.0))


def _centres(parameter: Parameter, u: Floats) -> Floats:
    """Return the places moved to the centres of their cells, (m,); places of a float without a step are not moved."""
    u = np.clip(u, 0.0, 1.0)
    if _is_continuous(parameter):
        return u
    if isinstance(parameter, Choice):
        return np.asarray((_values(parameter, u) + 0.5) / len(parameter.options))
    assert isinstance(parameter, Float | Int)
    if parameter.log:
        a, b = np.log(parameter.low - 0.5), np.log(parameter.high + 0.5)
        return np.asarray((np.log(_values(parameter, u)) - a) / (b - a))
    return np.asarray((_cells(parameter, u) + 0.5) / parameter.size)
