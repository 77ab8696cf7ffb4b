"""Compress a learning curve into one score: a weighted sum whose late steps count more, with weights learned from data.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eq. 4 and
the derivatives below eq. 5. All curves are scored by one matrix product.

    paper    here            meaning                                                        unit
    r(u)     rewards         reward (larger is better) after step u, rows padded with 0     reward
    t        lengths         steps of a curve                                               steps
    Tmax     max_steps       longest training; the logistic's axis always spans it          steps
    v_u      v               step u on the logistic's axis: linspace(-6, 6, Tmax)[u - 1]    —
    l(u)     weights         1 / (1 + exp(-g0 (v_u - m0)))                                  —
    m0       midpoint        where the weight is one half                                   axis units
    g0       growth          slope of the weight there                                      1 / axis units
    y        scores          sum over u <= t of (r(u) + shift) l(u)                         reward
    y~       values          scores with mean 0 and population standard deviation 1         —

Differences from the paper:
- The logistic is a function of v_u, not of the raw step. The reported m0 lie between -4 and 2.8, so the authors do the same.
- dy/dm0 and dy/dg0 are sums over the curve weighted by its rewards, and dy/dg0 contains v_u - m0 where the paper prints -m0.
- One constant is added to rewards below zero: a sum of negative terms decreases with the length of training, so the shortest
  curve would look best.
- `tail_mean` is the score of the authors' programs: the mean of r l over the late part of a curve. `log` and `average` are
  the paper's ablations; they have no parameters to learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.gp.posterior import standardisation

Preference = Literal["logistic", "tail_mean", "log", "average"]
LEARNABLE: tuple[Preference, ...] = ("logistic", "tail_mean")  # these depend on midpoint and growth
# Margin below the lowest reward, as a share of the range of rewards: a slightly lower reward does not change the shift.
_MARGIN = 0.1


@dataclass(frozen=True, slots=True, eq=False)
class CurveMatrix:
    """Curves as rows of one zero-padded matrix; a prefix of a curve that is a point of its own has its own row."""

    rewards: Floats  # (n, max_steps)
    lengths: Indices  # (n,)

    @classmethod
    def of(cls, curves: Iterable[ArrayLike], max_steps: int) -> Self:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} must be at least 1: a curve has one value per step.")
        rows = [np.asarray(curve, dtype=np.float64) for curve in curves]
        rewards = np.zeros((len(rows), max_steps))
        for padded, row in zip(rewards, rows, strict=True):
            _check_curve(row, max_steps)
            padded[: row.size] = row
        return cls(rewards, np.array([row.size for row in rows], dtype=np.intp))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def max_steps(self) -> int:
        return int(self.rewards.shape[1])


def _check_curve(curve: Floats, max_steps: int) -> None:
    if curve.ndim != 1 or not 1 <= curve.size <= max_steps:
        raise ValueError(
            f"a curve of shape {curve.shape} must be a list of 1 to max_steps={max_steps} rewards: "
            "cut it, or make the matrix for longer curves."
        )
    if not np.isfinite(curve).all():
        raise ValueError(
            f"reward {curve[~np.isfinite(curve)][0]} must be finite: cut a diverged curve before it, "
            "or replace the value by the worst reward there is."
        )


def reward_shift(lowest: float, highest: float, *, current: float | None = None) -> float:
    """Return the constant that makes all rewards non-negative, given the lowest and the highest so far; 0 if they already are.

    A `current` shift stays as long as it is large enough, since every score changes with it; the margin makes changes rare.
    """
    if not (np.isfinite(lowest) and np.isfinite(highest) and lowest <= highest):
        raise ValueError(f"rewards from {lowest} to {highest} must be finite and in order: lowest first.")
    if current is not None and lowest + current >= 0.0:
        return current
    return 0.0 if lowest >= 0.0 else _MARGIN * (highest - lowest) - lowest


def preference_weights(
    max_steps: int, *, midpoint: float, growth: float, preference: Preference = "logistic"
) -> Floats:
    """Return the weights of the steps and their derivatives, (max_steps, 3): columns l, dl/dm0, dl/dg0."""
    weights = np.zeros((max_steps, 3))
    match preference:
        case "logistic" | "tail_mean":
            v = np.linspace(-6.0, 6.0, max_steps)
            weight = expit(growth * (v - midpoint))
            slope = weight * (1.0 - weight)
            weights[:] = np.stack([weight, -growth * slope, (v - midpoint) * slope], axis=1)
        case "log":
            weights[:, 0] = np.log(np.linspace(0.01, 5.0, max_steps))
        case "average":
            weights[:, 0] = 1.0
        case _:
            raise ValueError(f"preference={preference!r} is unknown: use logistic, tail_mean, log or average.")
    return weights


def compress(
    curves: CurveMatrix, *, midpoint: float, growth: float, shift: float = 0.0, preference: Preference = "logistic"
) -> tuple[Floats, Floats]:
    """Return the scores y, (n,), and their derivatives with respect to midpoint and growth, (n, 2)."""
    t = curves.lengths
    weights = preference_weights(curves.max_steps, midpoint=midpoint, growth=growth, preference=preference)
    rewards, first, divisor = curves.rewards, np.zeros_like(t), np.ones(len(t))
    match preference:
        case "average":
            divisor = t.astype(np.float64)
        case "tail_mean":
            # The start of the tail is a step function of m0; the derivative is that between two steps. The start is clipped:
            # below m0 = -4 it would be negative (and index from the end), above m0 = 8 beyond the end of the curve.
            first = np.clip(((midpoint + 4.0) * t / 12.0).astype(np.intp), 0, t - 1)
            divisor = (t - first).astype(np.float64)
            rewards = np.where(np.arange(curves.max_steps) >= first[:, None], rewards, 0.0)
    # The shift enters through prefix sums of the weights, so the padding stays zero and the matrix does not depend on it.
    prefix = np.concatenate([np.zeros((1, 3)), np.cumsum(weights, axis=0)])  # (max_steps + 1, 3)
    sums = rewards @ weights + shift * (prefix[t] - prefix[first])  # (n, 3)
    sums /= divisor[:, None]
    return sums[:, 0], sums[:, 1:]


def standardise(scores: Floats, gradient: Floats) -> tuple[Floats, Floats]:
    """Return the scores with mean 0 and population standard deviation 1, (n,), and their derivatives, (n, 2)."""
    # Scores are standardised for every (m0, g0), otherwise their likelihood would have no maximum: on raw scores a larger m0
    # shrinks all of them, and the likelihood grows without bound.
    mean, scale = standardisation(scores)
    values = (scores - mean) / scale
    if np.mean(values**2) < 0.5:  # it is 1 unless the scores have no spread, such as a single score
        return np.zeros_like(scores), np.zeros_like(gradient)
    slope = gradient - gradient.mean(axis=0)
    return values, (slope - values[:, None] * (values @ slope / len(values))) / scale
