"""Cases of `boil`: 500 points in the model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.speed.measure import DECISIONS, Case, begin_study, carry_out
from shoestring import policies
from shoestring.core.deciding.decision import Train
from shoestring.core.ledger.entries import Cost, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome


@dataclass(frozen=True)
class LogisticRewards:
    """Rewards that rise like a logistic curve; six parameters set its height and speed, and the first one the cost."""

    steps: int

    def step(self, config: Config, step: int) -> StepOutcome:
        u = np.array([config[f"x{j}"] for j in range(6)])
        height = 100.0 * np.exp(-2.0 * ((u - 0.6) ** 2).sum())
        reward = height / (1.0 + np.exp(6.0 - (6.0 + 10.0 * u[1]) * step / self.steps))
        wobble = 3.0 * np.sin(step * (1.0 + 7.0 * u[2]))
        return StepOutcome(float(reward + wobble), Cost(train=0.5 + float(u[0])))


def cases() -> list[Case]:
    """Return the cases: six dimensions, up to 100 steps, about 500 points in the model, prefixes of runs included."""
    steps, points = 100, 500
    space = Space({f"x{j}": Float(0.0, 1.0) for j in range(6)})
    source, policy = LogisticRewards(steps), policies.make("boil")

    def begin() -> Ledger:
        ledger = begin_study(policy, space, "1e9s", direction="max", max_steps=steps)
        rng = np.random.default_rng(0)
        while len(ledger.trials) % 10 or stored(ledger) < points - DECISIONS:
            number, until = len(ledger.trials), int(rng.integers(60, steps + 1))
            order = Order(number=number, trial=number, config=space.from_cube(rng.random(6)), until=until)
            ledger = carry_out(ledger, order, source)
        return ledger

    def stored(ledger: Ledger) -> int:
        decision = policy.decide(ledger, ledger.decision_rng())
        return int(decision.why.get("points", 0)) if isinstance(decision, Train) else 0  # type: ignore[arg-type]

    return [Case("boil_500", policy, begin, source, 500.0)]
