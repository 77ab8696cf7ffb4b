"""Decide which checkpoints of a study are kept, and keep the index of them.

The newest checkpoint of each trial is kept, and the checkpoint of the study's best step. All others are deleted. The trial that
was saved most recently also keeps the checkpoint before its newest one, because a checkpoint is saved before the receipt of its
step is stored: if the process is killed in between, the newest checkpoint belongs to a step that was never recorded, and is
deleted at the next start. The trial then continues from the checkpoint before it.

If the checkpoints take more than `at_most_bytes`, those of the least recently saved trials are deleted, except that of the best
step. Such a trial can continue only from its first step.

**Seals.** The ledger keeps the digest of every checkpoint that was saved (`take_notes` returns the entries). A checkpoint is read
only if it has this digest: damage and changes by others are noticed, and the trial continues from the checkpoint before it. So a
checkpoint has to be trusted no more than the ledger. A checkpoint without a digest, such as one that was saved a moment before
the process was killed, is deleted at the next start. `StudyState.find_digest` has the exception for older studies.

The files are in a `CheckpointStore`: a folder, or a place on the network. Its contents are listed once, when a run begins; from
then on the index is in this object.
"""

from __future__ import annotations

import math
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoestring.core.ledger.entries import Note, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import ChangedCheckpoint, CheckpointSeal
from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.checkpoint_store import (
    CheckpointStore,
    FolderStore,
    PutCheckpoint,
    StoredCheckpoint,
    open_checkpoint_store,
    own_folders,
)
from shoestring.runners.checkpoints.digest import compute_digest
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder
from shoestring.runners.checkpoints.trial_logs import remove_empty_folders, remove_empty_logs

# A trial is saved when its unsaved work took this many times as long as a save, so saving takes at most 2 % of its time.
_WORK_PER_SAVE = 50


