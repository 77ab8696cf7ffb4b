"""What a budget buys, spending nothing: the policy is run on made-up curves and its purchases are counted.

The curves fall at random speeds to random levels, so the plan shows the policy's shape (how many trials, how far each),
not its success. A budget of time or money needs the price of a step.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from shoestring.core.entries import Cost, Opened
from shoestring.core.initial_design import warn_of_small_budget
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.core.space import Config
from shoestring.core.streams import stream
from shoestring.core.strict_json import dumps
from shoestring.errors import BudgetError
from shoestring.runners.simulated import Simulated, StepOutcome
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
