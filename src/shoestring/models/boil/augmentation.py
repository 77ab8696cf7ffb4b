"""Add prefixes of a learning curve to the model, at the times at which the model is least certain.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, section 3.3,
eq. 6 and algorithm 1, line 5. A variance does not depend on scores, so points are selected first and scored afterwards.

    paper     here                  meaning                                                        unit
    x         x                     hyperparameters of the trial that was just trained, in [0,1]^d —
    t         trained_steps         length of its training                                         steps
    t'        grid                  lengths of prefixes of its curve, as times in [0, 1]           —
    M         max_points            at most floor(t~ M) points are added for a trial               points
    delta     max_log_condition     stop before the natural log of cond(A) exceeds this            nats

Differences from the paper:
- t' is one of a grid of whole steps, not a continuum.
- The number of points decreases with the length of the training, as in the authors' programs (not with `printed=True`).
- A time whose variance is below the noise variance + 1e-3 is not added (with `floor="none"` it is). Variances are those of
  standardised scores. The authors' programs compare the standard deviation with that sum (`floor="std"`), and then hardly any
  time is left out: a time observed k times with noise variance s has a variance of about s / k. It falls below (s + 1e-3)^2 only
  with 200 points at one time, at the default s = 5e-4.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator
from scipy.linalg import blas, eigvalsh, lapack

from shoestring.core.deciding.reproducible import find_best, reaches
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.gp.posterior import GP

Floor = Literal["variance", "std", "none"]
Stop = Literal["condition", "count", "variance", "repeat"]
_ABOVE_NOISE = 1e-3  # as in the authors' programs
_GRID_SIZE = 50  # at most this many lengths of prefixes of a curve are compared
_MAX_EXACT_POINTS = 250  # up to here a condition number is computed from all eigenvalues
_POWER_ITERATIONS = 12  # above that, it is estimated


@dataclass(frozen=True, slots=True)
class SelectedTimes:
    """Selected times in the order of selection, and the reason to stop."""

    picked: Indices  # (m,): their indices in the grid
    times: Floats  # (m,): in [0, 1]
    variances: Floats  # (m,): the variance of each time before it was added
    stop: Stop


def pick_most_uncertain(
    gp: GP,
    x: Floats,
    grid: Floats,
    *,
    max_points: int,
    max_log_condition: float,
    floor: Floor | float = "variance",
) -> SelectedTimes:
    """Select times of `grid` one after the other, each where the variance is largest given those before (eq. 6).

    `max_points` is the limit for this curve, see `count_allowed_points`. `floor` says whether the variance or the standard
    deviation must reach the noise variance + 1e-3, or "none" of them; a number is a lower limit for the variance itself.
    """
    least = floor if not isinstance(floor, str) else find_least_variance(float(np.exp(gp.theta[-1])), floor)

    def largest(variances: Floats, picked: list[int]) -> int | Stop:
        j = find_best(variances, "highest")
        if not reaches(variances[j], least):
            return "variance"
        return "repeat" if j in picked else j

    return _augment(gp, x, grid, largest, max_points, max_log_condition)


def find_least_variance(noise_variance: float, floor: Floor) -> float:
    """Return the variance that a time must reach to be added."""
    if floor == "none":
        return 0.0
    least = noise_variance + _ABOVE_NOISE
    return least if floor == "variance" else least**2


def pick_random_times(
    gp: GP,
    x: Floats,
    grid: Floats,
    rng: Generator,
    *,
    max_points: int,
    max_log_condition: float,
) -> SelectedTimes:
    """Select times in random order, within the same limits: an ablation."""
    order = rng.permutation(len(grid))
    return _augment(gp, x, grid, lambda _, picked: int(order[len(picked)]), max_points, max_log_condition)


def pick_full_curve(gp: GP, x: Floats, grid: Floats) -> SelectedTimes:
    """Select the whole grid, whatever the condition number becomes: an ablation."""
    return _augment(gp, x, grid, lambda _, picked: len(picked), len(grid), np.inf)


def _augment(
    gp: GP,
    x: Floats,
    grid: Floats,
    choose: Callable[[Floats, list[int]], int | Stop],
    max_points: int,
    max_log_condition: float,
) -> SelectedTimes:
    """Select times until a limit is reached. Each costs O(n g), a row of L^-1 K for all g candidates, without a factorisation.

    A candidate would add its column of L^-1 K as a new row of the factor, so that row is known already. The variances of
    all candidates decrease by the square of the row that the selected one adds.
    """
    theta, n, limit = gp.theta[:-1], len(gp.x), min(max_points, len(grid))
    noise = float(np.exp(gp.theta[-1])) + gp.jitter
    candidates = np.column_stack([np.tile(x, (len(grid), 1)), grid])  # (g, d + 1)
    covariance = gp.kernel.matrix(theta, candidates, candidates)  # (g, g)
    rows = np.zeros((n + limit, len(grid)))  # L^-1 K of stored and selected points, for all candidates
    rows[:n] = lapack.dtrtrs(gp.factor, gp.kernel.matrix(theta, gp.x, candidates), lower=1)[0]
    variances = covariance.diagonal() - np.einsum("ij,ij->j", rows[:n], rows[:n])  # (g,)
    picked: list[int] = []
    before: list[float] = []
    stop: Stop = "count"
    while len(picked) < limit:
        if _exceeds(gp, candidates[picked], max_log_condition):
            stop = "condition"
            break
        j = choose(variances, picked)
        if isinstance(j, str):
            stop = j
            break
        known = n + len(picked)
        rows[known] = (covariance[j] - rows[:known, j] @ rows[:known]) / np.sqrt(variances[j] + noise)
        picked.append(j)
        before.append(float(variances[j]))
        variances = np.maximum(variances - rows[known] ** 2, 0.0)
    return SelectedTimes(np.array(picked, dtype=np.intp), grid[picked], np.array(before), stop)


def log_condition(gp: GP, more: Floats) -> float:
    """Return ln of the largest over the smallest eigenvalue of A = K + noise I, for the stored points and `more`."""
    z = np.concatenate([gp.x, more])
    noise = float(np.exp(gp.theta[-1])) + gp.jitter
    eigenvalues = eigvalsh(gp.kernel.matrix(gp.theta[:-1], z, z))
    # K has no negative eigenvalue, but rounding can make a zero negative: the condition would be huge or negative.
    return float(np.log((eigenvalues[-1] + noise) / (max(eigenvalues[0], 0.0) + noise)))


def estimate_log_condition(gp: GP) -> float:
    """Return ln cond(A) of the stored points, for reports. With many points it is an estimate, at most 0.2 too low, in O(n^2).

    The estimate uses power iterations with A = L L' and with its inverse. No entry of A is negative, so a start vector of ones is
    close to the eigenvector of the largest eigenvalue. Many eigenvalues are close to the smallest, which is the noise, and
    each of them gives nearly the same number.
    """
    if len(gp.x) <= _MAX_EXACT_POINTS:
        return log_condition(gp, gp.x[:0])
    largest = smallest = np.ones(len(gp.x)) / np.sqrt(len(gp.x))
    smallest = smallest * np.resize([1.0, -1.0], len(gp.x))
    for _ in range(_POWER_ITERATIONS):
        half = blas.dtrmv(gp.factor, largest, lower=1, trans=1)  # v' A v = |L' v|^2 for a unit v
        top = float(half @ half)
        largest = blas.dtrmv(gp.factor, half, lower=1)
        largest /= np.linalg.norm(largest)
        smallest = lapack.dpotrs(gp.factor, smallest, lower=1)[0]
        smallest /= np.linalg.norm(smallest)
    half = blas.dtrmv(gp.factor, smallest, lower=1, trans=1)
    return float(np.log(top / (half @ half)))


def _exceeds(gp: GP, more: Floats, limit: float) -> bool:
    """Return whether ln cond(A) > limit; eigenvalues, O(n^3), are computed only where the answer depends on them.

    No entry of K is negative or above s^2, so its largest eigenvalue is at most n s^2 (its largest row sum), and the
    smallest is at least 0: cond(A) <= 1 + n s^2 / noise. With s^2 = 1 and a noise of 5e-4, no set of fewer than
    240,000 points can exceed e^20.
    """
    noise = float(np.exp(gp.theta[-1])) + gp.jitter
    if np.log1p((len(gp.x) + len(more)) * np.exp(gp.theta[0]) / noise) <= limit:
        return False
    return not reaches(limit, log_condition(gp, more))


def count_allowed_points(time: float, max_points: int) -> int:
    """Return floor(t~ M): a short curve has little information, and no single curve may fill the matrix."""
    return int(np.floor(time * max_points + 1e-9))  # 0.29 * 100 is 28.999999999999996


def step_grid(min_steps: int, trained_steps: int) -> Indices:
    """Return the lengths of prefixes to choose from, in whole steps below `trained_steps`, which is a point already."""
    steps = np.unique(np.rint(np.linspace(min_steps, trained_steps, _GRID_SIZE)).astype(np.intp))
    return steps[steps < trained_steps]