class Checkpoints:
    """The checkpoints of one study; the module says which of them are kept.

    Parameters
    ----------
    where : Path or str or CheckpointStore
        A folder, an address such as `s3://bucket/runs`, or a store.
    at_most_bytes : float
        The largest size of all checkpoints together.
    """

    def __init__(self, where: Path | str | CheckpointStore, at_most_bytes: float = float("inf")) -> None:
        self.store = open_checkpoint_store(where) if isinstance(where, str | Path) else where
        self.at_most_bytes = at_most_bytes
        self._index: dict[int, dict[int, StoredCheckpoint]] | None = None  # read when it is first needed
        self._best: tuple[int, int] | None = None  # (trial, step) of the best value, whether or not it was saved
        self.best_loss = float("inf")
        self.sign = 1.0
        self._to_prune: set[int] = set()  # trials that may hold a checkpoint that is no longer needed
        self._save_s: dict[int, float] = {}  # how long the last save of a trial took
        self._newest_save_s = 0.0  # the newest of these; 0 at first, so that the first trial is saved and measured
        self._digests: dict[int, dict[int, str]] = {}  # {trial: {step: digest}}; empty: it is read unchecked
        self._notes: list[Note] = []  # entries that `take_notes` has not returned yet
        # Checkpoints that were found unchanged, until they are loaded:
        self._checked: dict[tuple[int, int], Path] = {}

    def start(self, ledger: Ledger, *, is_needed: bool = True) -> dict[int, int]:
        """Begin or continue a study; return {trial: newest step with a checkpoint}.

        A checkpoint beyond the last recorded step is deleted, and one that is not sealed. If checkpoints are needed, because the
        code may save, the store is checked before anything is trained.
        """
        self.sign = ledger.state.sign
        # A folder may hold checkpoints of another study, whether this one saves or not.
        is_local = isinstance(self.store, FolderStore)
        if is_needed and not is_local:
            self.store.check_writable()
        self._index = self.store.list() if is_needed or is_local else {}
        if not ledger.trials and self._index:  # left by another study of this name: moved aside, never mixed
            self.store.move_aside()
            self._index = {}
        if is_needed and is_local:
            self.store.check_writable()
        if is_needed:
            self.store.delete_uncommitted()
        if best := ledger.best:
            self._best, self.best_loss = (best.number, best.best_step), best.best_loss
        found = {}
        for trial in ledger.trials:
            digests = {step: ledger.state.find_digest(trial.number, step) for step in self._steps(trial.number)}
            self._digests[trial.number] = {step: one for step, one in digests.items() if one is not None}
            for step, digest in digests.items():
                if step > trial.steps or digest is None:
                    self._delete(trial.number, step)
            self._to_prune.add(trial.number)
            if step := self.newest_step(trial.number):
                found[trial.number] = step
        return found

    def close(self) -> None:
        """Delete empty files and folders."""
        root = self.root
        folders = [path for path in root.glob("trial-*") if path.is_dir()]
        remove_empty_logs(folders)
        remove_empty_folders([*folders, *own_folders(root)])

    # paths and steps -------------------------------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder of the checkpoints; if they are not in a folder, a temporary folder for logs."""
        return self.store.root if isinstance(self.store, FolderStore) else get_temporary_folder(self)

    def folder(self, trial: int) -> Path:
        return FolderStore(self.root).folder(trial)

    def path(self, trial: int, step: int) -> Path:
        return FolderStore(self.root).path(trial, step)

    def find_step(self, trial: int, step: int, newest: int) -> Path | str | None:
        """Return where the checkpoint of this very step is, None if there is none.

        A command keeps one folder, which holds the `newest` step that it saved.
        """
        if stored := self._find(trial, step):
            return self.store.locate(trial, stored.name)
        own = self.folder(trial) / "checkpoint"
        return own if step == newest and own.is_dir() and any(own.iterdir()) else None

    def path_to_load(self, trial: int, step: int) -> Path | None:
        """Return a path on this machine to load the checkpoint of this step from; None for step 0."""
        if not step:
            return None
        path = self._checked.pop((trial, step), None) or self._fetch(trial, step)
        if path is None:
            raise RunnerError(
                f"the checkpoint of step {step} of trial {trial} is gone from {self.store.where}, or was changed: "
                "start again, and the study continues without it"
            )
        return path

    def find_unchanged_step(self, trial: int, up_to: int) -> int:
        """Return the newest step up to this one whose checkpoint is the one that was saved, 0 if there is none."""
        while step := self.newest_step(trial, up_to):
            if (path := self._fetch(trial, step)) is not None:
                self._checked[trial, step] = path
                return step
            up_to = step - 1
        return 0

    def newest_step(self, trial: int, up_to: int | None = None) -> int:
        """Return the newest step with a checkpoint, 0 if there is none."""
        known = sorted(self._steps(trial), reverse=True)
        return next((s for s in known if (up_to is None or s <= up_to) and self._find(trial, s)), 0)

    def digest(self, trial: int, step: int) -> str:
        """Return the digest that this step's checkpoint must have; empty if it may be read unchecked."""
        return self._digests.get(trial, {}).get(step, "")

    def take_notes(self) -> list[Note]:
        """Return the entries about checkpoints that were saved, or found changed, since the last call. They must be recorded."""
        notes, self._notes = self._notes, []
        return notes

    def name(self, trial: int, step: int) -> str:
        """Return the name of this step's checkpoint in the store."""
        return self._entries[trial][step].name

    def forget(self, trial: int, step: int) -> None:
        """Remove a checkpoint that does not exist any more from the index."""
        self._entries[trial].pop(step, None)

    def refuse(self, trial: int, step: int) -> None:
        """Do not use this checkpoint any more: it was changed since it was saved."""
        self._notes.append(ChangedCheckpoint(trial=trial, step=step).to_note())
        self.forget(trial, step)

    # saving ----------------------------------------------------------------------------------------------------------

    def decide_save(self, trial: int, step: int, value: float | None, *, last: bool, unsaved_s: float) -> bool:
        """Note the value of this step; return whether to save: at the last step, at a new best value, or when it is worth it.

        A save is worth it when the unsaved work took more than 50 times as long as a save. So a trial whose process is killed
        loses no more work than that, or one step if a step takes longer.
        """
        is_better = value is not None and math.isfinite(value) and self.sign * value < self.best_loss
        if is_better and value is not None:
            if self._best is not None:
                self._to_prune.add(self._best[0])
            self._best, self.best_loss = (trial, step), self.sign * value
        return last or is_better or unsaved_s > _WORK_PER_SAVE * self.expected_save_s(trial)

    def expected_save_s(self, trial: int) -> float:
        """Return how long saving this trial would take: as long as its last save, else as the newest save of any trial."""
        return self._save_s.get(trial, self._newest_save_s)

    def save(self, trial: int, step: int, write: Callable[[Path], Any]) -> float:
        """Write a checkpoint and delete those no longer needed; return the seconds that this took."""
        began = time.monotonic()
        write(self.partial_path(trial, step))
        return self.commit(trial, step, time.monotonic() - began)

    def partial_path(self, trial: int, step: int) -> Path:
        """Return the path to write a checkpoint to before it is committed."""
        return self.store.scratch(trial, step)

    def commit(self, trial: int, step: int, written_s: float) -> float:
        """Commit what was written to `partial_path` in `written_s` seconds; return the seconds of writing and committing."""
        began = time.monotonic()
        put = self.store.put(trial, step)
        return self.commit_uploaded(trial, step, written_s + time.monotonic() - began, put)

    def commit_uploaded(self, trial: int, step: int, written_s: float, put: PutCheckpoint, attempt: str = "") -> float:
        """Commit what was put into the store already, by a worker on another machine; return the seconds as `commit` does."""
        began = time.monotonic()
        before, replaced = self.newest_step(trial, up_to=step - 1), self._find(trial, step)
        stored = self.store.commit(trial, step, attempt, put.archive)
        if replaced is not None and replaced.name != stored.name:
            self.store.delete(trial, replaced.name)
        self._entries.setdefault(trial, {})[step] = stored
        # Only now: a former best is deleted when the better one is safe, and a former checkpoint when the newer one is sealed.
        for other in self._to_prune - {trial, *(note.facts["trial"] for note in self._notes)}:
            self._prune(other)
            self._to_prune.remove(other)
        self._prune(trial, before)
        self._to_prune.add(trial)
        self._digests.setdefault(trial, {})[step] = put.digest
        self._notes.append(CheckpointSeal(trial=trial, step=step, digest=put.digest).to_note())
        self._save_s[trial] = self._newest_save_s = written_s + time.monotonic() - began
        return self._newest_save_s

    # deleting --------------------------------------------------------------------------------------------------------

    def evict_over_limit(self, keep: set[int]) -> list[StateLoss]:
        """Evict the checkpoints of the least recently saved trials while the limit is exceeded; return the losses.

        The checkpoints of the trials in `keep` and of the best trial are not evicted.
        """
        if self._index is None:  # the study was not started: its store may be the very thing that failed
            return []
        if self._total_bytes() > self.at_most_bytes:
            # After a crash, one step may have to be trained again; that is better than to evict a whole trial now.
            for trial in self._to_prune:
                self._prune(trial)
        best = self._best[0] if self._best else None
        lost: list[StateLoss] = []
        for trial in sorted((t for t in self._entries if t != best and t not in keep), key=self._saved_at):
            if self._total_bytes() <= self.at_most_bytes:
                break
            if steps := self._steps(trial):
                lost.append(StateLoss(trial=trial, resumable_step=0, why="its checkpoint was over the size limit"))
                for step in steps:
                    self._delete(trial, step)
        return lost

    def _prune(self, trial: int, spared: int = 0) -> None:
        """Delete all checkpoints of this trial except the newest, the best and the `spared` one."""
        newest = self.newest_step(trial)
        for step in self._steps(trial):
            if step not in (newest, spared) and (trial, step) != self._best:
                self._delete(trial, step)

    def _fetch(self, trial: int, step: int) -> Path | None:
        """Return a path to this checkpoint on this machine; None if it is gone, or is not the one that was saved."""
        stored, expected = self._find(trial, step), self.digest(trial, step)
        if stored is None:
            return None
        try:
            path = self.store.get(trial, stored.name, self.folder(trial) / "fetched")
            found = compute_digest(path) if expected else ""
        except FileNotFoundError:
            self._entries.get(trial, {}).pop(step, None)
            return None
        except tarfile.TarError:  # an archive that was changed
            found = None
        if found == expected:
            return path
        self.refuse(trial, step)
        return None

    # the index -------------------------------------------------------------------------------------------------------

    @property
    def _entries(self) -> dict[int, dict[int, StoredCheckpoint]]:
        if self._index is None:
            self._index = self.store.list()
        return self._index

    def _steps(self, trial: int) -> list[int]:
        return list(self._entries.get(trial, ()))

    def _find(self, trial: int, step: int) -> StoredCheckpoint | None:
        """Return the checkpoint of this step if it is still there."""
        stored = self._entries.get(trial, {}).get(step)
        return stored if stored is not None and self.store.has(trial, stored.name) else None

    def _delete(self, trial: int, step: int) -> None:
        self.store.delete(trial, self._entries[trial].pop(step).name)

    def _saved_at(self, trial: int) -> float:
        return max((stored.at for stored in self._entries[trial].values()), default=0.0)

    def _total_bytes(self) -> int:
        return sum(stored.size_bytes for steps in self._entries.values() for stored in steps.values())
