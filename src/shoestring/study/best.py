"""What a user reads of a study: its best step and how to load its model, and its trials with options that are objects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config, Space
from shoestring.errors import RunnerError, StudyError, warn


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
        The checkpoint of exactly this step; None if there is none, if it is stored at `address`, or if it is not the one that was
        saved: then a warning says so.
    max_steps : int
        The number of steps of a full training.
    address : str or None
        The address of the checkpoint, if checkpoints are not stored in a folder.
    """

    config: Config
    value: float
    trial: int
    step: int
    max_steps: int = 1
    address: str | None = None
    _path: Path | None = field(default=None, repr=False)  # where the checkpoint is
    _digest: str = field(default="", repr=False)  # of the checkpoint that was saved; empty: it was saved without one

    @cached_property  # a large checkpoint takes a moment
    def checkpoint(self) -> Path | None:
        """The checkpoint of exactly this step, if it is the one that was saved."""
        if self._path is None or self._is_unchanged(self._path):
            return self._path
        warn(f"{self._describe_change(self._path)}: study.retrain_best(train) trains the model again")
        return None

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
            If there is no checkpoint of this step, or it is not the one that was saved; `Study.retrain_best` then trains it
            again.
        RunnerError
            If the class has no `load(path)`.
        """
        from shoestring.runners.checkpoints.remote_store import fetch
        from shoestring.runners.training.code import load_trainer, shape_of

        path = fetch(self.address) if self.address is not None else self._path
        if path is not None and not self._is_unchanged(path):
            raise StudyError(
                f"{self._describe_change(self.address or path)}: study.retrain_best(train) trains the model again"
            )
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

    def _is_unchanged(self, path: Path) -> bool:
        from shoestring.runners.checkpoints.digest import compute_digest

        return not self._digest or compute_digest(path) == self._digest

    def _describe_change(self, where: Path | str) -> str:
        step = f"step {self.step} of trial {self.trial}"
        return f"the checkpoint {where} of {step} is not the one that was saved, so it is not used"


def make_best(trial: Trial, checkpoint: Path | str | None, max_steps: int, space: Space, digest: str) -> Best:
    """Return the best step of a trial; `checkpoint` is its path or address, and `digest` what it must contain."""
    assert trial.best_config is not None
    assert trial.best_value is not None
    path, address = (None, checkpoint) if isinstance(checkpoint, str) else (checkpoint, None)
    config = space.with_objects(trial.best_config)
    return Best(config, trial.best_value, trial.number, trial.best_step, max_steps, address, path, digest)


class TrialsWithObjects(Sequence[Trial]):
    """The trials of a study whose configs have options that are objects, where the ledger has texts.

    Each access makes a copy of a trial, so that the ledger keeps its texts.
    """

    def __init__(self, trials: Sequence[Trial], space: Space) -> None:
        self._trials, self._space = trials, space

    def __len__(self) -> int:
        return len(self._trials)

    def __getitem__(self, which: Any) -> Any:
        found = self._trials[which]
        return [*map(self._copy, found)] if isinstance(which, slice) else self._copy(found)

    def __iter__(self) -> Iterator[Trial]:
        return map(self._copy, self._trials)

    def _copy(self, trial: Trial) -> Trial:
        best = trial.best_config if trial.best_config is None else self._space.with_objects(trial.best_config)
        return replace(trial, config=self._space.with_objects(trial.config), best_config=best)
