"""Studies in simulated time: `plan` shows what a budget pays for, `replay` runs another policy on recorded curves.

`plan` runs a policy on random curves, which fall at random speeds to random levels. It shows how many trials the policy
trains and how far, but not how good the policy is. A budget of time or money needs the duration of a step.

`replay` runs a policy on the curves that a study recorded. The space is the list of configs that were trained, and a step
costs what it cost the first time, setup included. A curve is known only up to its last recorded step. After it the replayed
trial ends, as if its training code had ended. The missing steps cost nothing, so the policy looks better than it is; their
number is counted.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from shoestring import policies
from shoestring.core.deciding.policy import Policy, warn_of_small_budget
from shoestring.core.ledger.amendments import require_possible
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Note, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import TrainingEnd, list_earlier_studies
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring.errors import BudgetError, StudyError
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.study.earlier import refit_earlier_studies
from shoestring.study.loop import run_in_memory


@dataclass(frozen=True)
class RandomCurves:
    """Curves that fall at random speeds to random levels; the same config always has the same curve."""

    seed: int
    step_s: float

    def step(self, config: Config, step: int) -> StepOutcome:
        start, end, speed = stream(self.seed, dumps(config)).random(3)
        return StepOutcome(float(end + (1 + start) / (1 + speed * step)), Cost(train=self.step_s))


@dataclass(frozen=True)
class Plan:
    """What a policy trained with a budget on random curves."""

    ledger: Ledger
    trials_by_steps: dict[int, int]  # {steps trained: number of trials}, most trained first
    warning: str | None  # says that the budget is too small for this policy; None if it is large enough


def plan(definition: StudyDefinition, policy: Policy, step_s: float) -> Plan:
    """Return what `policy` trains with the budget of this study, if a step takes `step_s` seconds."""
    if definition.budget.unit != "epochs" and not 0 < step_s < math.inf:
        raise BudgetError(
            f"a plan for {definition.budget} needs the duration of a step in seconds, above 0, not {step_s!r}"
        )
    runner = SimulatedRunner(RandomCurves(definition.seed, step_s), definition.workers)
    ledger = run_in_memory(Ledger([definition]), policy, runner).ledger
    counts = Counter(trial.steps for trial in ledger.trials)
    in_epochs = definition.budget.unit == "epochs"
    per_step = ledger.step_price() if in_epochs else step_s * definition.budget.per_second(definition.workers)
    full_trainings = definition.budget.total / (per_step * definition.max_steps)
    warning = warn_of_small_budget(policy, full_trainings, definition.max_steps)
    return Plan(ledger, dict(sorted(counts.items(), reverse=True)), warning)


class RecordedCurves:
    """The curves that a study recorded, as a source for simulation."""

    def __init__(self, ledger: Ledger) -> None:
        self._trials = {dumps(trial.config): trial for trial in reversed(ledger.trials)}
        self._costs: dict[tuple[int, int], Cost] = {}  # {(trial, step): cost}
        self._cost_of_failure: dict[int, Cost] = {}  # {trial: cost of the step that failed}
        for entry in ledger.entries():
            if isinstance(entry, Receipt) and entry.is_finished:
                self._costs.setdefault((entry.trial, entry.step), entry.cost)
            elif isinstance(entry, Receipt) and entry.status == "failed":
                self._cost_of_failure[entry.trial] = entry.cost

    def step(self, config: Config, step: int) -> StepOutcome | None:
        trial = self._trials[dumps(config)]
        if step <= trial.steps:
            return StepOutcome(trial.values[step - 1], self._costs[trial.number, step])
        if not trial.failure:
            return None
        return StepOutcome(None, self._cost_of_failure.get(trial.number, Cost()), failure=trial.failure)


_MIN_KNOWN_SHARE = 0.7  # of the steps of a replayed policy; with fewer, what they show may be chance


@dataclass(frozen=True)
class Replay:
    """What another policy reached on the recorded curves, compared with the study itself."""

    ledger: Ledger
    winner: Trial  # the best trial of the study
    winner_steps: int  # steps of the winner's config that the replayed policy trained
    winner_missed: bool  # whether the replayed policy stopped it before its best step
    cost: float | None  # cost of the replayed steps until one was as good as the best of the study; None if none was
    real_cost: float  # the same for the study itself
    recorded_steps: int = 0  # steps that the replayed policy trained and the study had recorded
    missing_steps: int = 0  # steps that the replayed policy ordered beyond the end of a recorded curve

    @property
    def missing_share(self) -> float:
        """The share of steps without a record among all that the replayed policy ordered."""
        return self.missing_steps / max(1, self.recorded_steps + self.missing_steps)

    @property
    def can_tell(self) -> bool:
        """Whether enough of these steps are recorded to compare the policy with the study."""
        return 1.0 - self.missing_share >= _MIN_KNOWN_SHARE


def replay(ledger: Ledger, policy: Policy, budget: Budget | None = None) -> Replay:
    """Run `policy` on the curves of a study and return what it reached; the budget is that of the study unless one is given."""
    winner = ledger.best
    if winner is None:
        raise StudyError("there is nothing to replay: no step of this study was validated")
    for trial in ledger.trials:
        if None in trial.losses:
            raise StudyError(
                f"step {trial.losses.index(None) + 1} of trial {trial.number} has no value, because it was not validated: "
                "only studies that validate every step can be replayed"
            )
    known = [trial for trial in ledger.trials if trial.steps or trial.failure]
    configs = list({dumps(trial.config): trial.config for trial in known}.values())
    names = {name for config in configs for name in config}
    scales = [name for name in ledger.space.log_names if name in names]
    marks = {name: mark for name, mark in ledger.space.cost_marks.items() if name in names}
    definition: StudyDefinition = replace(
        ledger.definition,
        space=Space.from_configs(configs, log=scales, cost=marks),
        budget=budget or ledger.budget,
        policy=policy.name,
        settings=policies.settings_of(policy),
    )
    require_possible(definition)
    runner = SimulatedRunner(RecordedCurves(ledger), ledger.workers)
    earlier = refit_earlier_studies(definition.space, list_earlier_studies(ledger.entries()))
    ending = run_in_memory(Ledger([definition, *(facts.to_note() for facts in earlier)]), policy, runner)
    again = next((t for t in ending.ledger.trials if dumps(t.config) == dumps(winner.config)), None)
    steps = again.steps if again else 0
    cost, real_cost = (cost_until(one, winner.best_loss) for one in (ending.ledger, ledger))
    assert real_cost is not None
    recorded = sum(trial.steps for trial in ending.ledger.trials)
    missing = _count_missing(ending.ledger)
    return Replay(ending.ledger, winner, steps, steps < winner.best_step, cost, real_cost, recorded, missing)


def _count_missing(replayed: Ledger) -> int:
    """Return the number of steps that were ordered beyond the end of a recorded curve."""
    notes = [entry for entry in replayed.entries() if isinstance(entry, Note) and entry.topic == TrainingEnd.topic]
    ends = [TrainingEnd.from_note(note) for note in notes]
    return sum(replayed.orders[ended.order].until - ended.step for ended in ends)


def cost_until(ledger: Ledger, loss: float) -> float | None:
    """Return the cost of all steps until one had at most this loss, each step counted once; None if none had."""
    cost, seen = 0.0, [0] * len(ledger.trials)
    for entry in ledger.entries():
        if not isinstance(entry, Receipt) or entry.step <= seen[entry.trial]:
            continue
        in_epochs = ledger.budget.unit == "epochs"
        cost += ledger.step_price() if in_epochs else entry.cost.total * ledger.budget.per_second(ledger.workers)
        if entry.is_finished:
            seen[entry.trial] = entry.step
            reached = ledger.trials[entry.trial].losses[entry.step - 1]
            if reached is not None and reached <= loss:
                return cost
    return None
