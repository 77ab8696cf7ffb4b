"""Low-variance cost models: the log of the cost is linear in one to three features, so a few receipts suffice.

Guinet et al., arXiv:2011.11456, section 3.2 (LV-1, LV-2, LV-3) and appendix B (Transfer).

    symbol   here                meaning                                                       unit
    F        features            one row per trial, log-scaled columns of the caller's choice  —
    c        exp(log_cost)       observed cost                                                 seconds, dollars, …
    w        weights             intercept, then one weight per column used                    log cost (per feature)
    h_i      leverage            diagonal of the hat matrix, with the intercept's 1/n          —
    S        —                   centred features' Gram matrix, factored once (Cholesky)       —
    RSS      residual_sum        sum of squared residuals                                      log cost squared
    s^2      variance            of one cost about the line                                    log cost squared

exp(mean of log cost) is used as the expected cost. (Without + var/2 it is the median, as in GPyOpt.) The std is that of one new
observation, the root of s^2 (1 + 1/n + f' S^-1 f).

Differences from the paper:
- The paper does not name the "most significant" hyperparameters. The caller gives the columns, or forward selection adds one
  column at a time, the one that lowers the leave-one-out error most, and stops when none does.
- With fewer observations than weights, or columns that repeat each other, the fit is a ridge regression with penalty 1e-3; the
  intercept is not penalised.
- s^2 is (s_0^2 + RSS) / (1 + n - p), with p the number of weights and s_0 = 0.5. This is one pseudo-observation of a factor
  1.6, so that a line through two points does not look certain.
- Predicted log costs are clipped to [min - 2, max + 2] of the observed ones, because a line extrapolates without limit; their
  std is clipped to half that range; and no cost is below 1e-12 of the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg import lapack

from shoestring.core.deciding.decision import Memo
from shoestring.core.deciding.reproducible import find_best, reaches
from shoestring.core.values.arrays import Floats

RIDGE = 1e-3  # penalty of the ridge regression
PRIOR_STD = 0.5  # standard deviation of log cost about the line, with the weight of one observation
CLIP = 2.0  # log cost that a prediction may lie beyond the observed range
FLOOR = 1e-12  # least predicted cost, as a share of the median cost


@dataclass(frozen=True, slots=True)
class Limits:
    """The range to which predictions of log cost are clipped."""

    low: float
    high: float

    @classmethod
    def of(cls, log_cost: Floats) -> Limits:
        floor = float(np.median(log_cost) + np.log(FLOOR))
        return cls(max(float(log_cost.min()) - CLIP, floor), float(log_cost.max()) + CLIP)

    def clip(self, mean: Floats, std: Floats) -> tuple[Floats, Floats]:
        """Return the mean clipped to the range, and the std clipped to half its width: an unknown weight makes it 50 or more."""
        return np.clip(mean, self.low, self.high), np.minimum(std, 0.5 * (self.high - self.low))


@dataclass(frozen=True, eq=False, slots=True)
class LinearCost:
    """log c = weights[0] + weights[1:] . inputs, the inputs being features[columns] and `meta`, p - 1 numbers in all."""

    columns: tuple[int, ...]
    weights: Floats  # (p,)
    centre: Floats  # (p - 1,)
    factor: Floats  # (p - 1, p - 1), lower Cholesky factor of S
    n: int
    residual_sum: float
    limits: Limits
    # (q,): numbers that describe the task, for a transferred model
    meta: Floats = field(default_factory=lambda: np.empty(0))

    def line(self, features: Floats) -> Floats:
        """Return the linear prediction of log cost, not clipped, (m,)."""
        return np.asarray(self.weights[0] + self._inputs(features) @ self.weights[1:])

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and std of log cost, (m,) each, at features, (m, d)."""
        spare = max(0, self.n - self.weights.size)
        variance = (PRIOR_STD**2 + self.residual_sum) / (1.0 + spare)
        spread = np.full(features.shape[0], 1.0 + 1.0 / self.n)
        if self.centre.size:
            v, _ = lapack.dtrtrs(self.factor, (self._inputs(features) - self.centre).T, lower=1)  # (p - 1, m)
            spread += np.einsum("km,km->m", v, v)
        return self.limits.clip(self.line(features), np.sqrt(variance * spread))

    def _inputs(self, features: Floats) -> Floats:
        return _join(features[:, list(self.columns)], self.meta)


