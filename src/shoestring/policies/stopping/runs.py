"""One run after another, chosen by a confidence bound: what GP-UCB, BO-BOS, BOCA and LC prediction have in common.

The first `initial_trials` configs are trained in full. Then the model names a config, and the policy says how far to train it
and when to give it up. A run that was given up is frozen, never closed.

Which runs are under way travels in the memo of every order, four lists of equal length:

    run_trials       trial
    run_iterations   0, 1, 2, … for runs after the initial design; -1 for one that is never given up
    run_orders       order that opened the run; its memo holds what was known at that time
    run_goals        step to train it to

and beside them `begun` (runs after the design so far), `error_bounds` (see `error_range`) and the kernel's parameters. Every
idle run is asked about before a new one is opened, so a run that is missing from the lists has ended or was given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from shoestring.core.books import Trial
from shoestring.core.decision import Decision, Finish, Memo, Train, Wait
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.settings import require_one_of, require_whole
from shoestring.core.space import Config
from shoestring.policies.outcomes import Outcomes, Table
from shoestring.policies.stopping.error_range import error_bounds
from shoestring.policies.stopping.search import Chosen, Surrogate, choose, kept, multiplier, observations, surrogate

Scalars = dict[str, str | int | float | bool | None]
DESIGN = "initial design"
_UNJUDGED = -1


@dataclass(frozen=True, slots=True)
class Run:
    trial: int
    iteration: int
    order: int
    goal: int

    @property
    def is_judged(self) -> bool:
        return self.iteration != _UNJUDGED


@dataclass(frozen=True, slots=True)
class GoOn:
    """Train the run up to this step, for this reason."""

    until: int
    why: Mapping[str, str | int | float | bool | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GiveUp:
    why: Mapping[str, str | int | float | bool | None]
    predicted: float | None = None  # loss at full training to tell the model, if not what was seen


@dataclass(slots=True)
class Runs:
    """The state that a decision reads from the last order's memo, and leaves in its own."""

    under_way: list[Run]
    begun: int
    bounds: tuple[float, float] | None
    predicted: dict[int, float]
    extra: dict[str, list[float]]  # lists that a policy keeps for itself

    @classmethod
    def read(cls, memo: Memo, extra: tuple[str, ...] = ()) -> Runs:
        lists = [[int(v) for v in memo.get(f"run_{name}", ())] for name in ("trials", "iterations", "orders", "goals")]
        bounds = memo.get("error_bounds")
        return cls(
            [Run(*four) for four in zip(*lists, strict=True)],
            int(memo.get("begun", (0.0,))[0]),
            (bounds[0], bounds[1]) if bounds else None,
            {int(t): v for t, v in zip(memo.get("given_up", ()), memo.get("predicted", ()), strict=True)},
            {name: list(memo[name]) for name in extra if name in memo},
        )

    def memo(self, kernel: Mapping[str, list[float]]) -> dict[str, list[float]]:
        told: dict[str, list[float]] = {
            "run_trials": [float(run.trial) for run in self.under_way],
            "run_iterations": [float(run.iteration) for run in self.under_way],
            "run_orders": [float(run.order) for run in self.under_way],
            "run_goals": [float(run.goal) for run in self.under_way],
            "begun": [float(self.begun)],
            **kernel,
            **self.extra,
        }
        if self.bounds is not None:
            told["error_bounds"] = list(self.bounds)
        if self.predicted:
            told["given_up"] = [float(trial) for trial in self.predicted]
            told["predicted"] = list(self.predicted.values())
        return told


