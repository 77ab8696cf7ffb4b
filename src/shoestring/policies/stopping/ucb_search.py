"""Choice of the next configuration: the lowest confidence bound of the loss at full training.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting", arXiv:0912.3995, with the surrogate
of `surrogate`. The bound is always that at full training, as in Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets
Bayesian Optimal Stopping", ICML 2019 (PMLR 97), appendix C.

    paper    here         meaning                                                                  unit
    beta_t   multiplier   factor of the standard deviation; its root in the theory                 -
    d'       dims + 1     dimensions of the space, and one for the length of training              -
    t        iteration    configurations chosen by the model so far, including this one            -
    |D|      n_points     configurations to choose from                                            -
    delta    0.1          probability that the bounds fail                                         -

Differences from the papers:
- Losses are minimised, so the bound is a lower one: mean - multiplier * std.
- In a continuous space L-BFGS-B moves the best of many candidates to lower bounds. All configurations of listed and small
  finite spaces are scored.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from shoestring.core.deciding.comparison import are_apart
from shoestring.core.deciding.reproducible import PLACE_DECIMALS
from shoestring.core.values.arrays import Floats
from shoestring.policies.stopping.surrogate import Surrogate
from shoestring.policy import (
    NO_WHY,
    Config,
    Ledger,
    Points,
    Why,
    compare_losses,
    find_best,
    round_result,
    sort_best_first,
)

_STARTS = 5  # candidates that L-BFGS-B moves
_MAX_ITERATIONS = 30  # of L-BFGS-B
_FAILURE_PROBABILITY = 0.1  # delta


def multiplier(rule: str, dims: int, iteration: int, n_points: int) -> float:
    """Return the factor of the standard deviation.

    "practical" is 0.2 d' ln(2 t), as in the authors' experiments; "theory" is the root of 2 ln(|D| t^2 pi^2 / (6 delta)).
    """
    if rule == "practical":
        return 0.2 * (dims + 1) * math.log(2.0 * iteration)
    return math.sqrt(2.0 * math.log(n_points * iteration**2 * math.pi**2 / (6.0 * _FAILURE_PROBABILITY)))


@dataclass(frozen=True, slots=True, eq=False)
class UcbChoice:
    """The point of the lowest bound: a new configuration, or a trial to continue."""

    config: Config
    trial: int | None
    point: Points  # (1,)
    mean: float  # scaled loss at full training
    std: float
    weight: float  # factor of the standard deviation
    compared: Why = field(default_factory=lambda: NO_WHY)

    @property
    def bound(self) -> float:
        return self.mean - self.weight * self.std


def choose_config(
    ledger: Ledger,
    surrogate: Surrogate,
    weight: float,
    count: int,
    rng: np.random.Generator,
    paused: Sequence[int] = (),
) -> UcbChoice | None:
    """Return the untried configuration, or the trial among `paused`, with the lowest mean - weight * std, or None.

    In a continuous space `count` points are scored.
    """
    table = surrogate.table
    pool = table.pool(ledger, count, rng)
    points, n_new = pool.points, len(pool.points)
    if paused:
        points = points.join(table.stack(paused))
    if not len(points):
        return None
    mean, std = surrogate.predict(points)
    if table.rows is None and n_new:
        lowest = sort_best_first((mean - weight * std)[:n_new], "lowest", _STARTS)
        moved = _descend(surrogate, points.take(lowest), weight)
        moved = moved.take(~table.is_tried(moved))
        if len(moved):
            moved_mean, moved_std = surrogate.predict(moved)
            points, n_new = moved.join(points), len(moved) + n_new
            mean, std = np.concatenate([moved_mean, mean]), np.concatenate([moved_std, std])
    bounds = mean - weight * std
    at = find_best(bounds, "lowest")
    trial = paused[at - n_new] if at >= n_new else None

    config = table.config(pool, points, at) if trial is None else ledger.trials[trial].config

    def identify(i: int) -> int | Config:
        return table.config(pool, points, i) if i < n_new else paused[i - n_new]

    name, apart = "value that the trial could reach (confidence bound)", are_apart(points.cube, at)
    sign, undo = ledger.definition.sign, surrogate.scale.undo
    compared = compare_losses(name, bounds, at, identify, competitors=apart, sign=sign, undo=undo)
    return UcbChoice(config, trial, points.take([at]), float(mean[at]), float(std[at]), weight, compared)


def score_config(config: Config, surrogate: Surrogate, weight: float) -> UcbChoice:
    """Return the scores of a new configuration that the user chose."""
    point = surrogate.table.encoding.points([config])
    mean, std = surrogate.predict(point)
    return UcbChoice(config, None, point, float(mean[0]), float(std[0]), weight)


def _descend(surrogate: Surrogate, starts: Points, weight: float) -> Points:
    """Return the starts, each moved to a lower bound along its active continuous dimensions.

    The starts share no variable, so minimising the sum of their bounds minimises each of them.
    """
    encoding = surrogate.table.encoding
    free = encoding.free(starts)
    if not free.any():
        return starts

    def sum_of_bounds(coordinates: Floats) -> tuple[float, Floats]:
        moved = starts.with_coordinates(free, coordinates)
        mean, variance, d_mean, d_variance = surrogate.gp.predict_with_gradient(surrogate.inputs(moved))
        std = np.sqrt(variance)
        slope = d_mean - weight * d_variance / (2.0 * std[:, None])  # (m, columns)
        gradient = np.zeros_like(starts.cube)
        gradient[:, encoding.numbers] = slope[:, : encoding.numbers.size]
        return float((mean - weight * std).sum()), gradient[free]

    found = minimize(
        sum_of_bounds,
        starts.cube[free],
        jac=True,
        method="L-BFGS-B",
        bounds=np.tile((0.0, 1.0), (int(free.sum()), 1)),
        options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-6, "gtol": 1e-4},
    )
    return starts.with_coordinates(free, np.clip(round_result(found.x, PLACE_DECIMALS), 0.0, 1.0))
