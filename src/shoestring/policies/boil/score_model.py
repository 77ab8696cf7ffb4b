"""What BOIL believes: a process over the scores of (config, length of training), and a plane of costs.

Points of the process are runs and prefixes of their curves (`prefixes`), scores are made of rewards, which are negative
losses: larger is better. Rewards are cut at the fence of `models.loss_scaling`, so that one explosion does not flatten the
rest; a run that diverged goes on at the worst of them, and prefixes of that are added like those of others: else its region
would stay unknown, and tempting, at every length but the full one.

    memo                      meaning
    lengthscale_x, …, growth  see `models.boil.process.ProcessParameters`
    fitted_at                 runs at the last fit
    shift                     constant that makes rewards non-negative
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Memo, Why
from shoestring.core.deciding.memo import Refits
from shoestring.core.deciding.reproducible import find_best
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.boil.choice import CostPlane
from shoestring.models.boil.compression import CurveMatrix, Preference, reward_shift
from shoestring.models.boil.process import CurveProcess, ProcessParameters, RunLengths, TimeKernel, fit
from shoestring.models.gp.fit import pick_rows_to_fit
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import fit_scaling
from shoestring.policies.boil.prefixes import ModelRow, Prefixes, PrefixRule, add_prefixes, model_rows
from shoestring.policies.boil.run_curves import CurveRun, read_finished_runs
from shoestring.policies.config_table import ConfigTable

Score = Literal["compressed", "tail_mean", "log", "average", "last_mean"]
PREFERENCES: dict[Score, Preference] = {
    "compressed": "logistic",
    "tail_mean": "tail_mean",
    "log": "log",
    "average": "average",
    "last_mean": "average",  # of a curve of one step, which is the mean of the last values
}
FIT_POINTS = 500  # at most so many are fitted to, see `pick_rows_to_fit`
CARRIED = (*ProcessParameters.__dataclass_fields__, "fitted_at", "shift")  # from memo to memo, model asked or not


@dataclass(frozen=True, slots=True, kw_only=True)
class BeliefRecipe:
    """How curves become a model."""

    lengths: RunLengths
    score: Score
    last_steps: int
    prefix_rule: PrefixRule
    noise_variance: float
    learn_noise: bool
    time_kernel: TimeKernel
    refits: Refits
    worst_reward: float | None


@dataclass(frozen=True, slots=True, eq=False)
class ScoreBelief:
    """The fitted model, the runs it is made of, and what the next decision needs of it."""

    gp: GP
    cost: CostPlane
    runs: Sequence[CurveRun]
    x: Floats  # (number of runs, d)
    trial_of: Indices  # (n,), of each point of the process
    parameters: ProcessParameters
    memo: Memo

    @property
    def added(self) -> int:
        """Points beside the runs' last ones."""
        return len(self.trial_of) - len(self.runs)

    def leader(self, among: Sequence[int]) -> int:
        """The trial of the run, of these places in `runs`, that promises most at full length."""
        return self.runs[among[find_best(self._promise(among), "highest")]].trial

    def _promise(self, among: Sequence[int]) -> Floats:
        """Scores (n,) expected of these runs at full length."""
        places = list(among)
        return self.gp.predict_mean(np.column_stack([self.x[places], np.ones(len(places))]))

    def say_leader(self, among: Sequence[int]) -> Why:
        """How the leader of these compares with the others."""
        promise, name = self._promise(among), "score expected of a full training"
        leader = find_best(promise, "highest")
        return compare_scores(name, "highest", promise, leader, lambda i: self.runs[among[i]].trial)

    def pretend(self, z: Floats) -> GP:
        """The process as if runs at these points, (m, d + 1), had come out as it predicts them."""
        gp = self.gp
        for point in z:
            gp = gp.append(point, float(gp.predict(point[None])[0][0]))
        return gp


