"""Where checkpoints are kept, as an interface: a folder (this module), or whatever fsspec can reach (`remote_storage`).

A checkpoint is written by training code on the machine that trains, put to where it is kept from there, and counts from the
moment that whoever runs the study keeps it:

    path = storage.scratch(trial, step, attempt); write(path); storage.put(trial, step, attempt)     where the trial is
    stored = storage.keep(trial, step, attempt)                                                      where the study is run
    path = storage.get(trial, stored.name, into)                                                     where it goes on

An attempt is one try at writing a checkpoint, and has a name of its own: a worker that was given up may still write, and must
not write into what another one wrote. What was put and never kept is no checkpoint, and goes at the next start. A storage
travels to other machines, so it holds nothing but its address; the index is held by `Checkpoints`.

Where nothing is shared, a checkpoint goes through the driver as bytes: the worker has `Parcels`, whose `put` returns them
and whose `get` takes them, and the driver's own storage packs and unpacks. Bytes are an archive of files that is never unpickled.
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
class Stored:
    """A checkpoint that is whole."""

    name: str  # in the place of its trial
    size_bytes: int
    at: float  # seconds since 1970, when it was kept


class Outbox(Protocol):
    """What the machine that trains needs."""

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        """Where training code writes; nothing is there yet."""
        ...

    def put(self, trial: int, step: int, attempt: str = "") -> bytes | None:
        """Take what was written to where it is kept; what it returns goes to `keep`."""
        ...

    def get(self, trial: int, name: str, into: Path, parcel: bytes | None = None) -> Path:
        """Where a checkpoint can be read on this machine; a copy, if one is needed, is made in the folder `into`."""
        ...


class Storage(Outbox, Protocol):
    """What whoever runs the study needs besides."""

    where: str  # for messages

    def list(self) -> dict[int, dict[int, Stored]]:
        """{trial: {step: what is kept}}"""
        ...

    def clear_attempts(self) -> None:
        """Delete what was put and never kept; only for whoever runs the study, before anything is put."""
        ...

    def has(self, trial: int, name: str) -> bool:
        """Whether a checkpoint that was listed or kept is still there, as far as that can be told at once."""
        ...

    def keep(self, trial: int, step: int, attempt: str = "", parcel: bytes | None = None) -> Stored:
        """From now on this is the checkpoint of that step."""
        ...

    def pack(self, trial: int, name: str) -> bytes:
        """A checkpoint as bytes, for a machine that cannot reach it here."""
        ...

    def delete(self, trial: int, name: str) -> None: ...

    def try_out(self) -> None:
        """An error that says so if nothing can be written."""
        ...

    def mark(self, mark: str) -> None:
        """Leave a sign by which `sees`, elsewhere, knows the place."""
        ...

    def unmark(self, mark: str) -> None: ...

    def sees(self, mark: str) -> bool:
        """Whether this machine reaches the very place that was marked."""
        ...

    def put_aside(self) -> None:
        """Move everything out of the way: it belongs to another study of that name."""
        ...

    def locate(self, trial: int, name: str) -> str | Path:
        """Where a checkpoint is, for people."""
        ...


class Folder:
    """A folder on this machine, or on a disk that several machines share:  ROOT/trial-0007/step-000012

    A checkpoint is written beside its place and renamed into it, so what has the right name is whole.
    """

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.where = str(self.root)

    def path(self, trial: int, step: int) -> Path:
        return self.folder(trial) / name_step(step)

    def folder(self, trial: int) -> Path:
        return self.root / name_trial(trial)

    def list(self) -> dict[int, dict[int, Stored]]:
        found: dict[int, dict[int, Stored]] = {}
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            if (trial := _TRIAL.fullmatch(folder.name)) and folder.is_dir():
                steps = [(int(step[1]), path) for path in folder.iterdir() if (step := _STEP.fullmatch(path.name))]
                found[int(trial[1])] = {step: _describe(path) for step, path in steps}
        return found

    def clear_attempts(self) -> None:
        for half in self.root.glob("trial-*/step-*.partial"):
            remove(half)

    def has(self, trial: int, name: str) -> bool:
        return os.path.exists(f"{self.where}/{name_trial(trial)}/{name}")  # asked after every step

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        partial = self._partial(trial, step, attempt)
        partial.parent.mkdir(parents=True, exist_ok=True)
        remove(partial)
        return partial

    def put(self, trial: int, step: int, attempt: str = "") -> bytes | None:
        partial = self._partial(trial, step, attempt)
        require_written(partial)
        for file in list_files(partial):
            with file.open("r+b" if IS_WINDOWS else "rb") as written:  # there, only a writer may flush
                os.fsync(written.fileno())
        return None

    def keep(self, trial: int, step: int, attempt: str = "", parcel: bytes | None = None) -> Stored:
        path, partial = self.path(trial, step), self._partial(trial, step, attempt)
        if parcel is not None:
            unpack(io.BytesIO(parcel), self.scratch(trial, step, attempt))
            self.put(trial, step, attempt)
        remove(path)
        partial.rename(path)
        return _describe(path)

    def get(self, trial: int, name: str, into: Path, parcel: bytes | None = None) -> Path:
        return self.folder(trial) / name

    def pack(self, trial: int, name: str) -> bytes:
        return pack(self.folder(trial) / name)

    def delete(self, trial: int, name: str) -> None:
        remove(self.folder(trial) / name)

    def try_out(self) -> None:
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

    def mark(self, mark: str) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        for left in self.root.glob(".mark-*"):  # by a run that was killed
            remove(left)
        (self.root / f".mark-{mark}").touch()

    def unmark(self, mark: str) -> None:
        remove(self.root / f".mark-{mark}")

    def sees(self, mark: str) -> bool:
        return (self.root / f".mark-{mark}").exists() and os.access(self.root, os.W_OK)

    def put_aside(self) -> None:
        unused = (self.root.with_name(f"{self.root.name}.old-{n}") for n in itertools.count(1))
        self.root.rename(next(path for path in unused if not path.exists()))

    def locate(self, trial: int, name: str) -> Path:
        return self.folder(trial) / name

    def _partial(self, trial: int, step: int, attempt: str) -> Path:
        parts = [name_step(step), *([attempt] if attempt else []), "partial"]
        return self.folder(trial) / ".".join(parts)


class Parcels:
    """The outbox of a machine that reaches no storage: checkpoints come and go as bytes."""

    def __init__(self, folder: Path) -> None:
        self._folder = Folder(folder)

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        return self._folder.scratch(trial, step, attempt)

    def put(self, trial: int, step: int, attempt: str = "") -> bytes:
        written = self._folder._partial(trial, step, attempt)
        require_written(written)
        try:
            return pack(written)
        finally:
            remove(written)

    def get(self, trial: int, name: str, into: Path, parcel: bytes | None = None) -> Path:
        assert parcel is not None
        return unpack(io.BytesIO(parcel), into / name)


def open_storage(where: Path | str) -> Storage:
    """A folder, or, for `s3://bucket/runs` and the like, what fsspec makes of it."""
    if isinstance(where, str) and "://" in where:
        from shoestring.runners.checkpoints.remote_store import Remote

        return Remote(where)
    return Folder(Path(where))


def name_place(where: str | Path | None) -> dict[str, str]:
    """A place for checkpoints as a study's target keeps it: nothing if none is named, a folder in full."""
    if where is None:
        return {}
    if not isinstance(where, str | Path) or not str(where):
        raise RunnerError(f"checkpoints={where!r} must be a folder, or a place like s3://bucket/runs")
    if "://" not in str(where):
        return {"checkpoints": str(Path(where).absolute())}
    open_storage(str(where))  # a place that could never be used is told now
    return {"checkpoints": str(where)}


def name_trial(trial: int) -> str:
    return f"trial-{trial:04d}"


def name_step(step: int) -> str:
    return f"step-{step:06d}"


def require_written(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"save(path) returned without writing {path.name}: write to the path it is given")


def _describe(path: Path) -> Stored:
    size = sum(file.stat().st_size for file in list_files(path))
    return Stored(path.name, size, path.stat().st_mtime)
