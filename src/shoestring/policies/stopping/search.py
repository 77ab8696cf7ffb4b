"""Where to look next by an upper confidence bound: a surrogate of the loss of a config after so much training.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting", arXiv:0912.3995, with the length
of training as a further input as in Dai, Yu, Low and Jaillet, "Bayesian Optimization Meets Bayesian Optimal Stopping",
ICML 2019 (PMLR 97), section 2 and appendix C; the bound is always taken at full training.

    paper    here         meaning                                                                  unit
    z        —            [x, n / N]: columns of the config, and the length of training            —
    beta_t   multiplier   of the deviation; its root in the theory                                 —
    d'       dims + 1     dimensions of the space, and one for the length of training              —
    t        iteration    configs chosen by the model so far, this one included                    —

Departs from the papers:
- Losses are minimised, so the bound is a lower one. They enter as `models.loss_scaling` leaves them, and as the best so far
  at each length: that is what a study keeps of a run, and it makes curves monotone, as the theory wants them.
- The length enters as ln(1 + n) / ln(1 + N): curves change with the logarithm of training, not evenly. With n / N the first
  steps dominate the fit, length-scales of the config shrink, and the search wanders.
- A run that diverged, or failed before it said anything, counts as bad at full training.
- The kernel is a product over numbers, choices and length, one length-scale a column; its parameters have weak priors.
- In a continuous space the best of many candidates are moved uphill by L-BFGS-B; listed and small finite spaces are scored
  as a whole.
- A trial that is under way counts as if it had come out as predicted (several workers).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from shoestring.core.books import Trial
from shoestring.core.decision import Memo
from shoestring.core.encoding import Encoding, Points
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.space import Config
from shoestring.models.cost_aware.search import STARTS
from shoestring.models.gp.acquisition import ucb
from shoestring.models.gp.fit import fit_gp
from shoestring.models.gp.kernels import Block, Family, Kernel, kernel_for
from shoestring.models.gp.posterior import GP, condition
from shoestring.models.loss_scaling import Scaling, scaling
from shoestring.policies.config_table import draw_candidates as candidates
from shoestring.policies.outcomes import Table

Array = NDArray[np.float64]
_BEST = 5  # trials whose surroundings are searched
_CLIMB_STEPS = 30
_KERNEL = ("log_signal_variance", "log_lengthscales", "log_noise_variance")
KERNEL_MEMO = (*_KERNEL, "fitted_at")  # what a surrogate leaves in the memo


# what is known -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Observation:
    trial: int
    share: float  # of a full training
    loss: float  # inf: bad


def observations(
    ledger: Ledger, *, intermediate: bool, whole_only: bool, predicted: Mapping[int, float] | None = None
) -> list[Observation]:
    """What each trial says: the best loss at its last step and, if asked for, at the first step and every fifth of N.

    `whole_only`: a trial under way says nothing yet. `predicted`: losses at full training that stand in for the real ones.
    """
    marks = {1, *(math.ceil(i * ledger.max_steps / 5) for i in range(1, 5))} if intermediate else set()
    found: list[Observation] = []
    for trial in ledger.trials:
        if whole_only and trial.open_order is not None:
            continue
        best, seen = math.inf, []
        for step, loss in enumerate(trial.losses, 1):
            if loss is not None and math.isfinite(loss):
                best = min(best, loss)
                seen.append((step, best))
        at_end = (predicted or {}).get(trial.number)
        if trial.diverged or (trial.failure and not seen):
            at_end = math.inf
        for place, (step, loss) in enumerate(seen):
            is_last = place == len(seen) - 1
            if step in marks or (is_last and (at_end is None or intermediate)):
                found.append(Observation(trial.number, _share(ledger, trial, step), loss))
        if at_end is not None:
            found.append(Observation(trial.number, 1.0, at_end))
    return found


def _share(ledger: Ledger, trial: Trial, step: int) -> float:
    return 1.0 if step >= trial.limit else step / ledger.max_steps


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """A belief about the scaled loss of every config and, perhaps, every share of a full training."""

    encoding: Encoding
    gp: GP
    scale: Scaling
    max_steps: int  # 0: the length of training is no input
    memo: Mapping[str, list[float]]  # the kernel's parameters, and how many trials they were fitted to

    def inputs(self, points: Points, share: float | Array = 1.0) -> Array:
        return _inputs(self.encoding, points, share, self.max_steps)

    def predict(self, points: Points, share: float | Array = 1.0) -> tuple[Array, Array]:
        """Scaled mean and deviation of the latent loss, (m,) each."""
        mean, variance = self.gp.predict(self.inputs(points, share))
        return mean, np.sqrt(variance)

    def pretending(self, points: Iterable[Points]) -> Surrogate:
        """The belief as if these had come out, fully trained, as it predicts them."""
        gp = self.gp
        for one in points:
            x = self.inputs(one)
            gp = gp.append(x[0], float(gp.predict(x)[0][0]))
        return Surrogate(self.encoding, gp, self.scale, self.max_steps, self.memo)


def surrogate(
    ledger: Ledger,
    table: Table,
    seen: Sequence[Observation],
    *,
    lengths: bool,
    refit_every: int,
    family: Family = "matern52",
    prefix: str = "",
) -> Surrogate:
    """Fitted to these observations, one or more; parameters come from the memo until `refit_every` more trials are known.

    `prefix` begins the names in the memo, for a policy that has two surrogates.
    """
    encoding, memo = table.encoding, ledger.memo
    losses = np.array([o.loss for o in seen])
    scale = _scaling(seen)
    max_steps = ledger.max_steps if lengths else 0
    x = _inputs(encoding, table.stacked([o.trial for o in seen]), np.array([o.share for o in seen]), max_steps)
    y = scale.apply(losses)
    kernel = kernel_for(encoding, family)
    if lengths:
        kernel = Kernel((*kernel.blocks, Block(family, (encoding.n_columns,))))
    known = len({o.trial for o in seen})
    past = {key: memo[prefix + key] for key in _KERNEL if prefix + key in memo}
    fitted_at = memo.get(prefix + "fitted_at", (0.0,))[0]
    if past and known < fitted_at + refit_every:
        theta = np.array([value for key in _KERNEL for value in past[key]])
        gp = condition(kernel, theta, x, y)
    else:
        gp = fit_gp(kernel, x, y, memo=past or None, n_starts=1 if past else 2)
        fitted_at = float(known)
    told = {**gp.memo(), "fitted_at": [fitted_at]}
    return Surrogate(encoding, gp, scale, max_steps, {prefix + key: told[key] for key in told})


def _scaling(seen: Sequence[Observation]) -> Scaling:
    """One row a trial, its observations in their order: the fence looks at first losses."""
    rows: dict[int, list[float]] = {}
    for o in seen:
        rows.setdefault(o.trial, []).append(o.loss)
    losses = np.full((len(rows), max(len(row) for row in rows.values())), np.nan)
    for place, row in enumerate(rows.values()):
        losses[place, : len(row)] = row
    return scaling(losses, ~np.isnan(losses))


def length_place(share: float | Array, max_steps: int) -> Array:
    """Where on [0, 1] the kernel sees a share of a full training."""
    return np.asarray(np.log1p(max_steps * np.asarray(share)) / np.log1p(max_steps))


def _inputs(encoding: Encoding, points: Points, share: float | Array, max_steps: int) -> Array:
    features = encoding.features(points)
    if not max_steps:
        return features
    return np.column_stack([features, np.broadcast_to(length_place(share, max_steps), len(points))])


# where to look -------------------------------------------------------------------------------------------------------


def multiplier(rule: str, dims: int, iteration: int, n_points: int, failure_probability: float = 0.1) -> float:
    """Of the deviation: 0.2 d' ln(2 t) as the authors ran it, or the root of 2 ln(|D| t^2 pi^2 / (6 delta)), the theory's."""
    if rule == "practical":
        return 0.2 * (dims + 1) * math.log(2.0 * iteration)
    return math.sqrt(2.0 * math.log(n_points * iteration**2 * math.pi**2 / (6.0 * failure_probability)))


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """The point of the highest bound: a config that is new, or a trial to go on with."""

    config: Config
    trial: int | None
    point: Points  # (1,)
    mean: float  # scaled loss at full training
    std: float


def choose(
    ledger: Ledger,
    table: Table,
    belief: Surrogate,
    weight: float,
    count: int,
    rng: np.random.Generator,
    going: Sequence[int] = (),
) -> Chosen | None:
    """The best of all untried configs (and of the trials `going`) by the bound at full training; None: there are none."""
    encoding = table.encoding
    pool, rows = _untried(ledger, table, belief, count, rng)
    n_new = len(pool)
    if going:
        pool = pool.join(table.stacked(going)) if n_new else table.stacked(going)
    if not len(pool):
        return None
    mean, std = belief.predict(pool)
    score = ucb(mean, std, weight)
    if table.rows is None and n_new:
        top = np.argsort(-score[:n_new], kind="stable")[:STARTS]
        moved = _climb(belief, pool.take(top), weight)
        moved = moved.take(~table.is_tried(moved))
        if len(moved):
            moved_mean, moved_std = belief.predict(moved)
            pool = moved.join(pool)
            mean, std = np.concatenate([moved_mean, mean]), np.concatenate([moved_std, std])
            score, n_new = ucb(mean, std, weight), n_new + len(moved)
    at = int(np.argmax(score))
    trial = going[at - n_new] if at >= n_new else None
    if trial is not None:
        config: Config = ledger.trials[trial].config
    else:
        config = table.rows[rows[at]] if table.rows is not None else encoding.config(pool, at)
    return Chosen(config, trial, pool.take([at]), float(mean[at]), float(std[at]))


def _untried(
    ledger: Ledger, table: Table, belief: Surrogate, count: int, rng: np.random.Generator
) -> tuple[Points, NDArray[np.intp]]:
    """Configs to choose from, and their rows where all are listed."""
    if table.row_points is not None:
        rows = np.flatnonzero(table.unused)
        return table.row_points.take(rows), rows
    none = np.zeros(0, dtype=np.intp)
    order = np.argsort([trial.best_loss for trial in ledger.trials], kind="stable")[:_BEST]
    best = table.stacked([int(i) for i in order]).cube
    pool = candidates(table.encoding, best, count, ledger.opened.seed, rng)
    pool = pool.take(~table.is_tried(pool))
    if not len(pool):  # a huge finite space searched with a handful of candidates
        config = fresh_config(ledger)
        pool = table.encoding.points([config] if config is not None else [])
    return pool, none


def _climb(belief: Surrogate, starts: Points, weight: float) -> Points:
    """Each start moved uphill on the bound along its active continuous dimensions.

    They share no variable, so the sum of their bounds is one function whose maximum is everybody's.
    """
    encoding = belief.encoding
    free = encoding.free(starts)
    if not free.any():
        return starts

    def placed(moving: Array) -> Points:
        cube = starts.cube.copy()
        cube[free] = moving
        return Points(cube, starts.active)

    def negative_bound(moving: Array) -> tuple[float, Array]:
        mean, variance, d_mean, d_variance = belief.gp.predict_with_gradient(belief.inputs(placed(moving)))
        std = np.sqrt(variance)
        slope = weight * d_variance / (2.0 * std[:, None]) - d_mean  # (m, columns)
        gradient = np.zeros_like(starts.cube)
        gradient[:, encoding.numbers] = slope[:, : encoding.numbers.size]
        return -float(ucb(mean, std, weight).sum()), -gradient[free]

    found = minimize(
        negative_bound,
        starts.cube[free],
        jac=True,
        method="L-BFGS-B",
        bounds=np.tile((0.0, 1.0), (int(free.sum()), 1)),
        options={"maxiter": _CLIMB_STEPS, "ftol": 1e-6, "gtol": 1e-4},
    )
    return placed(found.x)


def kept(memo: Memo) -> dict[str, list[float]]:
    """The kernel's part of a memo."""
    return {key: list(memo[key]) for key in KERNEL_MEMO if key in memo}
