"""Where to look next: the config whose loss at full training could be lowest, by a confidence bound.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting", arXiv:0912.3995, on the surrogate of
`surrogate`; the bound is always taken at full training, as in Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets
Bayesian Optimal Stopping", ICML 2019 (PMLR 97), appendix C.

    paper    here         meaning                                                                  unit
    beta_t   multiplier   of the deviation; its root in the theory                                 —
    d'       dims + 1     dimensions of the space, and one for the length of training              —
    t        iteration    configs chosen by the model so far, this one included                    —
    |D|      n_points     configs to choose from                                                   —
    delta    0.1          chance that the bounds fail                                              —

Departs from the papers:
- Losses are minimised, so the bound is a lower one: mean - multiplier * std.
- In a continuous space the best of many candidates are moved down the bound by L-BFGS-B; listed and small finite spaces are
  scored as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import minimize

from shoestring.core.deciding.comparison import are_apart, compare_losses
from shoestring.core.deciding.decision import NO_WHY, Why
from shoestring.core.deciding.reproducible import PLACE_DECIMALS, find_best, settle, sort_best_first
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.encoding import Points
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats
from shoestring.policies.stopping.surrogate import Surrogate

_STARTS = 5  # candidates that are moved
_MOST_MOVES = 30
_FAILURE_PROBABILITY = 0.1


def multiplier(rule: str, dims: int, iteration: int, n_points: int) -> float:
    """Of the deviation: 0.2 d' ln(2 t) as the authors ran it, or the root of 2 ln(|D| t^2 pi^2 / (6 delta)), the theory's."""
    if rule == "practical":
        return 0.2 * (dims + 1) * math.log(2.0 * iteration)
    return math.sqrt(2.0 * math.log(n_points * iteration**2 * math.pi**2 / (6.0 * _FAILURE_PROBABILITY)))


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The point of the lowest bound: a config that is new, or a trial to go on with."""

    config: Config
    trial: int | None
    point: Points  # (1,)
    mean: float  # scaled loss at full training
    std: float
    weight: float  # multiplier of the deviation
    compared: Why = field(default_factory=lambda: NO_WHY)

    @property
    def bound(self) -> float:
        return self.mean - self.weight * self.std


def choose(
    ledger: Ledger,
    belief: Surrogate,
    weight: float,
    count: int,
    rng: np.random.Generator,
    frozen: Sequence[int] = (),
) -> Chosen | None:
    """The untried config, or trial among `frozen`, of the lowest mean - weight * std; None: there is none.

    In a continuous space `count` points are scored.
    """
    table = belief.table
    pool = table.pool(ledger, count, rng)
    points, n_new = pool.points, len(pool.points)
    if frozen:
        points = points.join(table.stack(frozen))
    if not len(points):
        return None
    mean, std = belief.predict(points)
    if table.rows is None and n_new:
        lowest = sort_best_first((mean - weight * std)[:n_new], "lowest", _STARTS)
        moved = _descend(belief, points.take(lowest), weight)
        moved = moved.take(~table.is_tried(moved))
        if len(moved):
            moved_mean, moved_std = belief.predict(moved)
            points, n_new = moved.join(points), len(moved) + n_new
            mean, std = np.concatenate([moved_mean, mean]), np.concatenate([moved_std, std])
    bounds = mean - weight * std
    at = find_best(bounds, "lowest")
    trial = frozen[at - n_new] if at >= n_new else None

    config = table.config(pool, points, at) if trial is None else ledger.trials[trial].config

    def say(i: int) -> int | Config:
        return table.config(pool, points, i) if i < n_new else frozen[i - n_new]

    name, apart = "value that the run could reach (confidence bound)", are_apart(points.cube, at)
    sign, undo = ledger.opened.sign, belief.scale.undo
    compared = compare_losses(name, bounds, at, say, rivals=apart, sign=sign, undo=undo)
    return Chosen(config, trial, points.take([at]), float(mean[at]), float(std[at]), weight, compared)


def look_at(config: Config, belief: Surrogate, weight: float) -> Chosen:
    """A new config that the user chose."""
    point = belief.table.encoding.points([config])
    mean, std = belief.predict(point)
    return Chosen(config, None, point, float(mean[0]), float(std[0]), weight)


def _descend(belief: Surrogate, starts: Points, weight: float) -> Points:
    """Each start moved down the bound along its active continuous dimensions.

    They share no variable, so the sum of their bounds is one function whose minimum is everybody's.
    """
    encoding = belief.table.encoding
    free = encoding.free(starts)
    if not free.any():
        return starts

    def move_to(places: Floats) -> Points:
        cube = starts.cube.copy()
        cube[free] = places
        return Points(cube, starts.active)

    def sum_of_bounds(places: Floats) -> tuple[float, Floats]:
        mean, variance, d_mean, d_variance = belief.gp.predict_with_gradient(belief.inputs(move_to(places)))
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
        options={"maxiter": _MOST_MOVES, "ftol": 1e-6, "gtol": 1e-4},
    )
    return move_to(np.clip(settle(found.x, PLACE_DECIMALS), 0.0, 1.0))
