"""Compress a learning curve into one score: a weighted sum whose late steps count more, with weights learned from data.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, eq. 4 and
the derivatives below eq. 5. All curves are scored by one matrix product.

    paper    here            meaning                                                        unit
    r(u)     rewards         reward (larger is better) after step u, rows padded with 0     reward
    t        lengths         steps a curve has                                              steps
    Tmax     max_steps       longest training; the logistic's axis always spans it          steps
    v_u      axis            step u seen by the logistic: linspace(-6, 6, Tmax)[u - 1]      —
    l(u)     weights         1 / (1 + exp(-g0 (v_u - m0)))                                  —
    m0       midpoint        where the weight is one half                                   axis units
    g0       growth          slope of the weight there                                      1 / axis units
    y        scores          sum over u <= t of (r(u) + shift) l(u)                         reward
    y~       values          scores with mean 0 and population standard deviation 1         —

Departs from the paper: the logistic sees v_u, not the raw step (the reported m0 lie between -4 and 2.8: the authors do
the same); dy/dm0 and dy/dg0 are sums over the curve weighted by its rewards, and dy/dg0 carries v_u - m0 where the paper
prints -m0. Rewards below zero are lifted by one constant, since a sum of negative terms falls as training goes on and
the shortest run would look best. `tail_mean` is the score of the authors' programs (mean of r l over the late part of a
curve); `log` and `average` are the paper's ablations and have nothing to learn.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from shoestring.models.gp.posterior import standardisation

Preference = Literal["logistic", "tail_mean", "log", "average"]
LEARNABLE: tuple[Preference, ...] = ("logistic", "tail_mean")  # those that depend on midpoint and growth


class CurveMatrix:
    """Curves as rows of one zero-padded matrix that grows in place; an augmented point is a prefix with its own row."""

    def __init__(self, max_steps: int) -> None:
        if max_steps < 1:
            raise ValueError(f"max_steps={max_steps} must be at least 1: a curve has one value a step.")
        self.max_steps = max_steps
        self._rewards = np.zeros((16, max_steps))
        self._lengths = np.zeros(16, dtype=np.intp)
        self._count = 0

    @classmethod
    def of(cls, curves: Iterable[ArrayLike], max_steps: int) -> Self:
        matrix = cls(max_steps)
        for curve in curves:
            matrix.append(curve)
        return matrix

    def __len__(self) -> int:
        return self._count

    @property
    def rewards(self) -> NDArray[np.float64]:
        return self._rewards[: self._count]  # (n, max_steps)

    @property
    def lengths(self) -> NDArray[np.intp]:
        return self._lengths[: self._count]  # (n,)

    def append(self, curve: ArrayLike) -> None:
        r = np.asarray(curve, dtype=np.float64)
        if r.ndim != 1 or not 1 <= r.size <= self.max_steps:
            raise ValueError(
                f"a curve of shape {r.shape} must be a list of 1 to max_steps={self.max_steps} rewards: "
                "cut it, or make the matrix for longer runs."
            )
        if not np.isfinite(r).all():
            raise ValueError(
                f"reward {r[~np.isfinite(r)][0]} must be finite: cut a diverged curve before it, "
                "or replace the value by the worst reward there is."
            )
        if self._count == len(self._lengths):  # double, so that n appends copy O(n) rows
            self._rewards = np.concatenate([self._rewards, np.zeros_like(self._rewards)])
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        self._rewards[self._count, : r.size] = r
        self._lengths[self._count] = r.size
        self._count += 1


def reward_shift(lowest: float, highest: float, *, current: float | None = None, margin: float = 0.1) -> float:
    """The constant that makes all rewards non-negative; 0 where they are.

    `lowest` and `highest` are the rewards seen so far, or twice the lower bound where the task names one. A `current`
    shift is kept as long as it is enough: it must not move between evaluations. Once it does, compress everything anew.
    The margin (a share of the range) makes that rare.
    """
    if not (np.isfinite(lowest) and np.isfinite(highest) and lowest <= highest):
        raise ValueError(f"rewards from {lowest} to {highest} must be finite and in order: lowest first.")
    if current is not None and lowest + current >= 0.0:
        return current
    return 0.0 if lowest >= 0.0 else margin * (highest - lowest) - lowest


def preference_weights(
    max_steps: int, *, midpoint: float, growth: float, preference: Preference = "logistic"
) -> NDArray[np.float64]:
    """Weights of the steps and their derivatives: columns l, dl/dm0, dl/dg0."""  # (max_steps, 3)
    weights = np.zeros((max_steps, 3))
    match preference:
        case "logistic" | "tail_mean":
            v = np.linspace(-6.0, 6.0, max_steps)
            l = expit(growth * (v - midpoint))  # noqa: E741
            w = l * (1.0 - l)
            weights[:] = np.stack([l, -growth * w, (v - midpoint) * w], axis=1)
        case "log":
            weights[:, 0] = np.log(np.linspace(0.01, 5.0, max_steps))
        case "average":
            weights[:, 0] = 1.0
        case _:
            raise ValueError(f"preference={preference!r} is unknown: use logistic, tail_mean, log or average.")
    return weights


def compress(
    curves: CurveMatrix, *, midpoint: float, growth: float, shift: float = 0.0, preference: Preference = "logistic"
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Scores y and their derivatives with respect to (midpoint, growth)."""  # (n,), (n, 2)
    t = curves.lengths
    weights = preference_weights(curves.max_steps, midpoint=midpoint, growth=growth, preference=preference)
    rewards, first, divisor = curves.rewards, np.zeros_like(t), np.ones(len(t))
    match preference:
        case "average":
            divisor = t.astype(np.float64)
        case "tail_mean":
            # The start of the tail jumps with m0; the derivative is the one between two jumps. Clipped: below m0 = -4
            # it would be negative (and wrap around), above m0 = 8 past the end of the curve.
            first = np.clip(((midpoint + 4.0) * t / 12.0).astype(np.intp), 0, t - 1)
            divisor = (t - first).astype(np.float64)
            rewards = np.where(np.arange(curves.max_steps) >= first[:, None], rewards, 0.0)
    # The shift enters by prefix sums of the weights: the padding stays zero, and a new shift leaves the matrix alone.
    prefix = np.concatenate([np.zeros((1, 3)), np.cumsum(weights, axis=0)])  # (max_steps + 1, 3)
    sums = rewards @ weights + shift * (prefix[t] - prefix[first])  # (n, 3)
    sums /= divisor[:, None]
    return sums[:, 0], sums[:, 1:]


@dataclass(frozen=True, slots=True)
class Standardised:
    """Scores with mean 0 and standard deviation 1; scores = mean + scale * values."""

    values: NDArray[np.float64]  # (n,)
    gradient: NDArray[np.float64]  # (n, 2), with respect to (midpoint, growth)
    mean: float
    scale: float


def standardise(scores: NDArray[np.float64], gradient: NDArray[np.float64]) -> Standardised:
    """Remove mean and population standard deviation, and carry the derivatives through.

    Standardising for every (m0, g0) anew is what makes their likelihood have a maximum: on raw scores a larger m0
    shrinks all of them and the likelihood grows without end. Constant scores (a single one too) become zeros.
    """
    if scores.size == 0:
        return Standardised(scores.copy(), gradient.copy(), 0.0, 1.0)
    mean, scale = standardisation(scores)
    values = (scores - mean) / scale
    if np.mean(values**2) < 0.5:  # 1 unless there was no spread to divide by
        return Standardised(np.zeros_like(scores), np.zeros_like(gradient), mean, scale)
    slope = gradient - gradient.mean(axis=0)
    through = (slope - values[:, None] * (values @ slope / len(values))) / scale
    return Standardised(values, through, mean, scale)
