"""Which checkpoints are kept: the newest of each trial and the one of the best step so far; all others are deleted.

The predecessor of a checkpoint goes only when the next one is saved: the receipt of a step is stored after its checkpoint, and
a crash in between must not cost the whole trial. When `at_most_bytes` is exceeded, the oldest newest-ones go, except the best:
their trials can then go on only from the start.

Where they are kept is the storage's business (`storage`): a folder, or a place on the network. What is there is read once, when
a study is taken up; from then on the index is here.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Lost
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.archive import remove_empty_folders, temporary_folder
from shoestring.runners.checkpoints.checkpoint_store import Folder, Storage, Stored, name_step, open_storage
from shoestring.runners.checkpoints.trial_logs import remove_empty_logs

_WORK_PER_SAVE = 50  # a trial is saved when it has so many times more unsaved work than a save takes: 2 % of its time


class Checkpoints:
    """The checkpoints of one study; see the module for what is kept."""

    def __init__(self, where: Path | str | Storage, at_most_bytes: float = float("inf")) -> None:
        self.storage = open_storage(where) if isinstance(where, str | Path) else where
        self.at_most_bytes = at_most_bytes
        self._index: dict[int, dict[int, Stored]] | None = None  # read when it is first needed
        self._desk: Path | None = None  # on this machine, for what does not lie in a folder
        self._best: tuple[int, int] | None = None  # (trial, step) of the best value, whether or not it was saved
        self.best_loss = float("inf")
        self.sign = 1.0
        self._untidy: set[int] = set()  # trials that hold a best which has been beaten, or a predecessor
        self._save_s: dict[int, float] = {}  # how long the last save of a trial took
        self._newest_save_s = 0.0  # and of any: the first trial is saved at once, to know

    def start(self, ledger: Ledger, *, is_needed: bool = True) -> dict[int, int]:
        """Take up a study: {trial: step} of what is kept. A checkpoint beyond what was recorded is not trusted.

        A place that `is_needed`, because the code may save, is tried out before anything is bought.
        """
        self.sign = ledger.books.sign
        # In a folder another study may have left something, whatever this one does.
        is_local = isinstance(self.storage, Folder)
        if is_needed and not is_local:
            self.storage.try_out()
        self._index = self.storage.list() if is_needed or is_local else {}
        if not ledger.trials and self._index:  # left by another study of this name: put aside, never mixed up
            self.storage.put_aside()
            self._index = {}
        if is_needed and is_local:
            self.storage.try_out()
        if is_needed:
            self.storage.clear_attempts()
        if best := ledger.best:
            self._best, self.best_loss = (best.number, best.best_step), best.best_loss
        found = {}
        for trial in ledger.trials:
            for step in self._steps(trial.number):
                if step > trial.steps:
                    self._delete(trial.number, step)
            self._untidy.add(trial.number)
            if step := self.newest(trial.number):
                found[trial.number] = step
        return found

    def close(self) -> None:
        """Leave no empty files and folders behind."""
        root = self.root
        folders = [path for path in root.glob("trial-*") if path.is_dir()]
        remove_empty_logs(folders)
        remove_empty_folders([*folders, root, *([root.parent] if root.parent.name.endswith(".checkpoints") else [])])

    @property
    def root(self) -> Path:
        """A folder on this machine: that of the checkpoints if they lie in one, else a temporary one for logs."""
        if isinstance(self.storage, Folder):
            return self.storage.root
        self._desk = self._desk or temporary_folder(self)
        return self._desk

    def folder(self, trial: int) -> Path:
        return Folder(self.root).folder(trial)

    def path(self, trial: int, step: int) -> Path:
        return Folder(self.root).path(trial, step)

    def find_step(self, trial: int, step: int, newest: int) -> Path | str | None:
        """Where exactly this step is kept, if it is. A program keeps one folder, which holds the `newest` step it saved."""
        if stored := self._found(trial, step):
            return self.storage.locate(trial, stored.name)
        own = self.folder(trial) / "checkpoint"
        return own if step == newest and own.is_dir() and any(own.iterdir()) else None

    def path_to_thaw(self, trial: int, step: int) -> Path | None:
        """Where a trial goes on from, on this machine; None: from nothing."""
        if not step:
            return None
        stored = self._found(trial, step)
        try:
            return self.storage.get(trial, stored.name if stored else name_step(step), self.folder(trial) / "thawed")
        except FileNotFoundError:
            raise RunnerError(
                f"the checkpoint of step {step} of trial {trial} is gone from {self.storage.where}: "
                "start again, and the study goes on without it"
            ) from None

    def newest(self, trial: int, up_to: int | None = None) -> int:
        """The newest step that is kept, 0 if there is none."""
        known = sorted(self._steps(trial), reverse=True)
        return next((s for s in known if (up_to is None or s <= up_to) and self._found(trial, s)), 0)

    def is_due(self, trial: int, step: int, value: float | None, *, last: bool, unsaved_s: float) -> bool:
        """Whether to save after this step: at the last one, at a new best, or when its unsaved work is worth a save.

        A kill costs a trial no more than that: 50 times as long as saving it takes, or a step where that is longer.
        """
        better = value is not None and math.isfinite(value) and self.sign * value < self.best_loss
        if better and value is not None:
            if self._best is not None:
                self._untidy.add(self._best[0])
            self._best, self.best_loss = (trial, step), self.sign * value
        return last or better or unsaved_s > _WORK_PER_SAVE * self.expect_save_s(trial)

    def expect_save_s(self, trial: int) -> float:
        """How long saving it would take: as the last time, else as long as the newest save of any trial."""
        return self._save_s.get(trial, self._newest_save_s)

    def save(self, trial: int, step: int, write: Callable[[Path], Any]) -> float:
        """Write a checkpoint and tidy up; returns the seconds it took."""
        began = time.monotonic()
        write(self.partial_path(trial, step))
        return self.keep(trial, step, time.monotonic() - began)

    def partial_path(self, trial: int, step: int) -> Path:
        """Where a checkpoint is written, by whomever, before `keep` takes it to its place."""
        return self.storage.scratch(trial, step)

    def keep(self, trial: int, step: int, written_s: float) -> float:
        """Take a written checkpoint to its place and tidy up; returns the seconds it took, writing included."""
        began = time.monotonic()
        parcel = self.storage.put(trial, step)
        return self.keep_put(trial, step, written_s + time.monotonic() - began, parcel=parcel)

    def keep_put(
        self, trial: int, step: int, written_s: float, attempt: str = "", parcel: bytes | None = None
    ) -> float:
        """The same for what was put there already, by a worker on another machine."""
        began = time.monotonic()
        before, former = self.newest(trial, up_to=step - 1), self._found(trial, step)
        stored = self.storage.keep(trial, step, attempt, parcel)
        if former is not None and former.name != stored.name:
            self.storage.delete(trial, former.name)
        self._entries.setdefault(trial, {})[step] = stored
        for untidy in self._untidy - {trial}:  # only now: a former best goes when its better is safely kept
            self._tidy(untidy)
        self._tidy(trial, before)
        self._untidy = {trial}
        self._save_s[trial] = self._newest_save_s = written_s + time.monotonic() - began
        return self._newest_save_s

    def _tidy(self, trial: int, spared: int = 0) -> None:
        """Delete what no longer serves: all of this trial's but the newest, the best and the one to be spared."""
        newest = self.newest(trial)
        for step in self._steps(trial):
            if step not in (newest, spared) and (trial, step) != self._best:
                self._delete(trial, step)

    def drop_over_limit(self, keep: set[int]) -> list[Lost]:
        """Delete what the limit has no room for, the oldest trials first; those in `keep` and the best stay."""
        if self._index is None:  # no study was taken up: its place may be the very thing that failed
            return []
        if self._total_bytes() > self.at_most_bytes:
            for trial in self._untidy:  # rather a step to be run again after a crash than a whole trial now
                self._tidy(trial)
        best = self._best[0] if self._best else None
        lost: list[Lost] = []
        for trial in sorted((t for t in self._entries if t != best and t not in keep), key=self._age):
            if self._total_bytes() <= self.at_most_bytes:
                break
            if steps := self._steps(trial):
                lost.append(Lost(trial=trial, held=0, why="its checkpoint went over the limit"))
                for step in steps:
                    self._delete(trial, step)
        return lost

    def name(self, trial: int, step: int) -> str:
        """What a kept step is called in its storage."""
        return self._entries[trial][step].name

    def forget(self, trial: int, step: int) -> None:
        """It was looked for, and is gone."""
        self._entries[trial].pop(step, None)

    # the index ---------------------------------------------------------------------------------------------------------

    @property
    def _entries(self) -> dict[int, dict[int, Stored]]:
        if self._index is None:
            self._index = self.storage.list()
        return self._index

    def _steps(self, trial: int) -> list[int]:
        return list(self._entries.get(trial, ()))

    def _found(self, trial: int, step: int) -> Stored | None:
        """What is kept of this step, if it is still there."""
        stored = self._entries.get(trial, {}).get(step)
        return stored if stored is not None and self.storage.has(trial, stored.name) else None

    def _delete(self, trial: int, step: int) -> None:
        self.storage.delete(trial, self._entries[trial].pop(step).name)

    def _age(self, trial: int) -> float:
        return max((stored.at for stored in self._entries[trial].values()), default=0.0)

    def _total_bytes(self) -> int:
        return sum(stored.size_bytes for steps in self._entries.values() for stored in steps.values())
