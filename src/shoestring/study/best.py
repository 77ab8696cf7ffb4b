"""The best that a study bought, and how to have the model itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config
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
    address: str | None = None  # the same as `checkpoint`, when checkpoints are kept elsewhere than in a folder

    @classmethod
    def of(cls, trial: Trial, value: float, kept: Path | str | None, max_steps: int) -> Best:
        assert trial.best_config is not None
        path, address = (None, kept) if isinstance(kept, str) else (kept, None)
        return cls(trial.best_config, value, trial.number, trial.best_step, path, max_steps, address)

    def load(self, train: Any = None) -> Any:
        """The model of the best step, for code that can save.

        With a class: an instance that has loaded the checkpoint, ready for more. A generator or a program loads by itself
        and knows its own format: without a class this is the checkpoint's path.
        """
        from shoestring.runners.checkpoints.remote_store import fetch
        from shoestring.runners.training.code import load_trainer, shape_of

        path = fetch(self.address) if self.address is not None else self.checkpoint
        if path is None:
            raise StudyError(
                f"step {self.step} of trial {self.trial} was not kept: study.retrain_best(train) trains it again, "
                "and code that can save keeps it the next time"
            )
        if train is None or shape_of(train) != "class":
            return path
        if not hasattr(train, "load"):
            raise RunnerError(f"the class {train.__name__} has no load(path): give the class that saved the checkpoint")
        return load_trainer(train, self.config, self.step, path, self.max_steps)
