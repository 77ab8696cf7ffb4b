"""Where checkpoints are kept: in a folder (this module), or in a place that fsspec can reach (`remote_store`).

Training code writes a checkpoint on the machine that trains. From there it is put into the store, and it becomes a checkpoint
when the process that runs the study commits it:

    path = store.scratch(trial, step, attempt); write(path); store.put(trial, step, attempt)     on the machine that trains
    stored = store.commit(trial, step, attempt)                                                  where the study runs
    path = store.get(trial, stored.name, into)                                                   where the trial is resumed

An attempt is one try at writing a checkpoint, and has a name of its own: a worker that was given up may still write, and must
not write into the files of another one. What was put and never committed does not count, and is deleted at the next start. A
store is sent to other machines, so it holds only its address; `Checkpoints` holds the index.

Where machines share nothing, a checkpoint travels through the driver as bytes: the worker has `BytesTransfer`, whose `put`
returns them and whose `get` takes them, and the driver's own store packs and unpacks. The bytes are an archive of files that is
never unpickled.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.archive import list_files, pack, remove, unpack
from shoestring.runners.process.process_group import IS_WINDOWS

_TRIAL = re.compile(r"trial-(\d+)")
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A committed checkpoint."""

    name: str  # unique within its trial
    size_bytes: int
    at: float  # when it was committed, in seconds since 1970


class CheckpointAccess(Protocol):
    """The part of a store that the machine that trains needs."""

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        """Return the path to which training code writes; nothing is there yet."""
        ...

    def put(self, trial: int, step: int, attempt: str = "") -> bytes | None:
        """Bring what was written to the store; return what `commit` needs to know."""
        ...

    def get(self, trial: int, name: str, into: Path, archive: bytes | None = None) -> Path:
        """Return a path where the checkpoint can be read on this machine; a copy, if one is needed, is made in `into`."""
        ...


class CheckpointStore(CheckpointAccess, Protocol):
    """Where checkpoints are kept, as the process that runs the study sees it."""

    where: str  # its address, for messages

    def list(self) -> dict[int, dict[int, StoredCheckpoint]]:
        """Return {trial: {step: its checkpoint}}."""
        ...

    def delete_uncommitted(self) -> None:
        """Delete what was put and never committed. Only for the process that runs the study, before anything is put."""
        ...

    def has(self, trial: int, name: str) -> bool:
        """Return whether a listed or committed checkpoint is still there; True where checking would take a request."""
        ...

    def commit(self, trial: int, step: int, attempt: str = "", archive: bytes | None = None) -> StoredCheckpoint:
        """Make what was put the checkpoint of this step."""
        ...

    def pack(self, trial: int, name: str) -> bytes:
        """Return a checkpoint as bytes, for a machine that cannot reach this store."""
        ...

    def delete(self, trial: int, name: str) -> None: ...

    def check_writable(self) -> None:
        """Raise a RunnerError if nothing can be written."""
        ...

    def add_marker(self, marker: str) -> None:
        """Leave a marker, by which `has_marker` recognises the store from another machine."""
        ...

    def remove_marker(self, marker: str) -> None: ...

    def has_marker(self, marker: str) -> bool:
        """Return whether this machine reaches the very store that holds this marker."""
        ...

    def move_aside(self) -> None:
        """Rename everything that is there: it belongs to another study of that name."""
        ...

    def locate(self, trial: int, name: str) -> str | Path:
        """Return the address of a checkpoint, for users."""
        ...


