"""BOIL: choose a configuration and how long to train it by the predicted score of its whole learning curve, and by its cost.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, algorithm 1. Each
curve is compressed into one score through a logistic weight that is learned (`models.boil.compression`). One process models
scores and lengths (`models.boil.score_process`). It is also fitted to the prefixes of a curve at which it is least certain
(`models.boil.augmentation`). The next trial maximises log EI - log cost (`models.boil.choice`).

    paper       here                meaning                                                            unit
    Tmin        min_steps           shortest training; None: a fifth of a full training, printed 2/5   steps
    Tmax        max_steps           a full training                                                    steps
    M           max_points          prefixes added for a full training, fewer for shorter ones         points
    delta       max_log_condition   ln cond of the covariance above which nothing is added             nats
    alpha/mu_c  rule                how improvement and cost are combined: "log_ratio" or, as printed, "softplus"  —
    —           floor               "variance" or "std": what must reach the noise variance + 1e-3 at an added prefix; "none"  —
    sy^2        noise_variance      variance of the noise of a standardised score                      —
    m0, g0      midpoint, growth    parameters of the logistic; they are fitted and shown in `why`     —
    —           initial_trials      configs trained in full before the model is used                   trials
    —           printed             the method as printed                                              —

`why` of a chosen trial: predicted_score and std (at its length), ei, predicted_cost, midpoint, growth, added (prefixes in the
model), points (all points of the model), log_condition, best_run (the trial that would be recommended). The paper's baselines are
settings:

    bo          lengths="full", augmentation="none", score="last_mean"     EI on the mean of the last values, no cost
    bo_l        lengths="full", augmentation="none"                        EI on compressed curves, no cost
    cm_tf_bo    augmentation="none"                                        config and length, one point per trial

The default is a mixture that neither source used: the paper's sum of weighted rewards with the log ratio of the authors'
programs. The form of each source is a setting, too:

    as printed  printed=True: rule="softplus", learn_noise=True, floor="none", shortest training 2/5, M for every length
    programs    score="tail_mean", min_steps=0.4 Tmax, max_points=10, max_log_condition=15, floor="std"

Differences from the paper:
- The cost that the recommended trial (largest posterior mean at full length) needs for the rest of its training is reserved:
  it is continued before an order that would use up that reserve. The paper trains it again from the start, beyond its budget.
- A config is trained in one trial, and the search considers configs that were not tried yet. When there are none left,
  unfinished trials are continued, the one with the best predicted score first.
- A fit is due every `refit_every` trials, by default 3 d, and once after the initial design.
- In budgets of time and money the initial design ends with a third of the budget, once two trials are complete (not with
  `printed=True`).
- Prefixes cost what their steps took. The paper uses the regression, and the authors' programs multiply by t~, which is
  zero at Tmin.
- Options of a choice are corners of a simplex, at distance 1.
- With more than 500 points, parameters are fitted to trials spread over the study; at most 1000 prefixes are added for all trials
  together; the search also starts from the place of the largest mean.
- With several workers, a trial that is being trained counts as if it had ended as predicted.
- A trial that the budget limit interrupted is finished first when the budget is raised.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from shoestring.core.deciding.memo import pick
from shoestring.core.deciding.policy import ALL_TRIED, QUEUED_OR_INTERRUPTED_LABELS
from shoestring.core.deciding.printed_form import as_printed
from shoestring.core.deciding.why_text import describe_phase
from shoestring.errors import PolicyError
from shoestring.models.boil.augmentation import Floor, estimate_log_condition
from shoestring.models.boil.choice import Rule
from shoestring.models.boil.score_process import TimeKernel, TrainingLengths
from shoestring.policies.boil.next_trial import NextTrial, TrialSearch
from shoestring.policies.boil.prefixes import Augmentation, PrefixRule
from shoestring.policies.boil.score_model import MODEL_MEMO, ModelSettings, Score, ScoreModel, fit_score_model
from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policy import (
    Decision,
    Labels,
    Ledger,
    Memo,
    Order,
    Refits,
    Train,
    Trial,
    WhyText,
    continue_trial,
    find_untried_config,
    is_in_design,
    nothing_to_train,
    reaches,
    require_between,
    require_one_of,
    require_whole,
    start_trial,
)

_PHASES = {
    "initial design": "part of the initial design",
    "recommended": "the recommended trial is trained to its end",
}
# Shortest trainings in a full one. In the paper 30 of 150 epochs for its networks, and 300 of 800, 200 of 500 and 700 of 1500
# episodes for its agents.
_FULL_PER_SHORTEST = 5
_FULL_PER_SHORTEST_PRINTED = 2.5


@as_printed(rule="softplus", learn_noise=True, floor="none")
@dataclass(frozen=True, slots=True, kw_only=True)
class BOIL:
    name: ClassVar[str] = "boil"
    why_labels: ClassVar[Labels] = {
        **QUEUED_OR_INTERRUPTED_LABELS,
        "added": "points added from prefixes of curves (points)",
        "best_run": "trial with the best predicted score (trial)",
        "ei": "expected improvement (score)",
        "growth": "growth of the logistic weight",
        "log_condition": "condition number of the covariance (ln)",
        "midpoint": "midpoint of the logistic weight",
        "points": "points in the model (points)",
        "predicted_cost": "predicted cost ({unit})",
        "predicted_score": "predicted score of the curve (score)",
        "std": "standard deviation of the predicted score (score)",
    }
    score: Score = "compressed"
    augmentation: Augmentation = "selected"
    lengths: Literal["chosen", "full"] = "chosen"
    min_steps: int | None = None
    initial_trials: int = 3
    last_steps: int = 10
    max_points: int = 15
    max_log_condition: float = 20.0
    rule: Rule = "log_ratio"
    floor: Floor = "variance"
    noise_variance: float = 5e-4
    learn_noise: bool = False
    time_kernel: TimeKernel = "se"
    refit_every: int | None = None
    candidates: int = 2000
    printed: bool = False

    def __post_init__(self) -> None:
        require_one_of(self, "score", get_args(Score))
        require_one_of(self, "augmentation", get_args(Augmentation))
        require_one_of(self, "lengths", ("chosen", "full"))
        require_one_of(self, "rule", get_args(Rule))
        require_one_of(self, "floor", get_args(Floor))
        require_one_of(self, "time_kernel", get_args(TimeKernel))
        require_one_of(self, "learn_noise", (True, False))
        remedy = "Leave it out for a fifth of a full training."
        require_whole(self, "min_steps", 1, "a training has at least one step", remedy, optional=True)
        require_whole(
            self, "refit_every", 1, "the model is fitted at most once per trial", "Leave it out for 3 d.", optional=True
        )
        require_whole(self, "initial_trials", 1, "a model needs at least one trial", "Try 3.")
        require_whole(self, "last_steps", 1, "it is a number of values to average", "Try 10.")
        require_whole(self, "max_points", 0, "it is a number of points", "Try 15.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_between(self, "max_log_condition", 0.0, math.inf, "a condition number is at least 1", "Try 20.")
        require_between(self, "noise_variance", 1e-12, 1.0, "scores have variance 1 and some noise", "Try 0.0005.")
        if self.lengths == "full" and self.augmentation != "none":
            raise PolicyError(
                f"boil(lengths='full', augmentation={self.augmentation!r}) cannot learn from shorter prefixes: with one "
                "length there is no time to model. Set augmentation='none'."
            )

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        memo, full = pick(ledger.memo, MODEL_MEMO), ledger.max_steps
        if ledger.queue:
            return start_trial(ledger, ledger.queue[0], full, why={"phase": "queued"}, memo=_aim(memo, full))
        if (interrupted := _find_interrupted(ledger)) is not None:
            trial, goal = interrupted
            return continue_trial(trial, goal, why={"phase": "interrupted", "at": trial.steps}, memo=_aim(memo, goal))
        table = ledger.view(ConfigsView())
        in_design = is_in_design(ledger, self.initial_trials, whole=self.printed)
        model = None if in_design else fit_score_model(self.model_settings(ledger), ledger, table, rng)
        if model is not None:
            return self._decide_by_model(ledger, table, model, rng)
        config = find_untried_config(ledger)
        if config is None:
            return nothing_to_train(ledger, ALL_TRIED)
        return start_trial(ledger, config, full, why={"phase": "initial design"}, memo=_aim(memo, full))

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        return WhyText(clauses=describe_phase(order.why, _PHASES))

    def model_settings(self, ledger: Ledger) -> ModelSettings:
        """Return the settings of the model as they apply to this study."""
        shortest = self.min_steps
        if shortest is None:
            shortest = math.ceil(
                ledger.max_steps / (_FULL_PER_SHORTEST_PRINTED if self.printed else _FULL_PER_SHORTEST)
            )
        shortest = ledger.max_steps if self.lengths == "full" else min(shortest, ledger.max_steps)
        return ModelSettings(
            lengths=TrainingLengths(shortest, ledger.max_steps),
            score=self.score,
            last_steps=self.last_steps,
            prefix_rule=PrefixRule(
                augmentation=self.augmentation,
                max_points=self.max_points,
                max_log_condition=self.max_log_condition,
                floor=self.floor,
                in_proportion=not self.printed,
            ),
            noise_variance=self.noise_variance,
            learn_noise=self.learn_noise,
            time_kernel=self.time_kernel,
            refits=Refits(every=self.refit_every or 3 * max(1, ledger.space.dims)),
        )

    def _decide_by_model(
        self, ledger: Ledger, table: ConfigTable, model: ScoreModel, rng: np.random.Generator
    ) -> Decision:
        search = TrialSearch(ledger, table, self.model_settings(ledger).lengths, model, rng, self.candidates, self.rule)
        found = search.find()
        good = _find_good_trials(model)
        if found is None:
            unfinished = [place for place in good if not ledger.trials[model.curves[place].trial].is_ended]
            return _finish(ledger, model, unfinished) if unfinished else nothing_to_train(ledger, ALL_TRIED)
        recommended = ledger.trials[model.find_best_trial(good)] if good else None
        if recommended is not None and not recommended.is_ended:
            cost_to_end = ledger.step_price(recommended.number) * (recommended.limit - recommended.resumable_step)
            affordable_later = reaches(ledger.left, cost_to_end + found.cost, spread=cost_to_end + found.cost)
            if cost_to_end <= ledger.left and not affordable_later:  # affordable before the found trial, not after it
                return _finish(ledger, model, good)
        return _start(ledger, found, model)


def _find_good_trials(model: ScoreModel) -> list[int]:
    """Return the indices of the trials that neither diverged nor failed."""
    return [place for place, curve in enumerate(model.curves) if not curve.is_bad]


def _find_interrupted(ledger: Ledger) -> tuple[Trial, int] | None:
    """Return a trial that ended before the step that this policy ordered, and that step."""
    goals = {
        order.trial: order.memo["goal"]
        for order in ledger.orders[ledger.state.first_own_order :]
        if "goal" in order.memo
    }
    for number, goal in goals.items():
        trial = ledger.trials[number]
        until = min(int(goal[0]), trial.limit)
        if trial.can_continue and trial.steps < until:
            return trial, until
    return None


def _finish(ledger: Ledger, model: ScoreModel, among: Sequence[int]) -> Train:
    """Return the order that trains the trial with the best predicted score at full length, among these indices, to its end."""
    trial = ledger.trials[model.find_best_trial(among)]
    why = {**_describe(model), **model.compare_best_trial(among), "phase": "recommended", "at": trial.steps}
    return continue_trial(trial, trial.limit, why=why, memo=_aim(model.memo, trial.limit))


def _start(ledger: Ledger, found: NextTrial, model: ScoreModel) -> Train:
    why = {
        **_describe(model),
        **found.comparison,
        "phase": "chosen",
        "predicted_score": found.prediction.score,
        "std": found.prediction.std,
        "ei": math.exp(found.prediction.log_ei),
        "predicted_cost": found.cost,
    }
    order = start_trial(ledger, found.config, found.until, why=why, memo=_aim(model.memo, found.until))
    # The core knows the exact cost in epochs. Where the plane of costs is below zero, the core's own estimate is better.
    is_better = ledger.budget.unit != "epochs" and found.cost > 0.0
    return replace(order, expected_cost=found.cost) if is_better else order


def _aim(memo: Memo, goal: int) -> Memo:
    """Return the memo of an order up to `goal`. Later decisions use it to find trials that the budget limit interrupted."""
    return {**memo, "goal": [float(goal)]}


def _describe(model: ScoreModel) -> dict[str, str | float | bool]:
    return {
        "best_run": model.find_best_trial(_find_good_trials(model) or range(len(model.curves))),
        "midpoint": model.parameters.midpoint,
        "growth": model.parameters.growth,
        "added": model.n_prefixes,
        "points": len(model.gp.x),
        "log_condition": estimate_log_condition(model.gp),
    }