@dataclass(frozen=True, slots=True, kw_only=True)
class UcbRuns:
    """Settings.

    initial_trials   configs trained in full before any model is asked
    exploration      multiplier of the deviation: "practical", 0.2 d' ln(2 t), or "theory"
    candidates       points of a continuous space that are scored
    refit_every      trials after which the kernel's parameters are fitted again
    """

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

    def judge(self, ledger: Ledger, run: Run, runs: Runs) -> GoOn | GiveUp:
        """What to do with an idle run after the initial design."""
        return GoOn(run.goal)

    def model(self, ledger: Ledger, table: Table, runs: Runs) -> Surrogate | None:
        """The surrogate; None: nothing is known yet."""
        seen = observations(ledger, intermediate=False, whole_only=True, predicted=runs.predicted)
        return surrogate(ledger, table, seen, lengths=False, refit_every=self.refit_every) if seen else None

    def known_at_opening(self, ledger: Ledger, table: Table, belief: Surrogate, chosen: Chosen, runs: Runs) -> Memo:
        """What the order that opens a run must remember for later."""
        return {}

    def weight(self, ledger: Ledger, table: Table, iteration: int) -> float:
        """Multiplier of the deviation in the bound."""
        n_points = len(table.rows) if table.rows is not None else self.candidates
        return multiplier(self.exploration, ledger.space.dims, iteration, n_points)

    def first_goal(self, ledger: Ledger) -> int:
        """How far a new run is trained before it is judged."""
        return ledger.max_steps

    def thawed(self, ledger: Ledger, table: Table, belief: Surrogate, runs: Runs) -> Trial | None:
        """A frozen run to finish instead of a new one to begin."""
        return None

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        runs = Runs.read(ledger.memo, self.extra_memo())
        why: Scalars = {}
        for run in list(runs.under_way):
            trial = ledger.trials[run.trial]
            if trial.open_order is not None:
                continue
            answer = self._ask(ledger, trial, run, runs)
            if isinstance(answer, GoOn):
                return order_of(trial, answer, runs.memo(kept(ledger.memo)))
            runs.under_way.remove(run)
            if answer is not None:
                why |= {"gave_up": run.trial, "gave_up_at": trial.steps}
                why |= {f"gave_up_{name}": value for name, value in answer.why.items()}
                if answer.predicted is not None:
                    runs.predicted[run.trial] = answer.predicted
        return self._begin(ledger, rng, runs, why)

    def extra_memo(self) -> tuple[str, ...]:
        """Names of further lists in the memo."""
        return ()

    def _ask(self, ledger: Ledger, trial: Trial, run: Run, runs: Runs) -> GoOn | GiveUp | None:
        """None: the run has come to its end."""
        if trial.is_stuck or trial.steps >= run.goal:
            return None
        if not run.is_judged:
            return GoOn(min(run.goal, trial.limit), {"phase": "cut short", "at": trial.steps})
        return self.judge(ledger, run, runs)

    def _begin(self, ledger: Ledger, rng: np.random.Generator, runs: Runs, why: Scalars) -> Decision:
        table = ledger.view(Outcomes(DESIGN))
        in_design = len(ledger.trials) < self.initial_trials
        belief = None if in_design else self.model(ledger, table, runs)
        if belief is None:
            config = fresh_config(ledger)
            if config is None:
                return end(ledger)
            runs.under_way.append(Run(len(ledger.trials), _UNJUDGED, len(ledger.orders), ledger.max_steps))
            memo = runs.memo(kept(ledger.memo))
            return new_run(ledger, config, ledger.max_steps, {**why, "phase": DESIGN}, memo)
        if runs.bounds is None and all(run.is_judged for run in runs.under_way):
            runs.bounds = error_bounds(ledger)
        busy = [table.trials[trial.number] for trial in ledger.trials if trial.open_order is not None]
        belief = belief.pretending(busy)
        if not ledger.queue and (trial := self.thawed(ledger, table, belief, runs)) is not None:
            runs.under_way.append(Run(trial.number, _UNJUDGED, len(ledger.orders), trial.limit))
            why |= {"phase": "thawed", "frozen_at": trial.steps}
            return order_of(trial, GoOn(trial.limit, why), runs.memo(dict(belief.memo)))
        return self.begin_run(ledger, rng, table, belief, runs, why)

    def begin_run(
        self, ledger: Ledger, rng: np.random.Generator, table: Table, belief: Surrogate, runs: Runs, why: Scalars
    ) -> Decision:
        """A new run with the config of the highest bound, or the user's own."""
        chosen, weight = self.search(ledger, rng, table, belief, runs)
        if chosen is None:
            return end(ledger)
        goal = self.first_goal(ledger)
        runs.under_way.append(Run(len(ledger.trials), runs.begun, len(ledger.orders), ledger.max_steps))
        memo = {**self.known_at_opening(ledger, table, belief, chosen, runs)}
        runs.begun += 1
        why = {**why, **told(ledger, belief, chosen, weight)}
        return new_run(ledger, chosen.config, goal, why, {**memo, **runs.memo(dict(belief.memo))})

    def search(
        self,
        ledger: Ledger,
        rng: np.random.Generator,
        table: Table,
        belief: Surrogate,
        runs: Runs,
        going: tuple[int, ...] = (),
    ) -> tuple[Chosen | None, float]:
        """What to train next, and the multiplier of the deviation; a config of the user's queue comes first."""
        weight = self.weight(ledger, table, runs.begun + 1)
        if ledger.queue:
            point = table.encoding.points([ledger.queue[0]])
            mean, std = belief.predict(point)
            return Chosen(ledger.queue[0], None, point, float(mean[0]), float(std[0])), weight
        return choose(ledger, table, belief, weight, self.candidates, rng, going), weight


def told(ledger: Ledger, belief: Surrogate, chosen: Chosen, weight: float) -> Scalars:
    """The numbers behind a choice, in the unit of the values."""
    sign, scale = ledger.books.sign, belief.scale
    value = sign * float(scale.undo(np.array(chosen.mean)))
    bound = sign * float(scale.undo(np.array(chosen.mean - weight * chosen.std)))
    phase = "queued" if ledger.queue else "chosen"
    return {"phase": phase, "mean": value, "std": chosen.std * scale.scale, "bound": bound, "multiplier": weight}


def end(ledger: Ledger) -> Decision:
    return Wait() if ledger.open_orders else Finish("every config of the space was tried")


def order_of(trial: Trial, answer: GoOn, memo: Memo) -> Train:
    return Train(trial=trial.number, config=trial.config, until=answer.until, why=answer.why, memo=memo)


def new_run(ledger: Ledger, config: Config, until: int, why: Scalars, memo: Memo) -> Train:
    return Train(trial=len(ledger.trials), config=dict(config), until=until, why=why, memo=memo)
