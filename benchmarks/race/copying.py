"""A runner that can start a trial as a copy of another trial, as population-based training requires.

The order that opens such a trial names the source trial in its `why`, under the key `copy_of`. The runner copies the model of
the source in its present state and then sets the new hyperparameters. The time of copying is charged to the new trial. In the
ledger a copy is an ordinary trial whose steps count from 1.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner

COPY_OF = "copy_of"


class CopyingLocalRunner(LocalRunner):
    """A local runner whose `trainer` is a class with `step`, `validate` and, for copies, `change(config)`."""

    def __init__(self, trainer: Any, checkpoints: Checkpoints, live: int) -> None:
        models: dict[int, Any] = {}  # {trial: its model}
        runner = self

        class Training:
            def __init__(self, config: Config) -> None:
                order = runner._order
                assert order is not None
                source = order.why.get(COPY_OF)
                self.model = trainer(config) if source is None else deepcopy(models[int(source)])
                if source is not None:
                    self.model.change(config)
                models[order.trial] = self.model

            def step(self) -> None:
                self.model.step()

            def validate(self) -> float:
                value: float = self.model.validate()
                return value

        super().__init__(Training, checkpoints, live=live)