def believe(recipe: BeliefRecipe, ledger: Ledger, table: ConfigTable, rng: np.random.Generator) -> ScoreBelief | None:
    """The model of all finished runs; None: there are none."""
    runs = read_finished_runs(ledger, recipe.lengths.min_steps)
    if not runs:
        return None
    memo = ledger.memo
    if "growth" in memo:
        parameters = ProcessParameters.from_memo(memo)
    else:
        parameters = ProcessParameters(noise_variance=recipe.noise_variance)
    x = table.encoding.on_simplex(table.stack([run.trial for run in runs]))
    prefixes = Prefixes.recall(ledger)
    add_prefixes(
        prefixes,
        recipe.prefix_rule,
        ledger,
        runs,
        x,
        lengths=recipe.lengths,
        parameters=parameters,
        time_kernel=recipe.time_kernel,
    )
    z, rows = model_rows(runs, x, prefixes, recipe.lengths)
    process = _gather_curves(recipe, runs, z, rows, memo)
    refit = recipe.refits.check_due(memo, len(runs))
    if refit.is_due:
        some = pick_rows_to_fit([row.place for row in rows], FIT_POINTS)
        few = process
        if len(some) < len(rows):
            few = _gather_curves(recipe, runs, z[some], [rows[i] for i in some], memo)
        parameters = fit(few, parameters, rng, learn_noise=recipe.learn_noise)
    return ScoreBelief(
        gp=process.posterior(parameters),
        cost=_regress_costs(ledger, runs, z, rows),
        runs=runs,
        x=x,
        trial_of=np.array([runs[row.place].trial for row in rows], dtype=np.intp),
        parameters=parameters,
        memo={**parameters.to_memo(), **refit.marks, "shift": [process.shift], **prefixes.memo},
    )


def _gather_curves(
    recipe: BeliefRecipe, runs: Sequence[CurveRun], z: Floats, rows: Sequence[ModelRow], memo: Memo
) -> CurveProcess:
    rewards = _rewards(runs, recipe.lengths.max_steps)
    if recipe.score == "last_mean":
        means = [float(rewards[row.place][max(0, row.steps - recipe.last_steps) : row.steps].mean()) for row in rows]
        curves, shift = CurveMatrix.of([[mean] for mean in means], 1), 0.0
    else:
        curves = CurveMatrix.of((rewards[row.place][: row.steps] for row in rows), recipe.lengths.max_steps)
        shift = _lift(recipe, rewards, memo)
    preference = PREFERENCES[recipe.score]
    return CurveProcess(z, curves, shift=shift, preference=preference, time_kernel=recipe.time_kernel)


def _rewards(runs: Sequence[CurveRun], max_steps: int) -> list[Floats]:
    """The curve of each run, fenced."""
    losses = np.full((len(runs), max_steps), math.nan)
    for row, run in zip(losses, runs, strict=True):
        row[: run.length] = run.losses
    scale = fit_scaling(losses, ~np.isnan(losses))
    return [-scale.undo(scale.apply(run.losses)) for run in runs]


def _lift(recipe: BeliefRecipe, rewards: Sequence[Floats], memo: Memo) -> float:
    """The constant that makes rewards non-negative: that of before, or of the worst reward there can be, if it still does."""
    current = None
    if "shift" in memo:
        current = memo["shift"][0]
    elif recipe.worst_reward is not None:
        current = max(0.0, -recipe.worst_reward)
    lowest, highest = min(float(r.min()) for r in rewards), max(float(r.max()) for r in rewards)
    return reward_shift(lowest, highest, current=current)


def _regress_costs(ledger: Ledger, runs: Sequence[CurveRun], z: Floats, rows: Sequence[ModelRow]) -> CostPlane:
    """Of what was really trained: a run that diverged says nothing of the cost of a full training."""
    real, costs = [], []
    for at, (place, steps) in enumerate(rows):
        run = runs[place]
        if run.steps and (steps <= run.steps or not run.is_bad):
            real.append(at)
            costs.append(float(run.costs[min(steps, run.steps) - 1]))
    if not real:
        price = ledger.step_price()
        return CostPlane.of(z[:1], np.array([0.0 if math.isnan(price) else price * ledger.max_steps]))
    return CostPlane.of(z[real], np.array(costs))
