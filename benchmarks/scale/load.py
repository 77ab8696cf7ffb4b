"""The study that is simulated at every size. It is cheap to compute, so the measured time is that of the package."""

from __future__ import annotations

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome

SPACE = Space({"end": Float(0, 1), "rate": Float(0, 1), "pace": Float(0, 1)})
MAX_STEPS = 81
EPOCHS_A_WORKER = 40


class FallingCurves:
    """Curves that follow a power law to an end of their own, with steps of half a second to two seconds."""

    def step(self, config: Config, step: int) -> StepOutcome:
        end = float(config["end"])
        value = end + (1.0 - end) * float(step) ** -(0.3 + float(config["rate"]))
        return StepOutcome(value, Cost(train=2.0 ** (2.0 * float(config["pace"]) - 1.0)))


def begin(policy: str, epochs: int, workers: int) -> Ledger:
    definition = StudyDefinition(
        space=SPACE,
        budget=Budget(f"{epochs} epochs"),
        policy=policy,
        settings=policies.settings_of(policies.make(policy)),
        seed=1,
        max_steps=MAX_STEPS,
        workers=workers,
    )
    return Ledger([definition])
