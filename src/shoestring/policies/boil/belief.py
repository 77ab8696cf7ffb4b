"""What BOIL knows: finished runs as points (config, length of training) with curves, costs, and a process over both.

The last point of a run, and prefixes of its curve that augmentation adds, are rows of the model. Which prefixes are added is
decided once, when the run is first looked at, with the parameters of that moment; so each order's memo names those that its
decision added, and all orders together name all:

    memo                                              meaning
    looked_trials, looked_steps                       runs that were looked at, and how long they were
    added_trials, added_steps                         prefixes added for them
    lengthscale_x, …, growth                          see `models.boil.process.Parameters`
    fitted_at                                         runs at the last fit
    shift                                             constant that makes rewards non-negative

Rewards are negative losses, so larger is better. They are cut at the fence of `models.loss_scaling`, so that one explosion
does not flatten the rest; a run that diverged goes on at the worst of them, and prefixes of that are added like those of others:
else its region would stay unknown, and tempting, at every length but the full one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Memo
from shoestring.core.ledger import Ledger
from shoestring.models.boil.augmentation import full_curve, most_uncertain, points_allowed, random_times, step_grid
from shoestring.models.boil.choice import LinearCost, unit_time
from shoestring.models.boil.compression import CurveMatrix, Preference, reward_shift
from shoestring.models.boil.process import JointLikelihood, Parameters, TimeKernel, fit, posterior, product_kernel
from shoestring.models.gp.posterior import GP, condition
from shoestring.models.loss_scaling import scaling
from shoestring.policies.boil.runs import Run, finished_runs, inputs
from shoestring.policies.outcomes import Table

Array = NDArray[np.float64]
Score = Literal["compressed", "tail_mean", "log", "average", "last_mean"]
Augmented = Literal["selected", "random", "full", "none"]
_KEPT = (*Parameters.__dataclass_fields__, "fitted_at", "shift")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How curves become a model."""

    score: Score
    last_steps: int
    augmentation: Augmented
    max_points: int
    max_log_condition: float
    noise_variance: float
    learn_noise: bool
    time_kernel: TimeKernel
    refit_every: int
    worst_reward: float | None
    min_steps: int
    max_steps: int

    @property
    def preference(self) -> Preference:
        """How the model compresses; the mean of last values is computed before, and then is a curve of one step."""
        return {"compressed": "logistic", "last_mean": "average"}.get(self.score, self.score)  # type: ignore[return-value]

    def time(self, steps: int) -> float:
        return unit_time(steps, self.min_steps, self.max_steps)


# augmentation --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Prefixes:
    """Lengths of prefixes that are points of the model, by trial, and runs that were looked at."""

    looked: dict[int, int]
    added: dict[int, set[int]]
    news: dict[str, list[float]]  # of this decision, for its memo

    @classmethod
    def told(cls, ledger: Ledger) -> Prefixes:
        """By the orders of this policy so far."""
        known = cls({}, {}, {"looked_trials": [], "looked_steps": [], "added_trials": [], "added_steps": []})
        for order in ledger.orders[ledger.books.memo_from :]:
            memo = order.memo
            for trial, steps in zip(memo.get("looked_trials", ()), memo.get("looked_steps", ()), strict=True):
                known._look(int(trial), int(steps))
            for trial, steps in zip(memo.get("added_trials", ()), memo.get("added_steps", ()), strict=True):
                known.added[int(trial)].add(int(steps))
        return known

    def of(self, run: Run) -> list[int]:
        return sorted(self.added.get(run.trial, ()))

    def _look(self, trial: int, steps: int) -> None:
        """A run that has gone on keeps the point where it was before."""
        before = self.looked.get(trial)
        self.added.setdefault(trial, set()).update(() if before is None else (before,))
        self.looked[trial] = steps

    def look(self, run: Run, steps: Iterable[int] = ()) -> None:
        self._look(run.trial, run.steps)
        self.news["looked_trials"].append(float(run.trial))
        self.news["looked_steps"].append(float(run.steps))
        for length in steps:
            self.added[run.trial].add(length)
            self.news["added_trials"].append(float(run.trial))
            self.news["added_steps"].append(float(length))


def augment(
    recipe: Recipe, ledger: Ledger, runs: Sequence[Run], x: Array, parameters: Parameters, prefixes: Prefixes
) -> None:
    """Look at the runs that are new or have gone on, in the order of their trials."""
    kernel, theta = product_kernel(x.shape[1], recipe.time_kernel), parameters.theta(x.shape[1])
    stored = [i for i, run in enumerate(runs) if prefixes.looked.get(run.trial) == run.steps]
    for i, run in enumerate(runs):
        if i in stored:
            continue
        stored.append(i)
        if recipe.augmentation == "none":
            prefixes.look(run)
            continue
        z = _rows(recipe, [runs[j] for j in stored], x[stored], prefixes)[0]
        gp = condition(kernel, theta, z, np.zeros(len(z)))  # variances do not depend on scores
        # What is known to the end of training counts whole: of a run that diverged, that it was bad at every later length.
        grid = step_grid(recipe.min_steps, run.length)
        grid = grid[~np.isin(grid, prefixes.of(run))]
        times = np.array([recipe.time(int(steps)) for steps in grid])
        at_most = max(0, points_allowed(recipe.time(run.length), recipe.max_points) - len(prefixes.of(run)))
        limits = {"max_points": at_most, "max_log_condition": recipe.max_log_condition}
        match recipe.augmentation:
            case "full":
                chosen = full_curve(gp, x[i], times)
            case "random":
                rng = ledger.rng("augmentation", run.trial, run.steps)
                chosen = random_times(gp, x[i], times, rng, **limits)  # type: ignore[arg-type]
            case _:
                chosen = most_uncertain(gp, x[i], times, **limits)  # type: ignore[arg-type]
        prefixes.look(run, [int(steps) for steps in grid[chosen.picked]])


