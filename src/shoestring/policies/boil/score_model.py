"""The model of BOIL: a process over the scores of (config, length of training), and a plane of costs.

The process is fitted to the curves of trials and to prefixes of them (`prefixes`). Scores are computed from rewards, which are
negative losses, so larger is better. Rewards are clipped as in `models.loss_scaling`, so that one huge loss does not make all
others look equal. A trial that diverged has the worst reward at every step up to a full training, and its prefixes are added like
those of other trials: otherwise its region would stay uncertain, and attractive, at every length but the full one.

    memo                      meaning
    lengthscale_x, …, growth  see `models.boil.score_process.ProcessParameters`
    fitted_at                 trials at the last fit
    shift                     constant that makes rewards non-negative
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.boil.choice import CostPlane
from shoestring.models.boil.compression import CurveMatrix, Preference, reward_shift
from shoestring.models.boil.score_process import CurveProcess, ProcessParameters, TimeKernel, TrainingLengths, fit
from shoestring.models.gp.fit import pick_rows_to_fit
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import fit_scaling
from shoestring.policies.boil.loss_curves import LossCurve, read_loss_curves
from shoestring.policies.boil.prefixes import ModelRow, Prefixes, PrefixRule, add_prefixes, model_rows
from shoestring.policies.config_table import ConfigTable
from shoestring.policy import Ledger, Memo, Refits, Why, compare_scores, find_best

Score = Literal["compressed", "tail_mean", "log", "average", "last_mean"]
PREFERENCES: dict[Score, Preference] = {
    "compressed": "logistic",
    "tail_mean": "tail_mean",
    "log": "log",
    "average": "average",
    "last_mean": "average",  # the curve has one step then: the mean of the last values
}
FIT_POINTS = 500  # most points that parameters are fitted to, see `pick_rows_to_fit`
# Names of the lists in the memo that decisions without the model copy, too.
MODEL_MEMO = (*ProcessParameters.__dataclass_fields__, "fitted_at", "shift")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The settings of the model, as they apply to one study."""

    lengths: TrainingLengths
    score: Score
    last_steps: int
    prefix_rule: PrefixRule
    noise_variance: float
    learn_noise: bool
    time_kernel: TimeKernel
    refits: Refits


@dataclass(frozen=True, slots=True, eq=False)
class ScoreModel:
    """The fitted model, the curves it was fitted to, and the memo for the next decision."""

    gp: GP
    cost: CostPlane
    curves: Sequence[LossCurve]
    x: Floats  # (curves, d)
    trial_of: Indices  # (n,): the trial of each point of the process
    parameters: ProcessParameters
    memo: Memo

    @property
    def n_prefixes(self) -> int:
        return len(self.trial_of) - len(self.curves)

    def find_best_trial(self, among: Sequence[int]) -> int:
        """Return the trial with the best predicted score at full length, among these indices in `curves`."""
        return self.curves[among[find_best(self._predict_full_scores(among), "highest")]].trial

    def _predict_full_scores(self, among: Sequence[int]) -> Floats:
        places = list(among)
        return self.gp.predict_mean(np.column_stack([self.x[places], np.ones(len(places))]))

    def compare_best_trial(self, among: Sequence[int]) -> Why:
        """Return the comparison of the best of these trials with the others."""
        scores, name = self._predict_full_scores(among), "predicted score of a full training"
        best = find_best(scores, "highest")
        return compare_scores(name, "highest", scores, best, lambda i: self.curves[among[i]].trial)

    def assume_predicted(self, z: Floats) -> GP:
        """Return the process as if trials at these points, (m, d + 1), had ended with their predicted scores."""
        return self.gp.append_predicted(z)


