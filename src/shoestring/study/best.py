"""`Best`: the best step of a study, and how to load its model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config
from shoestring.errors import RunnerError, StudyError


@dataclass(frozen=True)
class Best:
    """The step with the best value in a study.

    A step has a value if it was validated. In most studies that is every step. If the training class has a method `validate`,
    the value is what this method returns; otherwise it is the loss that the training code reports with the step. A value that
    is not a finite number does not count.

    Attributes
    ----------
    config : mapping
        The configuration of the trial at that step.
    value : float
        The value of the step, as the training code reported it.
    trial : int
        The number of the trial.
    step : int
        The number of the step, from 1.
    checkpoint : Path or None
        The checkpoint of exactly this step; None if there is none, or if it is stored at `address`.
    max_steps : int
        The number of steps of a full training.
    address : str or None
        The address of the checkpoint, if checkpoints are not stored in a folder.
    """

    config: Config
    value: float
    trial: int
    step: int
    checkpoint: Path | None
    max_steps: int = 1
    address: str | None = None

    def load(self, train: Any = None) -> Any:
        """Return the model of the best step, if the training code can save checkpoints.

        Parameters
        ----------
        train : type, optional
            The training class with `load(path)`.

        Returns
        -------
        object or Path
            With a class, an instance that has loaded the checkpoint. Otherwise the path of the checkpoint, which the training
            code can load itself.

        Raises
        ------
        StudyError
            If there is no checkpoint of this step; `Study.retrain_best` then trains it again.
        RunnerError
            If the class has no `load(path)`.
        """
        from shoestring.runners.checkpoints.remote_store import fetch
        from shoestring.runners.training.code import load_trainer, shape_of

        path = fetch(self.address) if self.address is not None else self.checkpoint
        if path is None:
            raise StudyError(
                f"step {self.step} of trial {self.trial} has no checkpoint: study.retrain_best(train) trains it again; "
                "code that can save has a checkpoint of its best step"
            )
        if train is None or shape_of(train) != "class":
            return path
        if not hasattr(train, "load"):
            raise RunnerError(f"the class {train.__name__} has no load(path): give the class that saved the checkpoint")
        return load_trainer(train, self.config, self.step, path, self.max_steps)


def make_best(trial: Trial, checkpoint: Path | str | None, max_steps: int) -> Best:
    """Return the best step of a trial; `checkpoint` is its path or address."""
    assert trial.best_config is not None
    assert trial.best_value is not None
    path, address = (None, checkpoint) if isinstance(checkpoint, str) else (checkpoint, None)
    return Best(trial.best_config, trial.best_value, trial.number, trial.best_step, path, max_steps, address)
