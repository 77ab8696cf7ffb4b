"""Gaussian-process cost models on log cost, alone or on what a linear model leaves over.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456, section 3.2: GP, GP-3 ("limited-features GP") and GP-LV.

    symbol     here       meaning                                                  unit
    gamma(x)   mean       posterior mean of log cost                               log cost
    —          columns    features the GP sees                                     —
    —          base       the linear model whose residuals it models (GP-LV)       —
    —          shift      mean of what the GP models                               log cost
    —          scale      unit of what the GP models                               log cost

The mean of log cost, taken to the exponential, is the expected cost; the std is that of one new observation (noise included).

Departs from the paper: features are brought to 0..1 by the range observed at the fit, which is what the priors on
length-scales suppose. Log costs are divided by their spread but never by less than 0.5: a factor of 1.6 in cost is the
scale on which nothing is known yet, and one receipt, or residuals of a line through every point, must not read as
certainty. Predictions are clipped as those of the linear models; GP-LV adds no uncertainty of the linear part,
since the GP has seen its residuals and would count them twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shoestring.models.cost_aware.linear import PRIOR_STD, Limits, LinearCost, checked
from shoestring.models.gp.fit import fit_gp
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import GP

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class GPCost:
    """log c = base line (if any) + GP of the scaled features."""

    columns: tuple[int, ...]
    low: Array  # (k,)
    width: Array  # (k,)
    shift: float
    scale: float
    gp: GP
    base: LinearCost | None
    limits: Limits

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and std of log cost, (m,) each, at features, (m, d)."""
        standard, variance = self.gp.predict((features[:, list(self.columns)] - self.low) / self.width, noisy=True)
        mean = self.shift + self.scale * standard
        if self.base is not None:
            mean += self.base.line(features)
        return self.limits.believe(mean, self.scale * np.sqrt(variance))

    def memo(self) -> dict[str, list[float]]:
        """Where the next fit may start."""
        return self.gp.memo()


def fit_gp_cost(
    features: Array,
    log_cost: Array,
    columns: Sequence[int],
    *,
    base: LinearCost | None = None,
    memo: Mapping[str, Sequence[float]] | None = None,
    n_starts: int = 1,
) -> GPCost:
    """A Matérn 5/2 GP of log_cost, (n,), or of its residuals from `base`, on the given columns of features, (n, d)."""
    features, log_cost = checked(features, log_cost)
    columns = tuple(int(j) for j in columns)
    seen = features[:, list(columns)]  # (n, k)
    low = seen.min(axis=0)
    width = seen.max(axis=0) - low
    width = np.where(width > 0.0, width, 1.0)  # a feature that has not varied yet keeps its own unit
    target = log_cost if base is None else log_cost - base.line(features)
    shift, scale = float(target.mean()), max(float(target.std()), PRIOR_STD)
    gp = fit_gp(
        Kernel.ard("matern52", len(columns)),
        (seen - low) / width,
        (target - shift) / scale,
        memo=memo,
        n_starts=n_starts,
        standardise=False,
    )
    return GPCost(columns, low, width, shift, scale, gp, base, Limits.of(log_cost))
