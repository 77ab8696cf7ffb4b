"""The inputs of cost models: logarithms, since cost is roughly a power law in a few hyperparameters.

Guinet et al., arXiv:2011.11456, section 3.2: rounds, depth and width multiply the cost, so numbers enter as their logarithms,
on whatever scale the space searches them.

    parameter                               columns
    float, int, choice of numbers, all > 0  log of the value
    float, int otherwise                    place on the unit interval
    choice otherwise                        for each option but the first: 1 if chosen, else 0
    conditional                             another column: 1 active, 0 inactive (the value then is the middle one)

Differences from the paper: its models see seven positive numbers only, so the rows for choices and conditions are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from shoestring.core.space.encoding import Encoding, Points
from shoestring.core.space.parameters import Choice, Constant
from shoestring.core.values.arrays import Floats

Column = Callable[[Points], Floats]  # m points to the column's m numbers


class CostFeatures:
    """Columns for the cost models of one space; `names` says which parameter each column comes from."""

    def __init__(self, encoding: Encoding) -> None:
        columns = [(name, c) for j, name in enumerate(encoding.space.cube_names) for c in _columns(encoding, j)]
        columns += [(name, _activity(k)) for k, name in enumerate(encoding.optional)]
        self.names = tuple(name for name, _ in columns)
        self._columns = [column for _, column in columns]

    def of(self, points: Points) -> Floats:
        """Return the features of the points, (m, number of columns)."""
        features = np.empty((len(points), len(self._columns)))
        for i, column in enumerate(self._columns):
            features[:, i] = column(points)
        return features

    def columns_of(self, parameters: Sequence[str]) -> tuple[int, ...]:
        """Return the columns of these parameters, in their order."""
        return tuple(i for parameter in parameters for i, name in enumerate(self.names) if name == parameter)


def _columns(encoding: Encoding, dim: int) -> list[Column]:
    """Return the columns of one dimension of the cube."""
    parameter = encoding.space.parameters[encoding.space.cube_names[dim]]
    assert not isinstance(parameter, Constant)

    def values(points: Points) -> Floats:  # for a choice: the option's number
        return encoding.values(dim, points.cube[:, dim])

    if isinstance(parameter, Choice):
        options = parameter.stored_options
        if all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in options):
            logs = np.log(np.array(options, dtype=np.float64))
            return [lambda points: logs[values(points).astype(np.intp)]]
        return [_indicator(values, number) for number in range(1, len(options))]
    if parameter.low > 0:
        return [lambda points: np.log(values(points))]
    return [lambda points: points.cube[:, dim]]


def _indicator(values: Column, number: int) -> Column:
    return lambda points: np.asarray(values(points) == number, dtype=np.float64)


def _activity(place: int) -> Column:
    return lambda points: points.active[:, place].astype(np.float64)
