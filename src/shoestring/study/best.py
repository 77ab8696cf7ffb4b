"""The best that a study bought, and how to have the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.space import Config
from shoestring.errors import RunnerError, StudyError


@dataclass(frozen=True)
class Best:
    """The best value that was bought, and what it takes to have it again."""

    config: Config
    value: float
    trial: int
    step: int
    checkpoint: Path | None  # of exactly this step, when the training code can save
    max_steps: int = 1  # of a full training

    def load(self, train: Any = None) -> Any:
        """The model of the best step, for code that can save.

        With a class: an instance that has loaded the checkpoint, ready for more. A generator or a program loads by itself
        and knows its own format: without a class this is the checkpoint's path.
        """
        from shoestring.runners.training import load_trainer, shape_of

        if self.checkpoint is None:
            raise StudyError(
                f"step {self.step} of trial {self.trial} was not kept: study.retrain_best(train) trains it again, "
                "and code that can save keeps it the next time"
            )
        if train is None or shape_of(train) != "class":
            return self.checkpoint
        if not hasattr(train, "load"):
            raise RunnerError(f"the class {train.__name__} has no load(path): give the class that saved the checkpoint")
        return load_trainer(train, self.config, self.step, self.checkpoint, self.max_steps)
