"""Base class of the policies that choose runs by a confidence bound, and GP-UCB, which trains every run in full.

The first `initial_trials` configurations are trained in full. (Under a budget of time or money this initial design ends earlier
if it has used a third of the budget and two of its trials are finished.) Then the bound of `ucb_search`, on the surrogate of
`surrogate`, chooses a configuration. The subclass decides how far to train it and when to stop it: BO-BOS, BOCA and LC
prediction. The memo of the runs is that of `active_runs`.

GP-UCB is the base class without changes: Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit
Setting: No Regret and Experimental Design", arXiv:0912.3995, Algorithm 1; the baseline of BO-BOS. Symbols and differences are
those of `surrogate` and `ucb_search`.

Difference from the paper: by default the factor of the standard deviation is that of the authors of BO-BOS,
`0.2 (d + 1) ln(2 t)`, so that the two methods can be compared; "theory" is the paper's factor for a finite set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtri

from shoestring.core.deciding.policy import ALL_TRIED, QUEUED_OR_INTERRUPTED_LABELS
from shoestring.core.deciding.why_text import describe_phase
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Floats
from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policies.stopping.active_runs import ActiveRun, ActiveRuns, ContinueRun, StopRun
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
    """Return labels for the numbers of a stopping check, and for those of the run that was stopped before an order."""
    stopped = {f"stopped_{name}": f"stopped trial: {label}" for name, label in {**CHOICE_LABELS, **labels}.items()}
    return {**stopped, **CHOICE_LABELS, **labels}


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbPolicy:
    """Base class, which trains every run in full.

    initial_trials   configurations trained in full before a model is fitted; see `core.deciding.policy.is_in_design`
    exploration      factor of the standard deviation: "practical", 0.2 d' ln(2 t), or "theory"
    candidates       points of a continuous space that are scored
    refit_every      trials after which the parameters of the kernel are fitted again
    """

    why_labels: ClassVar[Labels] = CHOICE_LABELS
    memo_lists: ClassVar[tuple[str, ...]] = SURROGATE_MEMO  # names of the lists in the memo beside those of the runs
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

    def first_goal(self, ledger: Ledger) -> int:
        """Return the step to which a new run is trained before the first stopping check."""
        return ledger.max_steps

    def decide_run(self, ledger: Ledger, run: ActiveRun, runs: ActiveRuns) -> ContinueRun | StopRun:
        """Return whether to continue or to stop an idle run after the initial design."""
        return ContinueRun(run.goal)

    def make_surrogate(self, ledger: Ledger, table: ConfigTable, runs: ActiveRuns) -> Surrogate | None:
        """Return the surrogate, or None if there are no observations yet."""
        seen = observe(ledger, intermediate=False, idle_only=True, predicted=runs.predicted)
        return fit_surrogate(ledger, table, seen, lengths=False, refit_every=self.refit_every) if seen else None

    def bound_multiplier(self, ledger: Ledger, table: ConfigTable, iteration: int) -> float:
        """Return the factor of the standard deviation in the bound."""
        n_points = len(table.rows) if table.rows is not None else self.candidates
        return multiplier(self.exploration, ledger.space.dims, iteration, n_points)

    def opening_memo(self, ledger: Ledger, surrogate: Surrogate, chosen: UcbChoice, runs: ActiveRuns) -> Memo:
        """Return what the memo of the order that starts a run must hold for later decisions."""
        return {}

    # decisions -------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        runs = ActiveRuns.read(ledger.memo, self.memo_lists)
        why: dict[str, Scalar] = {}
        for run in list(runs.active):
            trial = ledger.trials[run.trial]
            if trial.open_order is not None:
                continue
            answer = self._check_run(ledger, trial, run, runs)
            if isinstance(answer, ContinueRun):
                return continue_trial(trial, answer.until, why=answer.why, memo=runs.memo())
            runs.active.remove(run)
            if answer is not None:
                why |= {"stopped": run.trial, "stopped_at": trial.steps}
                why |= {f"stopped_{name}": value for name, value in answer.why.items()}
                if answer.predicted is not None:
                    runs.predicted[run.trial] = answer.predicted
        return self._start_next_run(ledger, rng, runs, why)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the forecast of the checked run, or that of the stopped run and of the configuration chosen after it."""
        why, sign = order.why, ledger.definition.sign
        curves, regions = [], None
        if "mean" in why:  # the value at full training
            quantile = normal_quantile(sign * float(str(why["mean"])), float(str(why["std"])))
            curves.append(CurvePrediction.of(order.trial, order.config, [ledger.max_steps], quantile, sign))
        for trial, prefix in ((order.trial, ""), (why.get("stopped"), "stopped_")):
            check = {name.removeprefix(prefix): value for name, value in why.items() if name.startswith(prefix)}
            if check.get("phase") == "stopping check" and isinstance(trial, int):
                curves += self.forecast_run(ledger, ledger.trials[trial], check)
                regions = regions or self.map_actions(ledger, ledger.trials[trial], check)
        return Prediction(curves, regions=regions) if curves else None

    def forecast_run(self, ledger: Ledger, trial: Trial, check: Why) -> list[CurvePrediction]:
        """Return the forecast of a run at its stopping check, whose numbers are `check`; empty if there was none."""
        return []

    def map_actions(self, ledger: Ledger, trial: Trial, check: Why) -> Regions | None:
        """Return the actions of the plan for this and later steps of a run, or None if the policy has no plan."""
        return None

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why = order.why
        clauses = describe_phase(why, _PHASES)
        if "stopped" in why:
            reason = f" ({why['stopped_reason']})" if "stopped_reason" in why else ""
            clauses = (f"trial {why['stopped']} was stopped at step {why['stopped_at']}{reason}", *clauses)
        return WhyText(clauses=clauses)

    def _check_run(
        self, ledger: Ledger, trial: Trial, run: ActiveRun, runs: ActiveRuns
    ) -> ContinueRun | StopRun | None:
        """Return what to do with an idle run, or None if it is at its end."""
        if trial.is_ended or trial.steps >= run.goal:
            return None
        if not run.may_be_stopped:
            return ContinueRun(run.goal, {"phase": "interrupted", "at": trial.steps})
        return self.decide_run(ledger, run, runs)

    def _start_next_run(self, ledger: Ledger, rng: np.random.Generator, runs: ActiveRuns, why: Why) -> Decision:
        """Return the order that starts the next run: one of the initial design, or one that the surrogate chooses."""
        table = ledger.view(ConfigsView())
        in_design = is_in_design(ledger, self.initial_trials)
        surrogate = None if in_design else self.make_surrogate(ledger, table, runs)
        if surrogate is None:
            return self._start_design_run(ledger, runs, why)
        runs.lists |= surrogate.memo
        if runs.error_range is None and all(run.may_be_stopped for run in runs.active):
            runs.error_range = measure_range(ledger)
        busy = [table.trials[trial.number] for trial in ledger.trials if trial.open_order is not None]
        return self.start_run(ledger, rng, surrogate.with_predicted(busy), runs, why)

    def _start_design_run(self, ledger: Ledger, runs: ActiveRuns, why: Why) -> Decision:
        config = find_untried_config(ledger)
        if config is None:
            return nothing_to_train(ledger, ALL_TRIED)
        goal = ledger.max_steps
        runs.start_full_run(ledger, len(ledger.trials), goal)
        return start_trial(ledger, config, goal, why={**why, "phase": "initial design"}, memo=runs.memo())

    def start_run(
        self, ledger: Ledger, rng: np.random.Generator, surrogate: Surrogate, runs: ActiveRuns, why: Why
    ) -> Decision:
        """Return the order for a new run with the configuration of the lowest bound, or one from the user's queue."""
        chosen = self.choose_next(ledger, rng, surrogate, runs)
        if chosen is None:
            return nothing_to_train(ledger, ALL_TRIED)
        opening = self.opening_memo(ledger, surrogate, chosen, runs)
        runs.start_run(ledger, len(ledger.trials), ledger.max_steps)
        why = {**why, **explain_choice(ledger, surrogate, chosen)}
        return start_trial(ledger, chosen.config, self.first_goal(ledger), why=why, memo={**opening, **runs.memo()})

    def choose_next(
        self,
        ledger: Ledger,
        rng: np.random.Generator,
        surrogate: Surrogate,
        runs: ActiveRuns,
        paused: Sequence[int] = (),
    ) -> UcbChoice | None:
        """Return the choice among new configurations and `paused` trials; the user's queue comes first."""
        weight = self.bound_multiplier(ledger, surrogate.table, runs.started + 1)
        if ledger.queue:
            return score_config(ledger.queue[0], surrogate, weight)
        return choose_config(ledger, surrogate, weight, self.candidates, rng, paused)


def normal_quantile(mean: float, std: float) -> Callable[[float], Floats]:
    """Return a function from a level to the loss (1,) at that quantile of a normal distribution."""
    return lambda level: np.array([mean + ndtri(level) * std])


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
