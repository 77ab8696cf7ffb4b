"""What a cost model sees of a config, and a cost model that travels from study to study.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456, section 3.2: cost is about a power law in a few hyperparameters (rounds, depth, width), so numbers enter as
their logarithms, whatever the scale on which the space searches them.

    parameter                               columns
    float, int, choice of numbers, all > 0  log of the value
    float, int otherwise                    its place on the unit interval
    choice otherwise                        for each option but the first: 1 if chosen, else 0
    conditional                             a further column: 1 active, 0 inactive (its value then is that of the middle)

Departs from the paper: its models see seven positive numbers only, so the rows for choices and conditions are ours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.encoding import Encoding, Points
from shoestring.core.parameters import Choice, Constant
from shoestring.models.cost_aware.linear import Limits, LinearCost, TransferCost

Array = NDArray[np.float64]


class CostFeatures:
    """Columns for the cost models of one space; `names` says which parameter each column comes from."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding
        self._columns: list[tuple[int, str, Any]] = []  # (cube dimension or place in `optional`, kind, detail)
        names: list[str] = []
        space = encoding.space
        for j, name in enumerate(space.cube_names):
            parameter = space.parameters[name]
            assert not isinstance(parameter, Constant)
            if isinstance(parameter, Choice):
                if all(isinstance(v, int | float) and not isinstance(v, bool) and v > 0 for v in parameter.options):
                    self._columns.append((j, "log option", np.log(np.array(parameter.options, dtype=np.float64))))
                else:
                    self._columns += [(j, "option", k) for k in range(1, len(parameter.options))]
            else:
                self._columns.append((j, "log" if parameter.low > 0 else "place", None))
            names += [name] * (len(self._columns) - len(names))
        self._columns += [(k, "active", None) for k in range(len(encoding.optional))]
        self.names = (*names, *encoding.optional)

    def of(self, points: Points) -> Array:
        """(m, number of columns)."""
        features = np.empty((len(points), len(self._columns)))
        for i, (j, kind, detail) in enumerate(self._columns):
            if kind == "active":
                features[:, i] = points.active[:, j]
            elif kind == "place":
                features[:, i] = points.cube[:, j]
            else:
                values = self.encoding.values(j, points.cube[:, j])
                if kind == "log":
                    features[:, i] = np.log(values)
                else:
                    features[:, i] = values == detail if kind == "option" else detail[values.astype(np.intp)]
        return features

    def columns_of(self, parameters: Sequence[str]) -> tuple[int, ...]:
        """The columns of these parameters, in that order; an unknown name is a KeyError."""
        columns: list[int] = []
        for parameter in parameters:
            found = [i for i, name in enumerate(self.names) if name == parameter]
            if not found:
                raise KeyError(parameter)
            columns += found
        return tuple(columns)


def packed(model: TransferCost) -> dict[str, list[float]]:
    """A transferred model as named lists of floats: what a policy's settings can keep."""
    linear = model.linear
    return {
        "columns": [float(j) for j in linear.columns],
        "weights": linear.weights.tolist(),
        "centre": linear.centre.tolist(),
        "factor": linear.factor.ravel().tolist(),
        "spread": [float(linear.n), linear.residual_sum, linear.limits.low, linear.limits.high],
        "meta": model.meta.tolist(),
    }


def unpacked(lists: Mapping[str, Sequence[float]]) -> TransferCost:
    """The model that `packed` put away."""
    columns = tuple(int(j) for j in lists["columns"])
    n, residual_sum, low, high = lists["spread"]
    linear = LinearCost(
        columns,
        np.array(lists["weights"], dtype=np.float64),
        np.array(lists["centre"], dtype=np.float64),
        np.array(lists["factor"], dtype=np.float64).reshape(len(columns), len(columns)),
        int(n),
        float(residual_sum),
        Limits(float(low), float(high)),
    )
    return TransferCost(linear, np.array(lists["meta"], dtype=np.float64))