def fit_linear(features: Floats, log_cost: Floats, columns: Sequence[int]) -> LinearCost:
    """Return the least-squares fit of log_cost, (n,), on an intercept and the given columns of features, (n, d); n >= 1."""
    features, log_cost = check_costs(features, log_cost)
    columns = tuple(int(j) for j in columns)
    if len(set(columns)) < len(columns) or not all(0 <= j < features.shape[1] for j in columns):
        n_features = features.shape[1]
        raise ValueError(f"columns={columns} must be different indices below {n_features}, the number of features.")
    n, k = log_cost.size, len(columns)
    chosen = features[:, list(columns)]  # (n, k)
    centre = chosen.mean(axis=0)
    centred = chosen - centre  # this removes the intercept from the system, and with it most of the ill-conditioning
    gram = centred.T @ centred
    target = centred.T @ (log_cost - log_cost.mean())
    slopes, factor = np.zeros(k), np.zeros((0, 0))
    if k:
        factor, singular = lapack.dpotrf(gram, lower=1, clean=1)
        # A pivot this small compared with its diagonal is a rounding error: the column repeats the others.
        if n < k + 1 or singular or np.any(factor.diagonal() ** 2 <= 1e-12 * np.maximum(gram.diagonal(), 1e-300)):
            factor, _ = lapack.dpotrf(gram + RIDGE * np.eye(k), lower=1, clean=1)
        slopes = np.asarray(lapack.dpotrs(factor, target, lower=1)[0]).reshape(k)
    weights = np.concatenate([[log_cost.mean() - slopes @ centre], slopes])
    residuals = log_cost - log_cost.mean() - centred @ slopes
    return LinearCost(columns, weights, centre, factor, n, float(residuals @ residuals), Limits.of(log_cost))


def choose_columns(features: Floats, log_cost: Floats, most: int) -> tuple[int, ...]:
    """Return at most `most` columns, in the order of selection, by forward selection on the leave-one-out error.

    Adding a column with unit component q, orthogonal to the selected ones, changes the residuals to r - q q'r and the
    leverages to h + q^2. The leave-one-out errors of all candidates, mean of (r / (1 - h))^2, then cost O(n d) together.
    """
    features, log_cost = check_costs(features, log_cost)
    n = log_cost.size
    selected: list[int] = []
    r = log_cost - log_cost.mean()  # (n,)
    leverage = np.full(n, 1.0 / n)
    rest = features - features.mean(axis=0)  # (n, d), the part of each column that is orthogonal to the selected ones
    size = np.sqrt(np.einsum("nd,nd->d", rest, rest))
    best = float(np.mean((r / (1.0 - leverage)) ** 2)) if n > 1 else 0.0
    unit = best  # errors are compared in this unit: where a line fits exactly, the rest is rounding
    for _ in range(min(most, features.shape[1])):
        if n < len(selected) + 3:  # one more weight would leave no observation to check it
            break
        length = np.sqrt(np.einsum("nd,nd->d", rest, rest))
        usable = length > 1e-7 * np.maximum(size, 1e-300)  # else constant, or a repetition of the selected columns
        usable[selected] = False
        q = rest / np.where(usable, length, 1.0)  # (n, d)
        one_less_leverage = 1.0 - leverage[:, None] - q * q
        usable &= one_less_leverage.min(axis=0) > 1e-9  # a single point that determines the weight cannot be left out
        errors = np.full(usable.size, np.inf)
        without_each = (r[:, None] - q * (r @ q)) / np.where(usable, one_less_leverage, 1.0)  # (n, d)
        errors[usable] = np.mean(without_each[:, usable] ** 2, axis=0)
        j = find_best(errors, "lowest", spread=unit)
        if reaches(errors[j], best, spread=unit):
            break
        best = float(errors[j])
        selected.append(j)
        r = r - q[:, j] * (q[:, j] @ r)
        leverage = leverage + q[:, j] ** 2
        rest = rest - np.outer(q[:, j], q[:, j] @ rest)
    return tuple(selected)


