"""What the next trial will cost: one question, seven models of the log of the cost.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456, section 3.2 and appendix B.

    paper            here                      model
    LV-1, -2, -3     "lv1", "lv2", "lv3"       linear in that many features, see `cost_linear`
    GP               "gp"                      Gaussian process on all features, see `cost_gp`
    limited GP       "gp3"                     Gaussian process on the three features of LV-3
    GP-LV            "gplv"                    LV-3 plus a Gaussian process on its residuals
    Transfer         `fit_transfer`            linear, fitted on other tasks' receipts and frozen

Every model has `predict(features) -> (mean, std)` of log cost. exp(mean) is the expected cost; `cost_quantile` gives the
amount to hold in reserve.

Departs from the paper: costs of 0 (a clock too coarse) count as the smallest cost above 0; the quantile takes log cost as
normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from shoestring.models.cost_aware.gp_costs import fit_gp_cost
from shoestring.models.cost_aware.linear import LinearCost, choose_columns, fit_linear, fit_transfer

Array = NDArray[np.float64]
CostModelName = Literal["lv1", "lv2", "lv3", "gp", "gp3", "gplv"]
COST_MODELS: Mapping[CostModelName, int] = {
    "lv1": 1,
    "lv2": 2,
    "lv3": 3,
    "gp": 0,
    "gp3": 3,
    "gplv": 3,
}  # linear features

__all__ = ["COST_MODELS", "CostModel", "CostModelName", "cost_quantile", "fit_cost_model", "fit_transfer", "log_costs"]


class CostModel(Protocol):
    """What every cost model answers."""

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and std of log cost, (m,) each, at features, (m, d)."""

    def memo(self) -> dict[str, list[float]]:
        """What the next fit may start from; empty for linear models."""


def fit_cost_model(
    name: CostModelName,
    features: Array,
    log_cost: Array,
    *,
    columns: Sequence[int] | None = None,
    memo: Mapping[str, Sequence[float]] | None = None,
) -> CostModel:
    """The model `name` of log_cost, (n,), at features, (n, d), log-scaled where that makes sense; n >= 1.

    `columns`: the features of the linear part in falling order of importance, of which the first 1, 2 or 3 are used;
    without it they are selected by their leave-one-out error. `memo`: parameters of an earlier fit, for the GP models.
    """
    if name not in COST_MODELS:
        raise ValueError(f"cost model {name!r} is unknown: use one of {', '.join(COST_MODELS)}.")
    if name == "gp":
        return fit_gp_cost(features, log_cost, range(np.shape(features)[1]), memo=memo)
    most = COST_MODELS[name]
    chosen = choose_columns(features, log_cost, most) if columns is None else tuple(columns)[:most]
    if name == "gp3":
        # A GP without inputs is no model: until selection finds a column that helps, it sees them all.
        return fit_gp_cost(features, log_cost, chosen or range(np.shape(features)[1]), memo=memo)
    linear: LinearCost = fit_linear(features, log_cost, chosen)
    if name == "gplv":
        return fit_gp_cost(features, log_cost, range(np.shape(features)[1]), base=linear, memo=memo)
    return linear


def log_costs(cost: Array) -> Array:
    """Logs of observed costs, (n,); a cost of 0 counts as the smallest one above 0, or as 1 if there is none."""
    cost = np.asarray(cost, dtype=np.float64)
    if not np.all(np.isfinite(cost)) or np.any(cost < 0.0):
        raise ValueError(
            f"costs {cost[~(np.isfinite(cost) & (cost >= 0.0))][:3]} must be finite and >= 0: leave them out."
        )
    smallest = float(np.min(cost[cost > 0.0], initial=np.inf))
    return np.log(np.maximum(cost, smallest if np.isfinite(smallest) else 1.0))


def cost_quantile(mean: Array, std: Array, probability: float = 0.9) -> Array:
    """The cost, (m,), that a trial stays below with this probability, from a model's mean and std of log cost."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability={probability} must lie strictly between 0 and 1; 0.9 is usual for a reserve.")
    return np.asarray(np.exp(mean + float(ndtri(probability)) * std))