def _rows(recipe: Recipe, runs: Sequence[Run], x: Array, prefixes: Prefixes) -> tuple[Array, list[tuple[int, int]]]:
    """Points z, (n, d + 1), and (place of the run, length of its prefix) of each: of every run the whole, then its prefixes."""
    rows = [(i, t) for i, run in enumerate(runs) for t in (run.length, *prefixes.of(run)) if t >= recipe.min_steps]
    z = np.column_stack([x[[i for i, _ in rows]], [recipe.time(t) for _, t in rows]])
    return z, rows


# the model -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """A process over scores of (config, length), and a regression of costs."""

    gp: GP
    cost: LinearCost
    runs: Sequence[Run]
    x: Array  # (number of runs, d)
    trial_of: NDArray[np.intp]  # (n,), of each point of the process
    parameters: Parameters
    added: int  # points beside the runs' last ones
    memo: Memo

    def leader(self, among: Sequence[int]) -> int:
        """The trial of the run, of these places in `runs`, that promises most at full length."""
        places = list(among)
        mean, _ = self.gp.predict(np.column_stack([self.x[places], np.ones(len(places))]))
        return self.runs[places[int(np.argmax(mean))]].trial

    def pretending(self, x: Array, times: Sequence[float]) -> GP:
        """The process as if these runs, (m, d), had come out as it predicts them."""
        gp = self.gp
        for z in np.column_stack([x, times]) if len(times) else ():
            gp = gp.append(z, float(gp.predict(z[None])[0][0]))
        return gp


def believe(recipe: Recipe, ledger: Ledger, table: Table, rng: np.random.Generator) -> Belief | None:
    """The model of all finished runs; None: there are none."""
    runs = finished_runs(ledger, table, recipe.min_steps)
    if not runs:
        return None
    memo = kept(ledger.memo)
    if "growth" in memo:
        parameters = Parameters.from_memo(memo)
    else:
        parameters = Parameters(noise_variance=recipe.noise_variance)
    x = inputs(table.encoding, table.stacked([run.trial for run in runs]))
    prefixes = Prefixes.told(ledger)
    augment(recipe, ledger, runs, x, parameters, prefixes)
    z, rows = _rows(recipe, runs, x, prefixes)
    rewards = _rewards(runs, recipe.max_steps)
    curves, shift = _curves(recipe, rewards, rows, memo)
    how: dict[str, Any] = {"shift": shift, "preference": recipe.preference, "time": recipe.time_kernel}
    fitted_at = memo.get("fitted_at", [0.0])[0]
    if fitted_at == 0.0 or len(runs) >= fitted_at + recipe.refit_every:
        likelihood = JointLikelihood(z, curves, **how)
        parameters = fit(likelihood, parameters, rng, learn_noise=recipe.learn_noise)
        fitted_at = float(len(runs))
    gp = posterior(parameters, z, curves, **how)
    told = {**parameters.to_memo(), "fitted_at": [fitted_at], "shift": [shift], **prefixes.news}
    trial_of = np.array([runs[i].trial for i, _ in rows], dtype=np.intp)
    cost = _cost(ledger, runs, z, rows)
    return Belief(gp, cost, runs, x, trial_of, parameters, len(rows) - len(runs), told)


def _rewards(runs: Sequence[Run], max_steps: int) -> list[Array]:
    losses = np.full((len(runs), max_steps), math.nan)
    for row, run in zip(losses, runs, strict=True):
        row[: run.length] = run.losses
    scale = scaling(losses, ~np.isnan(losses))
    return [-scale.undo(scale.apply(run.losses)) for run in runs]


def _curves(
    recipe: Recipe, rewards: Sequence[Array], rows: Sequence[tuple[int, int]], memo: Memo
) -> tuple[CurveMatrix, float]:
    if recipe.score == "last_mean":
        last = ([float(rewards[i][max(0, t - recipe.last_steps) : t].mean())] for i, t in rows)
        return CurveMatrix.of(last, 1), 0.0
    current = memo["shift"][0] if "shift" in memo else None
    if current is None and recipe.worst_reward is not None:
        current = max(0.0, -recipe.worst_reward)
    lowest, highest = min(float(r.min()) for r in rewards), max(float(r.max()) for r in rewards)
    shift = reward_shift(lowest, highest, current=current)
    return CurveMatrix.of((rewards[i][:t] for i, t in rows), recipe.max_steps), shift


def _cost(ledger: Ledger, runs: Sequence[Run], z: Array, rows: Sequence[tuple[int, int]]) -> LinearCost:
    """Of what was really trained: a run that diverged says nothing of the cost of a full training."""
    real = [place for place, (i, t) in enumerate(rows) if runs[i].steps and (t <= runs[i].steps or not runs[i].is_bad)]
    if not real:
        price = ledger.step_price()
        return LinearCost.of(z[:1], np.array([0.0 if math.isnan(price) else price * ledger.max_steps]))
    costs = [runs[i].costs[min(t, runs[i].steps) - 1] for i, t in (rows[place] for place in real)]
    return LinearCost.of(z[real], np.array(costs))


def kept(memo: Memo) -> dict[str, list[float]]:
    """What the next decision needs of a memo whatever happens in between."""
    return {name: list(memo[name]) for name in _KEPT if name in memo}
