"""Spaces there and here: Optuna's distributions and shoestring's parameters.

A distribution with a step is, here, a choice of its values (a whole number in disguise when there are many): shoestring's ranges
have no steps. Options that are lists travel as JSON text, since Optuna's categories are scalars.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.integrations.optional import need

_optuna = need("the exchange with Optuna", "optuna", "optuna")
Distribution = Any  # of optuna.distributions


@dataclass(frozen=True)
class Axis:
    """One parameter of both worlds."""

    distribution: Distribution

    @property
    def parameter(self) -> Parameter:
        told = self.distribution
        if told.single():
            return Constant(0)
        if isinstance(told, _optuna.distributions.CategoricalDistribution):
            return Choice(range(len(told.choices)))
        if self.is_stepped:
            return Int(0, self.last_place)
        kind = Int if isinstance(told, _optuna.distributions.IntDistribution) else Float
        return kind(told.low, told.high, log=told.log)

    def inwards(self, value: Any) -> Any:
        """Optuna's value as ours."""
        told = self.distribution
        if told.single():
            return 0
        if isinstance(told, _optuna.distributions.CategoricalDistribution):
            return int(told.to_internal_repr(value))
        return round((value - told.low) / told.step) if self.is_stepped else value

    def outwards(self, value: Any) -> Any:
        """Our value as Optuna's."""
        told = self.distribution
        if isinstance(told, _optuna.distributions.CategoricalDistribution):
            return told.choices[0 if told.single() else value]
        if told.single():
            return told.low
        if not self.is_stepped:
            return value
        stepped = told.low + value * told.step
        return int(stepped) if isinstance(told, _optuna.distributions.IntDistribution) else min(stepped, told.high)

    @property
    def is_stepped(self) -> bool:
        whole = isinstance(self.distribution, _optuna.distributions.IntDistribution)
        return bool(self.distribution.step) and not (whole and self.distribution.step == 1)

    @property
    def last_place(self) -> int:
        told = self.distribution
        return int((told.high - told.low) / told.step + 1e-9)  # 0.1 three times is a little over 0.3


def to_distributions(space: Space) -> dict[str, Distribution]:
    """Optuna's distributions of a space; conditions have no place there, a trial just lacks the parameter."""
    return {name: _distribution(parameter) for name, parameter in space.parameters.items()}


def to_params(config: Config, distributions: Mapping[str, Distribution]) -> dict[str, Any]:
    """A config as the params of a trial."""
    categories = _optuna.distributions.CategoricalDistribution
    return {
        name: _scalar(value) if isinstance(distributions[name], categories) else value for name, value in config.items()
    }


def to_parameter(distribution: Distribution) -> Parameter:
    """The parameter that somebody would have written here for a distribution of theirs."""
    axis = Axis(distribution)
    if isinstance(parameter := axis.parameter, Constant):
        return Constant(axis.outwards(0))
    if isinstance(parameter, Choice):
        return Choice(list(distribution.choices))
    if axis.is_stepped:
        return Choice([axis.outwards(place) for place in range(axis.last_place + 1)])
    return parameter


def _distribution(parameter: Parameter) -> Distribution:
    kinds = _optuna.distributions
    if isinstance(parameter, Float):
        return kinds.FloatDistribution(parameter.low, parameter.high, log=parameter.log)
    if isinstance(parameter, Int):
        return kinds.IntDistribution(parameter.low, parameter.high, log=parameter.log)
    options = [parameter.value] if isinstance(parameter, Constant) else parameter.options
    return kinds.CategoricalDistribution([_scalar(option) for option in options])


def _scalar(option: Any) -> Any:
    return option if option is None or isinstance(option, str | int | float | bool) else dumps(option)