def fit_transfer(
    tasks: Sequence[tuple[Floats, Floats]],
    columns: Sequence[int],
    *,
    task_meta: Sequence[Sequence[float]] | None = None,
    meta: Sequence[float] = (),
) -> LinearCost:
    """Return the least-squares fit over all (features, log_cost) of other tasks, of which there is at least one.

    `task_meta` describes each task (log rows, log columns, classes), `meta` the present one; all are used as features.
    """
    if not tasks:
        raise ValueError("tasks is empty: a transferred cost model needs the receipts of at least one other task.")
    described = task_meta if task_meta is not None else [()] * len(tasks)
    if len(described) != len(tasks) or any(len(row) != len(meta) for row in described):
        raise ValueError(
            f"task_meta must describe each of the {len(tasks)} tasks with {len(meta)} numbers, as meta={tuple(meta)} "
            "describes the present task."
        )
    features = np.vstack([_join(f, np.array(row, float)) for (f, _), row in zip(tasks, described, strict=True)])
    log_cost = np.concatenate([log_cost for _, log_cost in tasks])
    meta_columns = range(features.shape[1] - len(meta), features.shape[1])
    model = fit_linear(features, log_cost, [*columns, *meta_columns])
    return replace(model, columns=tuple(int(j) for j in columns), meta=np.array(meta, dtype=np.float64))


def _join(features: Floats, meta: Floats) -> Floats:
    """Return the features, (m, d), followed by the same `meta`, (q,), in every row."""
    return np.hstack([features, np.tile(meta, (len(features), 1))]) if meta.size else features


def pack(model: LinearCost) -> dict[str, list[float]]:
    """Return the model as named lists of floats, which the settings of a policy can hold."""
    return {
        "columns": [float(j) for j in model.columns],
        "weights": model.weights.tolist(),
        "centre": model.centre.tolist(),
        "factor": model.factor.ravel().tolist(),
        "spread": [float(model.n), model.residual_sum, model.limits.low, model.limits.high],
        "meta": model.meta.tolist(),
    }


def unpack(lists: Memo) -> LinearCost:
    """Return the model from the lists that `pack` made; raise ValueError if they are not such lists."""
    names = ("columns", "weights", "centre", "factor", "spread", "meta")
    try:
        columns, weights, centre, factor, spread, meta = (np.array(lists[name], dtype=np.float64) for name in names)
    except (KeyError, TypeError, ValueError, IndexError):
        raise ValueError(f"it needs the lists of numbers {', '.join(names)}") from None
    size = columns.size + meta.size
    sizes = {"weights": size + 1, "centre": size, "factor": size * size, "spread": 4}
    for (name, expected), array in zip(sizes.items(), (weights, centre, factor, spread), strict=True):
        if array.shape != (expected,):
            raise ValueError(f"{name} has {array.size} numbers, and {columns.size} columns need {expected}")
    n, residual_sum, low, high = spread.tolist()
    chosen = tuple(int(j) for j in columns)
    return LinearCost(
        chosen, weights, centre, factor.reshape(size, size), int(n), residual_sum, Limits(low, high), meta
    )


def check_costs(features: Floats, log_cost: Floats) -> tuple[Floats, Floats]:
    """Return both as float arrays, (n, d) and (n,); raise ValueError if they do not fit or are not finite."""
    features, log_cost = np.asarray(features, dtype=np.float64), np.asarray(log_cost, dtype=np.float64)
    if features.ndim != 2 or log_cost.shape != (features.shape[0],) or log_cost.size == 0:
        raise ValueError(f"features {features.shape} and log_cost {log_cost.shape} must be (n, d) and (n,), n >= 1.")
    if not (np.all(np.isfinite(features)) and np.all(np.isfinite(log_cost))):
        raise ValueError("features or log_cost hold NaN or infinity: take logs with log_costs(), which replaces zeros.")
    return features, log_cost