def fit_score_model(
    settings: ModelSettings, ledger: Ledger, table: ConfigTable, rng: np.random.Generator
) -> ScoreModel | None:
    """Return the model of all trials that are not being trained, or None if there are none."""
    curves = read_loss_curves(ledger, settings.lengths.min_steps)
    if not curves:
        return None
    memo = ledger.memo
    if "growth" in memo:
        parameters = ProcessParameters.from_memo(memo)
    else:
        parameters = ProcessParameters(noise_variance=settings.noise_variance)
    x = table.encoding.on_simplex(table.stack([curve.trial for curve in curves]))
    prefixes = Prefixes.read(ledger)
    add_prefixes(
        prefixes,
        settings.prefix_rule,
        ledger,
        curves,
        x,
        lengths=settings.lengths,
        parameters=parameters,
        time_kernel=settings.time_kernel,
    )
    z, rows = model_rows(curves, x, prefixes, settings.lengths)
    process = _make_process(settings, curves, z, rows, memo)
    refit = settings.refits.check_fit(memo, len(curves))
    if refit.is_due:
        some = pick_rows_to_fit([row.place for row in rows], FIT_POINTS)
        few = process
        if len(some) < len(rows):
            few = _make_process(settings, curves, z[some], [rows[i] for i in some], memo)
        parameters = fit(few, parameters, rng, learn_noise=settings.learn_noise)
    return ScoreModel(
        gp=process.posterior(parameters),
        cost=_regress_costs(ledger, curves, z, rows),
        curves=curves,
        x=x,
        trial_of=np.array([curves[row.place].trial for row in rows], dtype=np.intp),
        parameters=parameters,
        memo={**parameters.to_memo(), **refit.marks, "shift": [process.shift], **prefixes.memo},
    )


def _make_process(
    settings: ModelSettings, curves: Sequence[LossCurve], z: Floats, rows: Sequence[ModelRow], memo: Memo
) -> CurveProcess:
    """Return the process over points z, (n, d + 1), with the beginning of a curve for each of them."""
    rewards = _rewards(curves, settings.lengths.max_steps)
    if settings.score == "last_mean":
        means = [float(rewards[row.place][max(0, row.steps - settings.last_steps) : row.steps].mean()) for row in rows]
        matrix, shift = CurveMatrix.of([[mean] for mean in means], 1), 0.0
    else:
        matrix = CurveMatrix.of((rewards[row.place][: row.steps] for row in rows), settings.lengths.max_steps)
        shift = _find_shift(rewards, memo)
    preference = PREFERENCES[settings.score]
    return CurveProcess(z, matrix, shift=shift, preference=preference, time_kernel=settings.time_kernel)


def _rewards(curves: Sequence[LossCurve], max_steps: int) -> list[Floats]:
    """Return the clipped rewards of each curve."""
    losses = np.full((len(curves), max_steps), math.nan)
    for row, curve in zip(losses, curves, strict=True):
        row[: curve.length] = curve.losses
    scale = fit_scaling(losses, ~np.isnan(losses))
    return [-scale.undo(scale.apply(curve.losses)) for curve in curves]


def _find_shift(rewards: Sequence[Floats], memo: Memo) -> float:
    """Return the constant that makes rewards non-negative: the previous one if that is still large enough."""
    current = memo["shift"][0] if "shift" in memo else None
    lowest, highest = min(float(r.min()) for r in rewards), max(float(r.max()) for r in rewards)
    return reward_shift(lowest, highest, current=current)


def _regress_costs(ledger: Ledger, curves: Sequence[LossCurve], z: Floats, rows: Sequence[ModelRow]) -> CostPlane:
    """Return the plane of the costs of steps that were trained; the rest of a diverged curve has no cost to learn from."""
    trained, costs = [], []
    for at, (place, steps) in enumerate(rows):
        curve = curves[place]
        if curve.steps and (steps <= curve.steps or not curve.is_bad):
            trained.append(at)
            costs.append(float(curve.costs[min(steps, curve.steps) - 1]))
    if not trained:
        price = ledger.step_price()
        return CostPlane.of(z[:1], np.array([0.0 if math.isnan(price) else price * ledger.max_steps]))
    return CostPlane.of(z[trained], np.array(costs))