class FolderStore:
    """A folder on this machine, or on a disk that several machines share:  ROOT/trial-0007/step-000012

    A checkpoint is written beside its final path and then renamed, so what has the right name is complete.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.where = str(self.root)

    def path(self, trial: int, step: int) -> Path:
        return self.folder(trial) / name_step(step)

    def folder(self, trial: int) -> Path:
        return self.root / name_trial(trial)

    def list(self) -> dict[int, dict[int, StoredCheckpoint]]:
        found: dict[int, dict[int, StoredCheckpoint]] = {}
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            if (trial := _TRIAL.fullmatch(folder.name)) and folder.is_dir():
                steps = [(int(step[1]), path) for path in folder.iterdir() if (step := _STEP.fullmatch(path.name))]
                found[int(trial[1])] = {step: _describe(path) for step, path in steps}
        return found

    def delete_uncommitted(self) -> None:
        for partial in self.root.glob("trial-*/step-*.partial"):
            remove(partial)

    def has(self, trial: int, name: str) -> bool:
        return os.path.exists(f"{self.where}/{name_trial(trial)}/{name}")  # quick, since it is called after every step

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        partial = self._partial(trial, step, attempt)
        partial.parent.mkdir(parents=True, exist_ok=True)
        remove(partial)
        return partial

    def put(self, trial: int, step: int, attempt: str = "") -> bytes | None:
        partial = self._partial(trial, step, attempt)
        require_written(partial)
        for file in list_files(partial):
            with file.open("r+b" if IS_WINDOWS else "rb") as written:  # on Windows, only a writer may flush
                os.fsync(written.fileno())
        return None

    def commit(self, trial: int, step: int, attempt: str = "", archive: bytes | None = None) -> StoredCheckpoint:
        path, partial = self.path(trial, step), self._partial(trial, step, attempt)
        if archive is not None:
            unpack(io.BytesIO(archive), self.scratch(trial, step, attempt))
            self.put(trial, step, attempt)
        remove(path)
        partial.rename(path)
        return _describe(path)

    def get(self, trial: int, name: str, into: Path, archive: bytes | None = None) -> Path:
        return self.folder(trial) / name

    def pack(self, trial: int, name: str) -> bytes:
        return pack(self.folder(trial) / name)

    def delete(self, trial: int, name: str) -> None:
        remove(self.folder(trial) / name)

    def check_writable(self) -> None:
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

    def add_marker(self, marker: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(".mark-*"):  # left by a run that was killed
            remove(left)
        (self.root / f".mark-{marker}").touch()

    def remove_marker(self, marker: str) -> None:
        remove(self.root / f".mark-{marker}")

    def has_marker(self, marker: str) -> bool:
        return (self.root / f".mark-{marker}").exists() and os.access(self.root, os.W_OK)

    def move_aside(self) -> None:
        unused = (self.root.with_name(f"{self.root.name}.old-{n}") for n in itertools.count(1))
        self.root.rename(next(path for path in unused if not path.exists()))

    def locate(self, trial: int, name: str) -> Path:
        return self.folder(trial) / name

    def _partial(self, trial: int, step: int, attempt: str) -> Path:
        parts = [name_step(step), *([attempt] if attempt else []), "partial"]
        return self.folder(trial) / ".".join(parts)


class BytesTransfer:
    """Sends and receives checkpoints as bytes, on a machine that cannot reach the store."""

    def __init__(self, folder: Path) -> None:
        self._folder = FolderStore(folder)

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        return self._folder.scratch(trial, step, attempt)

    def put(self, trial: int, step: int, attempt: str = "") -> bytes:
        written = self._folder._partial(trial, step, attempt)
        require_written(written)
        try:
            return pack(written)
        finally:
            remove(written)

    def get(self, trial: int, name: str, into: Path, archive: bytes | None = None) -> Path:
        assert archive is not None
        return unpack(io.BytesIO(archive), into / name)


def open_checkpoint_store(where: Path | str) -> CheckpointStore:
    """Return the store at this address: a folder, or a place like `s3://bucket/runs` that fsspec reaches."""
    if isinstance(where, str) and "://" in where:
        from shoestring.runners.checkpoints.remote_store import RemoteStore

        return RemoteStore(where)
    return FolderStore(Path(where))


def make_location_entry(where: str | Path | None) -> dict[str, str]:
    """Return the entry `checkpoints` of a study's target: empty if `where` is None; a folder becomes a full path."""
    if where is None:
        return {}
    if not isinstance(where, str | Path) or not str(where):
        raise RunnerError(f"checkpoints={where!r} must be a folder, or a place like s3://bucket/runs")
    if "://" not in str(where):
        return {"checkpoints": str(Path(where).absolute())}
    open_checkpoint_store(str(where))  # raise an error now if the place can never be used
    return {"checkpoints": str(where)}


def name_trial(trial: int) -> str:
    return f"trial-{trial:04d}"


def name_step(step: int) -> str:
    return f"step-{step:06d}"


def require_written(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"save(path) returned without writing {path.name}: write to the path it is given")


def _describe(path: Path) -> StoredCheckpoint:
    size = sum(file.stat().st_size for file in list_files(path))
    return StoredCheckpoint(path.name, size, path.stat().st_mtime)
