"""Conversion between Optuna's distributions and shoestring's parameters.

Options that are lists become JSON text, since Optuna's categories are scalars; options that are other objects become their text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoestring.core.space.parameters import Choice, Constant, Float, Int, Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.integrations.optional import import_optional

_optuna = import_optional("shoestring.integrations.optuna", "optuna", "optuna")
Distribution = Any  # a class of optuna.distributions


@dataclass(frozen=True)
class Axis:
    """A distribution of Optuna, and the parameter that the sampler's policy sees for it."""

    distribution: Distribution

    @property
    def parameter(self) -> Parameter:
        distribution = self.distribution
        if distribution.single():
            return Constant(0)
        if isinstance(distribution, _optuna.distributions.CategoricalDistribution):
            return Choice(range(len(distribution.choices)))
        kind = Int if isinstance(distribution, _optuna.distributions.IntDistribution) else Float
        return kind(distribution.low, distribution.high, log=distribution.log, step=distribution.step)

    def from_optuna_value(self, value: Any) -> Any:
        """Convert Optuna's value to shoestring's."""
        distribution = self.distribution
        if distribution.single():
            return 0
        if isinstance(distribution, _optuna.distributions.CategoricalDistribution):
            return int(distribution.to_internal_repr(value))
        return value

    def to_optuna_value(self, value: Any) -> Any:
        """Convert shoestring's value to Optuna's."""
        distribution = self.distribution
        if isinstance(distribution, _optuna.distributions.CategoricalDistribution):
            return distribution.choices[0 if distribution.single() else value]
        return distribution.low if distribution.single() else value


def to_distributions(space: Space) -> dict[str, Distribution]:
    """Return Optuna's distributions for a space. They have no conditions: a trial may simply lack a parameter."""
    return {name: _distribution(parameter) for name, parameter in space.parameters.items()}


def to_params(config: Config, distributions: Mapping[str, Distribution]) -> dict[str, Any]:
    """Return a configuration as the params of an Optuna trial."""
    categories = _optuna.distributions.CategoricalDistribution
    return {
        name: _scalar(value) if isinstance(distributions[name], categories) else value for name, value in config.items()
    }


def to_parameter(distribution: Distribution) -> Parameter:
    """Return the parameter of shoestring that means the same as a distribution."""
    axis = Axis(distribution)
    if isinstance(parameter := axis.parameter, Constant):
        return Constant(axis.to_optuna_value(0))
    if isinstance(parameter, Choice):
        return Choice(list(distribution.choices))
    return parameter


def _distribution(parameter: Parameter) -> Distribution:
    kinds = _optuna.distributions
    if isinstance(parameter, Float):
        return kinds.FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    if isinstance(parameter, Int):
        return kinds.IntDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)
    options = parameter.levels(1)
    return kinds.CategoricalDistribution([_scalar(option) for option in options])


def _scalar(option: Any) -> Any:
    return option if option is None or isinstance(option, str | int | float | bool) else dumps(option)
