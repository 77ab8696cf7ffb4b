"""Low-variance cost models: the log of the cost is linear in one to three features, so a handful of receipts will do.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456, section 3.2 (LV-1, LV-2, LV-3) and appendix B (Transfer).

    symbol   here                meaning                                                       unit
    F        features            one row a trial, log-scaled columns of the caller's choice    —
    c        exp(log_cost)       observed cost                                                 seconds, dollars, …
    w        weights             intercept, then one weight a column used                      log cost (per feature)
    h_i      leverage            diagonal of the hat matrix, with the intercept's 1/n          —
    S        —                   centred features' Gram matrix, factored once (Cholesky)       —
    s^2      residual_variance   residual sum of squares / (n - number of weights)             log cost squared

The mean of log cost, taken to the exponential, is the expected cost (no + var/2: it is the median, as in GPyOpt); the std is
that of one new observation, s^2 (1 + 1/n + f' S^-1 f).

Departs from the paper:
- The "most significant" hyperparameters are not named there; the caller gives the columns, or forward selection takes, one
  at a time, the column that lowers the leave-one-out error most, and stops when none does.
- Fewer observations than weights, or columns that repeat each other: ridge, penalty 1e-3, intercept free.
- The std uses (s_0^2 + RSS) / (1 + n - p), s_0 = 0.5: one pseudo-observation of a factor 1.6, so that a line through two
  points does not promise a certain bill.
- Predicted log costs are clipped to [min - 2, max + 2] of the observed ones (a line extrapolates without shame), their std
  to half that range, and no cost is below 1e-12 of the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[np.float64]

RIDGE = 1e-3
PRIOR_STD = 0.5  # of log cost about the line, worth one observation
CLIP = 2.0  # log cost beyond the observed range
FLOOR = 1e-12  # of the median cost


@dataclass(frozen=True, slots=True)
class Limits:
    """The range in which predictions of log cost are believed."""

    low: float
    high: float

    @classmethod
    def of(cls, log_cost: Array) -> Limits:
        floor = float(np.median(log_cost) + np.log(FLOOR))
        return cls(max(float(log_cost.min()) - CLIP, floor), float(log_cost.max()) + CLIP)

    def believe(self, mean: Array, std: Array) -> tuple[Array, Array]:
        """Mean clipped to the range, std to half its width: a weight still unknown would give 50 and more under ridge."""
        return np.clip(mean, self.low, self.high), np.minimum(std, 0.5 * (self.high - self.low))


@dataclass(frozen=True, eq=False, slots=True)
class LinearCost:
    """log c = weights[0] + weights[1:] . features[columns]."""

    columns: tuple[int, ...]
    weights: Array  # (1 + k,)
    centre: Array  # (k,)
    factor: Array  # (k, k), lower Cholesky factor of S
    n: int
    residual_sum: float
    limits: Limits

    @property
    def residual_variance(self) -> float:
        """s^2; the prior's variance where there are no more observations than weights."""
        spare = self.n - self.weights.size
        return self.residual_sum / spare if spare > 0 else PRIOR_STD**2

    def line(self, features: Array) -> Array:
        """The linear prediction of log cost, not clipped, (m,)."""
        return np.asarray(self.weights[0] + features[:, list(self.columns)] @ self.weights[1:])

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and std of log cost, (m,) each, at features, (m, d)."""
        spare = max(0, self.n - self.weights.size)
        variance = (PRIOR_STD**2 + self.residual_sum) / (1.0 + spare)
        spread = np.full(features.shape[0], 1.0 + 1.0 / self.n)
        if self.columns:
            v, _ = lapack.dtrtrs(self.factor, (features[:, list(self.columns)] - self.centre).T, lower=1)  # (k, m)
            spread += np.einsum("km,km->m", v, v)
        return self.limits.believe(self.line(features), np.sqrt(variance * spread))

    def memo(self) -> dict[str, list[float]]:
        """Nothing: a linear fit needs no start."""
        return {}


def fit_linear(features: Array, log_cost: Array, columns: Sequence[int]) -> LinearCost:
    """Least squares of log_cost, (n,), on an intercept and the given columns of features, (n, d); n >= 1."""
    features, log_cost = checked(features, log_cost)
    columns = tuple(int(j) for j in columns)
    if len(set(columns)) < len(columns) or not all(0 <= j < features.shape[1] for j in columns):
        raise ValueError(
            f"columns={columns} must be different indices below {features.shape[1]}, the number of features."
        )
    n, k = log_cost.size, len(columns)
    chosen = features[:, list(columns)]  # (n, k)
    centre = chosen.mean(axis=0)
    centred = chosen - centre  # the intercept leaves the system, and with it most of the ill-conditioning
    gram = centred.T @ centred
    target = centred.T @ (log_cost - log_cost.mean())
    slopes, factor = np.zeros(k), np.zeros((0, 0))
    if k:
        factor, singular = lapack.dpotrf(gram, lower=1, clean=1)
        # A pivot this small against its own diagonal is rounding: the column repeats the others.
        if n < k + 1 or singular or np.any(factor.diagonal() ** 2 <= 1e-12 * np.maximum(gram.diagonal(), 1e-300)):
            factor, _ = lapack.dpotrf(gram + RIDGE * np.eye(k), lower=1, clean=1)
        slopes = np.asarray(lapack.dpotrs(factor, target, lower=1)[0]).reshape(k)
    weights = np.concatenate([[log_cost.mean() - slopes @ centre], slopes])
    residuals = log_cost - log_cost.mean() - centred @ slopes
    return LinearCost(columns, weights, centre, factor, n, float(residuals @ residuals), Limits.of(log_cost))


def choose_columns(features: Array, log_cost: Array, most: int) -> tuple[int, ...]:
    """At most `most` columns, in the order taken, by forward selection on the leave-one-out error.

    Adding a column with unit component q, orthogonal to those taken, changes the residuals to r - q q'r and the leverages
    to h + q^2; the leave-one-out error of every candidate, mean of (r / (1 - h))^2, then costs O(n d) for all together.
    """
    features, log_cost = checked(features, log_cost)
    n = log_cost.size
    taken: list[int] = []
    r = log_cost - log_cost.mean()  # (n,)
    leverage = np.full(n, 1.0 / n)
    rest = features - features.mean(axis=0)  # (n, d), what of each column is orthogonal to those taken
    size = np.sqrt(np.einsum("nd,nd->d", rest, rest))
    best = float(np.mean((r / (1.0 - leverage)) ** 2)) if n > 1 else 0.0
    for _ in range(min(most, features.shape[1])):
        if n < len(taken) + 3:  # one more weight would leave no observation to check it against
            break
        length = np.sqrt(np.einsum("nd,nd->d", rest, rest))
        usable = length > 1e-7 * np.maximum(size, 1e-300)  # else constant, or a repetition of those taken
        usable[taken] = False
        q = rest / np.where(usable, length, 1.0)  # (n, d)
        kept = 1.0 - leverage[:, None] - q * q
        usable &= kept.min(axis=0) > 1e-9  # a lone point that decides the weight by itself cannot be left out
        errors = np.full(usable.size, np.inf)
        errors[usable] = np.mean(((r[:, None] - q * (r @ q)) / np.where(usable, kept, 1.0))[:, usable] ** 2, axis=0)
        j = int(np.argmin(errors))
        if not errors[j] < best:
            break
        best = float(errors[j])
        taken.append(j)
        r = r - q[:, j] * (q[:, j] @ r)
        leverage = leverage + q[:, j] ** 2
        rest = rest - np.outer(q[:, j], q[:, j] @ rest)
    return tuple(taken)


@dataclass(frozen=True, eq=False, slots=True)
class TransferCost:
    """A linear model of other tasks' costs, frozen; `meta` is what it is told about the task at hand."""

    linear: LinearCost
    meta: Array  # (q,)

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and std of log cost, (m,) each, at features, (m, d)."""
        return self.linear.predict(_with_meta(features, self.meta))

    def memo(self) -> dict[str, list[float]]:
        """Nothing: a linear fit needs no start."""
        return {}


def fit_transfer(
    tasks: Sequence[tuple[Array, Array]],
    columns: Sequence[int],
    *,
    task_meta: Sequence[Sequence[float]] | None = None,
    meta: Sequence[float] = (),
) -> TransferCost:
    """Least squares over all (features, log_cost) of other tasks.

    `task_meta` describes each task (log rows, log columns, classes), `meta` the one at hand; all are used as features.
    """
    if not tasks:
        raise ValueError("tasks is empty: a transferred cost model needs the receipts of at least one other task.")
    described = task_meta if task_meta is not None else [()] * len(tasks)
    if len(described) != len(tasks) or any(len(row) != len(meta) for row in described):
        raise ValueError(
            f"task_meta must describe each of the {len(tasks)} tasks with {len(meta)} numbers, as meta={tuple(meta)} "
            "describes the task at hand."
        )
    stacked = np.vstack(
        [_with_meta(f, np.asarray(row, dtype=float)) for (f, _), row in zip(tasks, described, strict=True)]
    )
    n_features = stacked.shape[1] - len(meta)
    all_columns = [*columns, *range(n_features, stacked.shape[1])]
    linear = fit_linear(stacked, np.concatenate([log_cost for _, log_cost in tasks]), all_columns)
    return TransferCost(linear, np.asarray(meta, dtype=np.float64))


def _with_meta(features: Array, meta: Array) -> Array:
    return np.hstack([features, np.broadcast_to(meta, (features.shape[0], meta.size))])


def checked(features: Array, log_cost: Array) -> tuple[Array, Array]:
    """Both as float arrays, (n, d) and (n,), n >= 1, finite; or an error that says what to do."""
    features, log_cost = np.asarray(features, dtype=np.float64), np.asarray(log_cost, dtype=np.float64)
    if features.ndim != 2 or log_cost.shape != (features.shape[0],) or log_cost.size == 0:
        raise ValueError(
            f"features of shape {features.shape} and log_cost of shape {log_cost.shape} must be (n, d) and (n,), n >= 1."
        )
    if not (np.all(np.isfinite(features)) and np.all(np.isfinite(log_cost))):
        raise ValueError("features or log_cost hold NaN or infinity: take logs with log_costs(), which mends zeros.")
    return features, log_cost
