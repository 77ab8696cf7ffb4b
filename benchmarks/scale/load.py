"""The study that is simulated at every size: cheap to compute, so that what is measured is ours."""

from __future__ import annotations

from shoestring import policies
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Cost, Opened
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome

SPACE = Space({"end": Float(0, 1), "rate": Float(0, 1), "pace": Float(0, 1)})
MAX_STEPS = 81
EPOCHS_A_WORKER = 40
SETTINGS = {"thrift": {"most_curves": 1e9}}  # asked throughout: by itself it leaves so large a study to halving


class FallingCurves:
    """A power law to an end of its own; a step takes half a second to two."""

    def step(self, config: Config, step: int) -> StepOutcome:
        end = float(config["end"])
        value = end + (1.0 - end) * float(step) ** -(0.3 + float(config["rate"]))
        return StepOutcome(value, Cost(train=2.0 ** (2.0 * float(config["pace"]) - 1.0)))


def begin(policy: str, epochs: int, workers: int) -> Ledger:
    made = policies.make(policy, SETTINGS.get(policy))
    opened = Opened(
        space=SPACE,
        budget=Budget(f"{epochs} epochs"),
        policy=policy,
        settings=policies.settings_of(made),
        seed=1,
        max_steps=MAX_STEPS,
        workers=workers,
    )
    return Ledger([opened])
