"""What a budget buys, spending nothing: the policy is run on made-up curves and its purchases are counted.

The curves fall at random speeds to random levels, so the plan shows the policy's shape (how many trials, how far each),
not its success. A budget of time or money needs the price of a step.

What another policy would have done with the same curves: a study's own receipts as a source for simulation.

A curve is known only as far as it was bought; beyond that the replayed trial ends, as if its training code had. What a
policy asked for there is counted: it gets the study's early stops for free, and looks better than it is. The space of a
replay is the list of configs that were really trained. A step costs what it did the first time, setup included.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

from shoestring import policies
from shoestring.core.deciding.policy import Policy, warn_of_small_budget
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Note, Opened, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import stream
from shoestring.core.values.strict_json import dumps
from shoestring.errors import BudgetError, StudyError
from shoestring.runners.simulated.simulated_runner import Simulated, StepOutcome
from shoestring.study.loop import run_in_memory


@dataclass(frozen=True)
class MadeUp:
    """Curves that fall at random speeds to random levels, each config its own."""

    seed: int
    step_s: float

    def step(self, config: Config, step: int) -> StepOutcome:
        start, end, speed = stream(self.seed, dumps(config)).random(3)
        return StepOutcome(float(end + (1 + start) / (1 + speed * step)), Cost(train=self.step_s))


@dataclass(frozen=True)
class Purchases:
    """What a budget bought on made-up curves."""

    ledger: Ledger
    trials_by_steps: dict[int, int]  # {steps trained: number of trials}, most trained first
    warning: str | None  # where the budget is too small for this policy


def plan(opened: Opened, policy: Policy, step_s: float) -> Purchases:
    if opened.budget.unit != "epochs" and not 0 < step_s < math.inf:
        raise BudgetError(f"a plan for {opened.budget} needs the seconds of a step, above 0, not {step_s!r}")
    runner = Simulated(MadeUp(opened.seed, step_s), opened.workers)
    ledger = run_in_memory(Ledger([opened]), policy, runner).ledger
    counts = Counter(trial.steps for trial in ledger.trials)
    in_epochs = opened.budget.unit == "epochs"
    per_step = ledger.step_price() if in_epochs else step_s * opened.budget.per_second(opened.workers)
    full_trainings = opened.budget.total / (per_step * opened.max_steps)
    warning = warn_of_small_budget(policy, full_trainings, opened.max_steps)
    return Purchases(ledger, dict(sorted(counts.items(), reverse=True)), warning)


class Recorded:
    """A study's own receipts, as a source of simulated curves."""

    def __init__(self, ledger: Ledger) -> None:
        self._trials = {dumps(trial.config): trial for trial in reversed(ledger.trials)}
        self._costs: dict[tuple[int, int], Cost] = {}  # by trial and step
        self._cost_of_failure: dict[int, Cost] = {}  # by trial
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


@dataclass(frozen=True)
class Replay:
    """What another policy made of the recorded curves, beside what the study itself did."""

    ledger: Ledger
    winner: Trial  # of the real study
    winner_steps: int  # how far the replayed policy trained that config
    winner_frozen: bool  # whether it stopped short of the winning step
    price: float | None  # of all steps until it was as good as the real study; None: it never was
    real_price: float  # the same for the study itself
    bought_steps: int = 0  # that the replayed policy asked for and the study had recorded
    missing_steps: int = 0  # that it asked for beyond the end of a recorded curve

    @property
    def missing_share(self) -> float:
        """Of all steps that the replayed policy asked for, those that nobody knows."""
        return self.missing_steps / max(1, self.bought_steps + self.missing_steps)


def replay(ledger: Ledger, policy: Policy, budget: Budget | None = None) -> Replay:
    winner = ledger.best
    if winner is None:
        raise StudyError("there is nothing to replay: no step of this study was validated")
    for trial in ledger.trials:
        if None in trial.losses:
            raise StudyError(
                f"step {trial.losses.index(None) + 1} of trial {trial.number} was not validated, so a replay cannot know its "
                "value: replay studies that validate every step"
            )
    known = [trial for trial in ledger.trials if trial.steps or trial.failure]
    configs = list({dumps(trial.config): trial.config for trial in known}.values())
    scales = [name for name in ledger.space.log_names if any(name in config for config in configs)]
    opened: Opened = replace(
        ledger.opened,
        space=Space.listed(configs, log=scales),
        budget=budget or ledger.budget,
        policy=policy.name,
        settings=policies.settings_of(policy),
    )
    runner = Simulated(Recorded(ledger), ledger.workers)
    ending = run_in_memory(Ledger([opened]), policy, runner)
    again = next((t for t in ending.ledger.trials if dumps(t.config) == dumps(winner.config)), None)
    steps = again.steps if again else 0
    price, real_price = (price_of(one, winner.best_loss) for one in (ending.ledger, ledger))
    assert real_price is not None
    bought = sum(trial.steps for trial in ending.ledger.trials)
    missing = _count_missing(ending.ledger)
    return Replay(ending.ledger, winner, steps, steps < winner.best_step, price, real_price, bought, missing)


def _count_missing(replayed: Ledger) -> int:
    """Steps that were ordered beyond the end of a curve."""
    ends = [entry.facts for entry in replayed.entries() if isinstance(entry, Note) and entry.topic == "ended"]
    return sum(replayed.orders[facts["order"]].until - facts["step"] for facts in ends)


def price_of(ledger: Ledger, loss: float) -> float | None:
    """What the steps bought until one was as good as `loss` cost, each of them once; None if none was."""
    price, seen = 0.0, [0] * len(ledger.trials)
    for entry in ledger.entries():
        if not isinstance(entry, Receipt) or entry.step <= seen[entry.trial]:
            continue
        in_epochs = ledger.budget.unit == "epochs"
        price += ledger.step_price() if in_epochs else entry.cost.total * ledger.budget.per_second(ledger.workers)
        if entry.is_finished:
            seen[entry.trial] = entry.step
            reached = ledger.trials[entry.trial].losses[entry.step - 1]
            if reached is not None and reached <= loss:
                return price
    return None
