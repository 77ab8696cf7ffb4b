"""Base class of the policies that choose configurations by a confidence bound, and GP-UCB, which trains each in full.

The first `initial_trials` configurations are trained in full. (Under a budget of time or money this initial design ends earlier
if it has used a third of the budget and two of its trials are finished.) Then the bound of `ucb_search`, on the surrogate of
`surrogate`, chooses a configuration. The subclass decides how far to train it and when to stop it: BO-BOS, BOCA and LC
prediction. The memo of the active trials is that of `active_trials`.

GP-UCB is the base class without changes: Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit
Setting: No Regret and Experimental Design", arXiv:0912.3995, Algorithm 1; the baseline of BO-BOS. Symbols and differences are
those of `surrogate` and `ucb_search`.

Difference from the paper: by default the factor of the standard deviation is that of the authors of BO-BOS,
`0.2 (d + 1) ln(2 t)`, so that the two methods can be compared; "theory" is the paper's factor for a finite set.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.deciding.policy import ALL_TRIED, QUEUED_OR_INTERRUPTED_LABELS
from shoestring.core.deciding.why_text import describe_phase
from shoestring.core.space.parameters import Scalar
from shoestring.models.loss_scaling import normal_quantile
from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policies.stopping.active_trials import ActiveTrial, ActiveTrials, ContinueTrial, StopTrial
from shoestring.policies.stopping.error_range import measure_range
from shoestring.policies.stopping.surrogate import SURROGATE_MEMO, Surrogate, fit_surrogate, observe
from shoestring.policies.stopping.ucb_search import UcbChoice, choose_config, multiplier, score_config
from shoestring.policy import (
    CurvePrediction,
    Decision,
    Labels,
    Ledger,
    Memo,
    Order,
    Prediction,
    Regions,
    Trial,
    Why,
    WhyText,
    continue_trial,
    find_untried_config,
    is_in_design,
    nothing_to_train,
    require_one_of,
    require_whole,
    start_trial,
)

_PHASES = {
    "initial design": "part of the initial design",
    "warm-up": "the trial is too short for a stopping check",
    "between forecasts": "the next forecast decides whether the trial is stopped",
}
CHOICE_LABELS = {
    **QUEUED_OR_INTERRUPTED_LABELS,
    "bound": "best value that the configuration could reach (confidence bound, value)",
    "stopped": "trial that was stopped before this order (trial)",
    "stopped_at": "steps it was trained (steps)",
    "incumbent": "best value of the other trials (value)",
    "mean": "expected value of a full training (value)",
    "multiplier": "standard deviations between expectation and bound",
    "std": "standard deviation of the expected value (value)",
}


def label_stopping_check(labels: Labels) -> Labels:
    """Return labels for the numbers of a stopping check, and for those of the trial that was stopped before an order."""
    stopped = {f"stopped_{name}": f"stopped trial: {label}" for name, label in {**CHOICE_LABELS, **labels}.items()}
    return {**stopped, **CHOICE_LABELS, **labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbPolicy:
    """Base class, which trains every trial in full.

    initial_trials   configurations trained in full before a model is fitted; see `core.deciding.policy.is_in_design`
    exploration      factor of the standard deviation: "practical", 0.2 d' ln(2 t), or "theory"
    candidates       points of a continuous space that are scored
    refit_every      trials after which the parameters of the kernel are fitted again
    """

    why_labels: ClassVar[Labels] = CHOICE_LABELS
    memo_lists: ClassVar[tuple[str, ...]] = SURROGATE_MEMO  # lists in the memo beside those of the active trials
    initial_trials: int = 6
    exploration: Literal["practical", "theory"] = "practical"
    candidates: int = 2000
    refit_every: int = 3

    def __post_init__(self) -> None:
        require_whole(self, "initial_trials", 1, "a model needs at least one result", "Try 6.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_whole(self, "refit_every", 1, "a fit can follow each trial at most", "Try 3.")
        require_one_of(self, "exploration", ("practical", "theory"))

    # what a subclass may change --------------------------------------------------------------------------------------

    @property
    def has_whole_design(self) -> bool:
        """Whether the initial design is never shortened, also under a budget of time or money."""
        return False

    def first_goal(self, ledger: Ledger) -> int:
        """Return the step to which a new trial is trained before the first stopping check."""
        return ledger.max_steps

    def continue_or_stop(self, ledger: Ledger, checked: ActiveTrial, active: ActiveTrials) -> ContinueTrial | StopTrial:
        """Return whether to continue or to stop an idle trial after the initial design."""
        return ContinueTrial(checked.goal)

    def make_surrogate(self, ledger: Ledger, table: ConfigTable, active: ActiveTrials) -> Surrogate | None:
        """Return the surrogate, or None if there are no observations yet."""
        seen = observe(ledger, intermediate=False, idle_only=True, predicted=active.predicted)
        return fit_surrogate(ledger, table, seen, lengths=False, refit_every=self.refit_every) if seen else None

    def bound_multiplier(self, ledger: Ledger, table: ConfigTable, iteration: int) -> float:
        """Return the factor of the standard deviation in the bound."""
        n_points = len(table.rows) if table.rows is not None else self.candidates
        return multiplier(self.exploration, ledger.space.dims, iteration, n_points)

    def opening_memo(self, ledger: Ledger, surrogate: Surrogate, chosen: UcbChoice, active: ActiveTrials) -> Memo:
        """Return what the memo of the order that starts a trial must hold for later decisions."""
        return {}

    # decisions -------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        active = ActiveTrials.read(ledger.memo, self.memo_lists)
        why: dict[str, Scalar] = {}
        for checked in list(active.trials):
            trial = ledger.trials[checked.number]
            if trial.open_order is not None:
                continue
            answer = self._check(ledger, trial, checked, active)
            if isinstance(answer, ContinueTrial):
                return continue_trial(trial, answer.until, why=answer.why, memo=active.memo())
            active.trials.remove(checked)
            if answer is not None:
                why |= {"stopped": trial.number, "stopped_at": trial.steps}
                why |= {f"stopped_{name}": value for name, value in answer.why.items()}
                if answer.predicted is not None:
                    active.predicted[trial.number] = answer.predicted
        return self._start_next(ledger, rng, active, why)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the forecast of the checked trial, or that of the stopped trial and of the configuration chosen after it."""
        why, sign = order.why, ledger.definition.sign
        curves, regions = [], None
        if "mean" in why:  # the value at full training
            quantile = normal_quantile(np.array([sign * float(str(why["mean"]))]), np.array([float(str(why["std"]))]))
            curves.append(CurvePrediction.of(order.trial, order.config, [ledger.max_steps], quantile, sign))
        for trial, prefix in ((order.trial, ""), (why.get("stopped"), "stopped_")):
            check = {name.removeprefix(prefix): value for name, value in why.items() if name.startswith(prefix)}
            if check.get("phase") == "stopping check" and isinstance(trial, int):
                curves += self.forecast_trial(ledger, ledger.trials[trial], check)
                regions = regions or self.map_actions(ledger, ledger.trials[trial], check)
        return Prediction(curves, regions=regions) if curves else None

    def forecast_trial(self, ledger: Ledger, trial: Trial, check: Why) -> list[CurvePrediction]:
        """Return the forecast of a trial at its stopping check, whose numbers are `check`; empty if there was none."""
        return []

    def map_actions(self, ledger: Ledger, trial: Trial, check: Why) -> Regions | None:
        """Return the actions of the plan for this and later steps of a trial, or None if the policy has no plan."""
        return None

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why = order.why
        clauses = describe_phase(why, _PHASES)
        if "stopped" in why:
            reason = f" ({why['stopped_reason']})" if "stopped_reason" in why else ""
            clauses = (f"trial {why['stopped']} was stopped at step {why['stopped_at']}{reason}", *clauses)
        return WhyText(clauses=clauses)

    def _check(
        self, ledger: Ledger, trial: Trial, checked: ActiveTrial, active: ActiveTrials
    ) -> ContinueTrial | StopTrial | None:
        """Return what to do with an idle trial, or None if it is at its end."""
        if trial.is_ended or trial.steps >= checked.goal:
            return None
        if not checked.may_be_stopped:
            return ContinueTrial(checked.goal, {"phase": "interrupted", "at": trial.steps})
        return self.continue_or_stop(ledger, checked, active)

    def _start_next(self, ledger: Ledger, rng: np.random.Generator, active: ActiveTrials, why: Why) -> Decision:
        """Return the order that starts the next trial: one of the initial design, or one that the surrogate chooses."""
        table = ledger.view(ConfigsView())
        in_design = is_in_design(ledger, self.initial_trials, whole=self.has_whole_design)
        surrogate = None if in_design else self.make_surrogate(ledger, table, active)
        if surrogate is None:
            return self._start_design_trial(ledger, active, why)
        active.lists |= surrogate.memo
        if active.error_range is None and all(one.may_be_stopped for one in active.trials):
            active.error_range = measure_range(ledger)
        busy = [table.trials[trial.number] for trial in ledger.trials if trial.open_order is not None]
        return self.train_chosen(ledger, rng, surrogate.with_predicted(busy), active, why)

    def _start_design_trial(self, ledger: Ledger, active: ActiveTrials, why: Why) -> Decision:
        config = find_untried_config(ledger)
        if config is None:
            return nothing_to_train(ledger, ALL_TRIED)
        goal = ledger.max_steps
        active.add_never_stopped(ledger, len(ledger.trials), goal)
        return start_trial(ledger, config, goal, why={**why, "phase": "initial design"}, memo=active.memo())

    def train_chosen(
        self, ledger: Ledger, rng: np.random.Generator, surrogate: Surrogate, active: ActiveTrials, why: Why
    ) -> Decision:
        """Return the order for a new trial with the configuration of the lowest bound, or one from the user's queue."""
        chosen = self.choose_next(ledger, rng, surrogate, active)
        if chosen is None:
            return nothing_to_train(ledger, ALL_TRIED)
        opening = self.opening_memo(ledger, surrogate, chosen, active)
        active.add(ledger, len(ledger.trials), ledger.max_steps)
        why = {**why, **explain_choice(ledger, surrogate, chosen)}
        return start_trial(ledger, chosen.config, self.first_goal(ledger), why=why, memo={**opening, **active.memo()})

    def choose_next(
        self,
        ledger: Ledger,
        rng: np.random.Generator,
        surrogate: Surrogate,
        active: ActiveTrials,
        paused: Sequence[int] = (),
    ) -> UcbChoice | None:
        """Return the choice among new configurations and `paused` trials; the user's queue comes first."""
        weight = self.bound_multiplier(ledger, surrogate.table, active.started + 1)
        if ledger.queue:
            return score_config(ledger.queue[0], surrogate, weight)
        return choose_config(ledger, surrogate, weight, self.candidates, rng, paused)


def explain_choice(ledger: Ledger, surrogate: Surrogate, chosen: UcbChoice) -> Why:
    """Return the numbers behind a choice, in the unit of the values."""
    sign, scale = ledger.state.sign, surrogate.scale
    return {
        **chosen.compared,
        "phase": "queued" if ledger.queue else "chosen",
        "mean": sign * float(scale.undo(np.array(chosen.mean))),
        "std": chosen.std * scale.scale,
        "bound": sign * float(scale.undo(np.array(chosen.bound))),
        "multiplier": chosen.weight,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class GPUCB(UcbPolicy):
    """GP-UCB: the configuration with the best confidence bound, trained in full.

    Srinivas, Krause, Kakade, Seeger, "Gaussian Process Optimization in the Bandit Setting: No Regret and Experimental Design",
    arXiv:0912.3995, Algorithm 1; the base class `UcbPolicy` without changes.
    """

    name: ClassVar[str] = "gp_ucb"
