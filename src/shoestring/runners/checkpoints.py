"""Checkpoints on disk: one folder per trial, one file (or folder, as the training code likes) per step.

    ROOT/trial-0007/step-000012

A checkpoint is written beside its place and renamed into it, so what has the right name is whole. Kept are the newest of
each trial and the one of the best step so far; all others are deleted. Its predecessor goes only when the next one is
saved: the receipt of a step is stored after its checkpoint, and a crash in between must not cost the whole trial. When
`at_most_bytes` is exceeded, the oldest newest-ones go, except the best: their trials can then go on only from the start.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoestring.core.entries import Lost
from shoestring.core.ledger import Ledger
from shoestring.errors import RunnerError
from shoestring.runners.groups import IS_WINDOWS
from shoestring.runners.logs import remove_empty_logs

_STEP = re.compile(r"step-(\d+)")
_TRIAL = re.compile(r"trial-(\d+)")
_WORK_PER_SAVE = 50  # a trial is saved when it has so many times more unsaved work than a save takes: 2 % of its time


class Checkpoints:
    """The checkpoints of one study; see the module for what is kept."""

    def __init__(self, root: Path, at_most_bytes: float = float("inf")) -> None:
        self.root = root.absolute()
        self.at_most_bytes = at_most_bytes
        self._best: tuple[int, int] | None = None  # (trial, step) of the best value, whether or not it was saved
        self._best_loss = float("inf")
        self._sign = 1.0
        self._untidy: set[int] = set()  # trials that hold a best which has been beaten, or a predecessor
        self._save_s: dict[int, float] = {}  # how long the last save of a trial took
        self._newest_save_s = 0.0  # and of any: the first trial is saved at once, to know

    def start(self, ledger: Ledger, *, is_needed: bool = True) -> dict[int, int]:
        """Take up a study: {trial: step} of what is on disk. A checkpoint beyond what was recorded is not trusted.

        A folder that `is_needed`, because the code may save, is tried out before anything is bought.
        """
        self._sign = ledger.books.sign
        if not ledger.trials and self._trials():  # left by another study of this name: put aside, never mixed up
            self.root.rename(_find_unused_name(self.root))
        if is_needed:
            self._try_out()
        if best := ledger.best:
            self._best, self._best_loss = (best.number, best.best_step), best.best_loss
        found = {}
        for trial in ledger.trials:
            for step in self._steps(trial.number):
                if step > trial.steps:
                    _remove(self.path(trial.number, step))
            self._untidy.add(trial.number)
            if step := self.newest(trial.number):
                found[trial.number] = step
        return found

    def close(self) -> None:
        """Leave no empty files and folders behind."""
        folders = [self.folder(trial) for trial in self._trials()]
        remove_empty_logs(folders)
        for folder in (*folders, self.root, self.root.parent):
            if folder != self.root.parent or folder.name.endswith(".checkpoints"):
                with contextlib.suppress(OSError):  # it holds something
                    folder.rmdir()

    def path(self, trial: int, step: int) -> Path:
        return self.folder(trial) / f"step-{step:06d}"

    def find_step(self, trial: int, step: int, newest: int) -> Path | None:
        """Where exactly this step is kept, if it is. A program keeps one folder, which holds the `newest` step it saved."""
        if (path := self.path(trial, step)).exists():
            return path
        own = self.folder(trial) / "checkpoint"
        return own if step == newest and own.is_dir() and any(own.iterdir()) else None

    def folder(self, trial: int) -> Path:
        return self.root / f"trial-{trial:04d}"

    def path_to_thaw(self, trial: int, step: int) -> Path | None:
        """Where a trial goes on from; None: from nothing."""
        return self.path(trial, step) if step else None

    def newest(self, trial: int, up_to: int | None = None) -> int:
        """The newest step on disk, 0 if there is none."""
        return max((s for s in self._steps(trial) if up_to is None or s <= up_to), default=0)

    def is_due(self, trial: int, step: int, value: float | None, *, last: bool, unsaved_s: float) -> bool:
        """Whether to save after this step: at the last one, at a new best, or when its unsaved work is worth a save.

        A kill costs a trial no more than that: 50 times as long as saving it takes, or a step where that is longer.
        """
        better = value is not None and math.isfinite(value) and self._sign * value < self._best_loss
        if better and value is not None:
            if self._best is not None:
                self._untidy.add(self._best[0])
            self._best, self._best_loss = (trial, step), self._sign * value
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
        """Where a checkpoint is written, by whomever, before `keep` puts it into its place."""
        path = self.path(trial, step)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(path.name + ".partial")
        _remove(partial)
        return partial

    def keep(self, trial: int, step: int, written_s: float) -> float:
        """Put a written checkpoint into its place and tidy up; returns the seconds it took, writing included."""
        began = time.monotonic()
        path = self.path(trial, step)
        partial = path.with_name(path.name + ".partial")
        if not partial.exists():
            raise FileNotFoundError(
                f"save(path) returned without writing {partial.name}: write to the path it is given"
            )
        for file in _files(partial):
            with file.open("r+b" if IS_WINDOWS else "rb") as written:  # there, only a writer may flush
                os.fsync(written.fileno())
        before = self.newest(trial, up_to=step - 1)
        _remove(path)
        partial.rename(path)
        for untidy in self._untidy - {trial}:  # only now: a former best goes when its better is safely on disk
            self._tidy(untidy)
        self._tidy(trial, before)
        self._untidy = {trial}
        self._save_s[trial] = self._newest_save_s = written_s + time.monotonic() - began
        return self._newest_save_s

    def _try_out(self) -> None:
        probe = self.root / f"probe-{os.getpid()}"
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            probe.write_bytes(b"can be written")
            probe.unlink()
        except OSError as error:
            raise RunnerError(
                f"the checkpoint folder {self.root} cannot be used: {error.strerror or error}: make it writable, or put "
                "the study's store where there is room, with --store (store=)"
            ) from None

    def _tidy(self, trial: int, spared: int = 0) -> None:
        """Delete what no longer serves: all of this trial's but the newest, the best and the one to be spared."""
        newest = self.newest(trial)
        for step in self._steps(trial):
            if step not in (newest, spared) and (trial, step) != self._best:
                _remove(self.path(trial, step))

    def drop_over_limit(self, keep: set[int]) -> list[Lost]:
        """Delete what the limit has no room for, the oldest trials first; those in `keep` and the best stay."""
        if self.at_most_bytes == float("inf"):
            return []
        if sum(self._sizes().values()) > self.at_most_bytes:
            for trial in self._untidy:  # rather a step to be run again after a crash than a whole trial now
                self._tidy(trial)
        sizes = self._sizes()
        total, lost = sum(sizes.values()), []
        best = self._best[0] if self._best else None
        by_age = sorted(sizes, key=lambda t: self.path(t, self.newest(t)).stat().st_mtime if self.newest(t) else 0.0)
        for trial in by_age:
            if total <= self.at_most_bytes:
                break
            if sizes[trial] and trial not in keep and trial != best:
                total -= sizes[trial]
                lost.append(Lost(trial=trial, held=0, why="its checkpoint went over the limit"))
                for step in self._steps(trial):
                    _remove(self.path(trial, step))
        return lost

    def _sizes(self) -> dict[int, int]:
        return {t: sum(_size(self.path(t, s)) for s in self._steps(t)) for t in self._trials()}

    def _steps(self, trial: int) -> list[int]:
        folder = self.folder(trial)
        if not folder.is_dir():
            return []
        return [int(found[1]) for entry in folder.iterdir() if (found := _STEP.fullmatch(entry.name))]

    def _trials(self) -> list[int]:
        if not self.root.is_dir():
            return []
        return [int(found[1]) for entry in self.root.iterdir() if (found := _TRIAL.fullmatch(entry.name))]


def _find_unused_name(path: Path) -> Path:
    return next(p for n in itertools.count(1) if not (p := path.with_name(f"{path.name}.old-{n}")).exists())


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _files(path: Path) -> list[Path]:
    return [file for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file()]


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in _files(path))
