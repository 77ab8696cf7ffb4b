"""Models that predict the logarithm of the cost of a trial, and "auto", which chooses one of them.

Guinet et al., arXiv:2011.11456, section 3.2 and appendix B.

    paper            here                      model
    LV-1, -2, -3     "lv1", "lv2", "lv3"       linear in that many features, see `linear`
    GP               "gp"                      Gaussian process on all features
    limited GP       "gp3"                     Gaussian process on the three features of LV-3
    GP-LV            "gplv"                    LV-3 plus a Gaussian process on its residuals
    Transfer         `linear.fit_transfer`     linear, fitted on the receipts of other tasks and then fixed
    —                "auto"                    LV-3 up to 15 receipts if its features are named, else GP

Each predicts mean (gamma of the paper) and std of the log of one new cost, noise included. exp(mean) is the expected cost;
`cost_quantile` gives the amount to hold in reserve.

Differences from the paper:
- A linear model uses one feature for every four receipts, at least one: with four weights, five receipts do not determine
  three of them. A linear model that must select its features is no better than the Gaussian process, and beyond about 15
  receipts the Gaussian process is better in any case. The rule of "auto" follows from both (benchmarks/cost_aware).
- The Gaussian processes use at most 300 receipts, spread evenly over the past; these suffice for a smooth function.
- Costs of 0 (from a coarse clock) count as the smallest cost above 0. The quantile assumes a normal log cost.
- The Gaussian processes see features scaled to 0..1 by the range observed at the fit, as the priors on length-scales assume.
  Log costs are divided by their spread, but never by less than 0.5 (a factor of 1.6 in cost), the scale assumed before there
  are data. So one receipt, or a line through every point, does not look like certainty. Predictions are clipped like those of
  the linear models.
- GP-LV does not add the uncertainty of the linear part: the GP was fitted to its residuals, so they would count twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from shoestring.core.deciding.decision import Memo
from shoestring.core.values.arrays import Floats
from shoestring.models.cost_aware.linear import PRIOR_STD, Limits, LinearCost, check_costs, choose_columns, fit_linear
from shoestring.models.gp.fit import fit_gp, theta_from_memo
from shoestring.models.gp.kernels import Kernel
from shoestring.models.gp.posterior import GP, condition

# How many columns a model uses, in falling order of importance: lv1, lv2, lv3 and gplv for the linear part, gp3 for the GP.
# The Gaussian processes of gp and gplv use all columns.
COST_MODELS: Mapping[str, int] = {"auto": 3, "lv1": 1, "lv2": 2, "lv3": 3, "gp": 0, "gp3": 3, "gplv": 3}
_RECEIPTS_PER_FEATURE = 4  # of a linear model
_MAX_LINEAR_RECEIPTS = 15  # "auto" chooses a linear model up to this number
_MAX_GP_RECEIPTS = 300  # a Gaussian process is fitted to at most this many


def choose_cost_model(name: str, receipts: int, is_named: bool) -> str:
    """Return the model that `name` means for this number of receipts.

    `is_named` says whether the user named the features of the cost.
    """
    if name not in COST_MODELS:
        raise ValueError(f"cost model {name!r} is unknown: use one of {', '.join(COST_MODELS)}.")
    if name != "auto":
        return name
    return "lv3" if is_named and receipts <= _MAX_LINEAR_RECEIPTS else "gp"


def count_columns(name: str, receipts: int, *, at_once: bool = False) -> int:
    """Return how many columns the model may use for this number of receipts; with `at_once` always all of them."""
    most = COST_MODELS[name]
    return most if at_once or name == "gp3" else min(most, max(1, receipts // _RECEIPTS_PER_FEATURE))


def fit_cost_model(
    name: str,
    features: Floats,
    log_cost: Floats,
    *,
    columns: Sequence[int] | None = None,
    memo: Memo | None = None,
    refit: bool = True,
    at_once: bool = False,
) -> LinearCost | GPCost:
    """Return the model `name` fitted to log_cost, (n,), at features, (n, d), log-scaled where that makes sense; n >= 1.

    `columns` lists features in falling order of importance; the model uses the first of them. Without it, features are selected
    by their leave-one-out error. `memo` holds the parameters of an earlier fit of a GP model; without `refit` they stay.
    With `at_once` a linear model uses all its features from the first cost on.
    """
    features, log_cost = check_costs(features, log_cost)
    name = choose_cost_model(name, log_cost.size, columns is not None)
    all_columns = range(features.shape[1])
    if name == "gp":
        return fit_gp_cost(features, log_cost, all_columns, memo=memo, refit=refit)
    most = count_columns(name, log_cost.size, at_once=at_once)
    picked = choose_columns(features, log_cost, most) if columns is None else tuple(columns)[:most]
    if name == "gp3":
        # A GP needs inputs: until the selection finds a useful column, it uses all of them.
        return fit_gp_cost(features, log_cost, picked or all_columns, memo=memo, refit=refit)
    linear = fit_linear(features, log_cost, picked)
    if name != "gplv":
        return linear
    return fit_gp_cost(features, log_cost, all_columns, base=linear, memo=memo, refit=refit)


@dataclass(frozen=True, eq=False, slots=True)
class GPCost:
    """log c = linear part (if any) + shift + scale * GP of the features, scaled to 0..1."""

    columns: tuple[int, ...]  # inputs of the GP
    low: Floats  # (k,)
    width: Floats  # (k,)
    shift: float
    scale: float
    gp: GP
    base: LinearCost | None  # the linear part; the GP models its residuals
    limits: Limits

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and std of log cost, (m,) each, at features, (m, d)."""
        standard, variance = self.gp.predict((features[:, list(self.columns)] - self.low) / self.width, noisy=True)
        mean = self.shift + self.scale * standard
        if self.base is not None:
            mean += self.base.line(features)
        return self.limits.clip(mean, self.scale * np.sqrt(variance))


