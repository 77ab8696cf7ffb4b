"""Trainings that may begin as a copy of another with other hyperparameters: what population-based training asks for.

The order that opens such a trial says so in its `why`, as `copy_of`: a trial. That training is copied as it stands, on the
clock of the new one. In the ledger a copy is a trial like any other, whose steps count from its own beginning.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from shoestring.core.space.space import Config
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import Local

COPY_OF = "copy_of"


class CopyingLocal(Local):
    """`trainer`: a class with `step`, `validate` and, for copies, `change(config)`."""

    def __init__(self, trainer: Any, checkpoints: Checkpoints, live: int) -> None:
        models: dict[int, Any] = {}  # by trial
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
