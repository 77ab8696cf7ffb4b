"""One run after another, chosen by a confidence bound: what GP-UCB, BO-BOS, BOCA and LC prediction have in common.

The first `initial_trials` configs are trained in full; in time and money fewer, once two of them have used up a third of the
budget. Then the surrogate names a config, and the policy says how far to train it and when to give it up. How runs travel in
the memo: `runs`; the surrogate: `surrogate`; the bound: `search`.

GP-UCB: train the config whose loss could be lowest, every run in full.

Srinivas, Krause, Kakade and Seeger, "Gaussian Process Optimization in the Bandit Setting: No Regret and Experimental
Design", arXiv:0912.3995, Algorithm 1; the baseline of BO-BOS. The surrogate, the bound, their symbols and departures are those
of `surrogate` and `search`; the settings those of `ucb_policy`.

Departs from the paper: the multiplier of the deviation is by default that of the authors of BO-BOS, `0.2 (d + 1) ln(2 t)`, so
that the two can be compared; "theory" is the paper's for a finite set of configs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from scipy.special import ndtri

from shoestring.core.deciding.decision import Decision, Memo, Why
from shoestring.core.deciding.policy import (
    ALL_TRIED,
    fresh_config,
    is_in_design,
    nothing_to_buy,
    train_further,
    train_new,
)
from shoestring.core.deciding.prediction import Believed, BelievedCurve, Regions
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import require_one_of, require_whole
from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policies.stopping.active_runs import ActiveRun, GiveUp, GoOn, RunsUnderWay
from shoestring.policies.stopping.error_range import measure_range
from shoestring.policies.stopping.surrogate import SURROGATE_MEMO, Surrogate, fit_surrogate, observe
from shoestring.policies.stopping.ucb_search import Chosen, choose, look_at, multiplier


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbPolicy:
    """The frame; by itself it finishes every run.

    initial_trials   configs trained in full before any model is asked; see `core.initial_design`
    exploration      multiplier of the deviation: "practical", 0.2 d' ln(2 t), or "theory"
    candidates       points of a continuous space that are scored
    refit_every      trials after which the kernel's parameters are fitted again
    """

    memo_lists: ClassVar[tuple[str, ...]] = SURROGATE_MEMO  # names of the lists that the memo carries beside the runs
    initial_trials: int = 6
    exploration: Literal["practical", "theory"] = "practical"
    candidates: int = 2000
    refit_every: int = 3

    def __post_init__(self) -> None:
        require_whole(self, "initial_trials", 1, "a model needs at least one result", "Try 6.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_whole(self, "refit_every", 1, "a fit can follow each trial at most", "Try 3.")
        require_one_of(self, "exploration", ("practical", "theory"))

    # what a policy adds ----------------------------------------------------------------------------------------------

    def first_goal(self, ledger: Ledger) -> int:
        """How far a new run is trained before it is judged."""
        return ledger.max_steps

    def judge(self, ledger: Ledger, run: ActiveRun, runs: RunsUnderWay) -> GoOn | GiveUp:
        """What to do with an idle run after the initial design."""
        return GoOn(run.goal)

    def form_belief(self, ledger: Ledger, table: ConfigTable, runs: RunsUnderWay) -> Surrogate | None:
        """The surrogate; None: nothing is known yet."""
        seen = observe(ledger, intermediate=False, idle_only=True, predicted=runs.predicted)
        return fit_surrogate(ledger, table, seen, lengths=False, refit_every=self.refit_every) if seen else None

    def bound_multiplier(self, ledger: Ledger, table: ConfigTable, iteration: int) -> float:
        """Of the deviation, in the bound."""
        n_points = len(table.rows) if table.rows is not None else self.candidates
        return multiplier(self.exploration, ledger.space.dims, iteration, n_points)

    def opening_memo(self, ledger: Ledger, belief: Surrogate, chosen: Chosen, runs: RunsUnderWay) -> Memo:
        """What the order that opens a run must remember for later."""
        return {}

    def find_run_to_thaw(self, ledger: Ledger, belief: Surrogate, runs: RunsUnderWay) -> tuple[Trial, Why] | None:
        """A frozen run to finish instead of a new one to begin, and why that one."""
        return None

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        runs = RunsUnderWay.read(ledger.memo, self.memo_lists)
        why: dict[str, Scalar] = {}
        for run in list(runs.active):
            trial = ledger.trials[run.trial]
            if trial.open_order is not None:
                continue
            answer = self._ask(ledger, trial, run, runs)
            if isinstance(answer, GoOn):
                return train_further(trial, answer.until, why=answer.why, memo=runs.memo())
            runs.active.remove(run)
            if answer is not None:
                why |= {"gave_up": run.trial, "gave_up_at": trial.steps}
                why |= {f"gave_up_{name}": value for name, value in answer.why.items()}
                if answer.predicted is not None:
                    runs.predicted[run.trial] = answer.predicted
        return self._begin(ledger, rng, runs, why)

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        """The run judged, or the run given up and what was expected of the config that was chosen after it."""
        why, sign = order.why, ledger.opened.sign
        told, regions = [], None
        if "mean" in why:  # of a full training, in the unit of the values
            quantile = normal_end(sign * float(str(why["mean"])), float(str(why["std"])))
            told.append(BelievedCurve.of(order.trial, order.config, [ledger.max_steps], quantile, sign))
        for trial, prefix in ((order.trial, ""), (why.get("gave_up"), "gave_up_")):
            judged = {name.removeprefix(prefix): value for name, value in why.items() if name.startswith(prefix)}
            if judged.get("phase") == "judged" and isinstance(trial, int):
                told += self.foresee(ledger, ledger.trials[trial], judged)
                regions = regions or self.map_verdicts(ledger, ledger.trials[trial], judged)
        return Believed(told, regions=regions) if told else None

    def foresee(self, ledger: Ledger, trial: Trial, judged: Why) -> list[BelievedCurve]:
        """What was expected of a run when it was judged, with these reasons; nothing where no curve was forecast."""
        return []

    def map_verdicts(self, ledger: Ledger, trial: Trial, judged: Why) -> Regions | None:
        """What was to be done with it, here and later; None where there is no such plan."""
        return None

    def _ask(self, ledger: Ledger, trial: Trial, run: ActiveRun, runs: RunsUnderWay) -> GoOn | GiveUp | None:
        """None: the run has come to its end."""
        if trial.is_stuck or trial.steps >= run.goal:
            return None
        if not run.is_judged:
            return GoOn(run.goal, {"phase": "cut short", "at": trial.steps})
        return self.judge(ledger, run, runs)

    def _begin(self, ledger: Ledger, rng: np.random.Generator, runs: RunsUnderWay, why: Why) -> Decision:
        """The next run: of the initial design, one that was frozen, or one that the surrogate chooses."""
        table = ledger.view(ConfigsView())
        in_design = is_in_design(ledger, self.initial_trials)
        belief = None if in_design else self.form_belief(ledger, table, runs)
        if belief is None:
            return self._begin_design_run(ledger, runs, why)
        runs.lists |= belief.memo
        if runs.error_range is None and all(run.is_judged for run in runs.active):
            runs.error_range = measure_range(ledger)
        busy = [table.trials[trial.number] for trial in ledger.trials if trial.open_order is not None]
        belief = belief.expect(busy)
        if not ledger.queue and (thawed := self.find_run_to_thaw(ledger, belief, runs)) is not None:
            trial, compared = thawed
            runs.begin_unjudged(ledger, trial.number, trial.limit)
            why = {**why, **compared, "phase": "thawed", "frozen_at": trial.steps}
            return train_further(trial, trial.limit, why=why, memo=runs.memo())
        return self.begin_run(ledger, rng, belief, runs, why)

    def _begin_design_run(self, ledger: Ledger, runs: RunsUnderWay, why: Why) -> Decision:
        config = fresh_config(ledger)
        if config is None:
            return nothing_to_buy(ledger, ALL_TRIED)
        goal = ledger.max_steps
        runs.begin_unjudged(ledger, len(ledger.trials), goal)
        return train_new(ledger, config, goal, why={**why, "phase": "initial design"}, memo=runs.memo())

    def begin_run(
        self, ledger: Ledger, rng: np.random.Generator, belief: Surrogate, runs: RunsUnderWay, why: Why
    ) -> Decision:
        """A new run with the config of the lowest bound, or the user's own."""
        chosen = self.choose_next(ledger, rng, belief, runs)
        if chosen is None:
            return nothing_to_buy(ledger, ALL_TRIED)
        opening = self.opening_memo(ledger, belief, chosen, runs)
        runs.begin(ledger, len(ledger.trials), ledger.max_steps)
        why = {**why, **explain_choice(ledger, belief, chosen)}
        return train_new(ledger, chosen.config, self.first_goal(ledger), why=why, memo={**opening, **runs.memo()})

    def choose_next(
        self,
        ledger: Ledger,
        rng: np.random.Generator,
        belief: Surrogate,
        runs: RunsUnderWay,
        frozen: Sequence[int] = (),
    ) -> Chosen | None:
        """What to train next, among new configs and `frozen` trials; a config of the user's queue comes first."""
        weight = self.bound_multiplier(ledger, belief.table, runs.begun + 1)
        if ledger.queue:
            return look_at(ledger.queue[0], belief, weight)
        return choose(ledger, belief, weight, self.candidates, rng, frozen)


def normal_end(mean: float, std: float) -> Callable[[float], Floats]:
    """From a level to the one loss (1,) below which a normal end falls with that chance."""
    return lambda level: np.array([mean + ndtri(level) * std])


def explain_choice(ledger: Ledger, belief: Surrogate, chosen: Chosen) -> Why:
    """The numbers behind a choice, in the unit of the values."""
    sign, scale = ledger.books.sign, belief.scale
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
    name: ClassVar[str] = "gp_ucb"