def fit_gp_cost(
    features: Floats,
    log_cost: Floats,
    columns: Sequence[int],
    base: LinearCost | None = None,
    memo: Memo | None = None,
    refit: bool = True,
) -> GPCost:
    """Return a Matérn 5/2 GP of log_cost, (n,), or of its residuals from `base`, on the given columns of features, (n, d)."""
    features, log_cost = check_costs(features, log_cost)
    limits = Limits.of(log_cost)
    if log_cost.size > _MAX_GP_RECEIPTS:
        spread = np.linspace(0, log_cost.size - 1, _MAX_GP_RECEIPTS).astype(np.intp)
        features, log_cost = features[spread], log_cost[spread]
    columns = tuple(int(j) for j in columns)
    seen = features[:, list(columns)]  # (n, k)
    low = seen.min(axis=0)
    width = seen.max(axis=0) - low
    width = np.where(width > 0.0, width, 1.0)  # a feature that has not varied yet keeps its own unit
    target = log_cost if base is None else log_cost - base.line(features)
    shift, scale = float(target.mean()), max(float(target.std()), PRIOR_STD)
    kernel, standard = Kernel.ard("matern52", len(columns)), (target - shift) / scale
    x = (seen - low) / width
    if memo is None or refit:
        gp = fit_gp(kernel, x, standard, memo=memo, n_starts=1 if memo is None else 0, standardise=False)
    else:
        gp = condition(kernel, theta_from_memo(memo, kernel), x, standard, standardise=False)
    return GPCost(columns, low, width, shift, scale, gp, base, limits)


def log_costs(cost: Floats) -> Floats:
    """Return the logs of observed costs, (n,); a cost of 0 counts as the smallest one above 0, or as 1 if there is none."""
    cost = np.asarray(cost, dtype=np.float64)
    if (wrong := cost[~(np.isfinite(cost) & (cost >= 0.0))]).size:
        raise ValueError(f"costs {wrong[:3]} must be finite and >= 0: leave them out.")
    smallest = float(np.min(cost[cost > 0.0], initial=np.inf))
    return np.log(np.maximum(cost, smallest if np.isfinite(smallest) else 1.0))


def cost_quantile(mean: Floats, std: Floats, probability: float = 0.9) -> Floats:
    """Return the cost, (m,), that a trial does not exceed with this probability, from mean and std of log cost."""
    if not 0.0 < probability < 1.0:
        raise ValueError(f"probability={probability} must lie strictly between 0 and 1; 0.9 is usual for a reserve.")
    return np.asarray(np.exp(mean + float(ndtri(probability)) * std))
