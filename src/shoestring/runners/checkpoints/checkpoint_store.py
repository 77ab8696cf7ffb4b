"""Stores of checkpoints: a folder (`FolderStore`, in this module), or a place that fsspec can reach (`remote_store`).

The training code writes a checkpoint on the machine that trains. Then `put` copies it into the store, and `commit` makes it
valid. `commit` is called by the process that runs the study:

    path = store.scratch(trial, step, attempt); write(path); put = store.put(trial, step, attempt)     on the machine that trains
    stored = store.commit(trial, step, attempt, put.archive)                                           where the study runs
    path = store.get(trial, stored.name, into)                                                         where the trial is resumed

Each try at writing a checkpoint is an attempt with a name of its own. A worker that the study no longer waits for may still
write; the name of its attempt keeps it from writing into the files of another worker. Files that were put and never committed
are not valid, and are deleted at the next start. A store is sent to other machines, so it holds only its address; `Checkpoints`
holds the index.

Where the machines share no storage, a checkpoint is sent as bytes through the process that runs the study. The worker then uses
`BytesTransfer`: its `put` returns the bytes and its `get` takes them. On the other side, `commit` takes the bytes and `pack`
returns them. The bytes are an archive of files; they are never unpickled.

`put.digest` goes into the ledger. Whoever calls `get` compares it with the digest of what `get` returned.
"""

from __future__ import annotations

import io
import itertools
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from shoestring.errors import RunnerError, show_argument
from shoestring.private_files import make_folder
from shoestring.runners.checkpoints.archive import list_files, pack, remove, unpack
from shoestring.runners.checkpoints.digest import Digest
from shoestring.runners.checkpoints.trial_logs import remove_empty_folders
from shoestring.runners.process.process_group import IS_WINDOWS

_TRIAL = re.compile(r"trial-(\d+)")
_STEP = re.compile(r"step-(\d+)")


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A committed checkpoint, as `CheckpointStore.list` and `CheckpointStore.commit` return it.

    Parameters
    ----------
    name : str
        Its name in the store; unique within its trial.
    size_bytes : int
        Its size.
    at : float
        When it was committed, in seconds since 1970.
    """

    name: str
    size_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class PutCheckpoint:
    """A checkpoint that was put and is not committed yet, as `CheckpointAccess.put` returns it.

    Parameters
    ----------
    digest : str
        The digest of what the training code wrote.
    archive : bytes, optional
        None if the checkpoint is in the store. Otherwise an archive of it, to be passed to `commit`.
    """

    digest: str
    archive: bytes | None = None


class CheckpointAccess(Protocol):
    """The methods of a store that are called on the machine that trains.

    A machine that cannot reach the store has `BytesTransfer` instead, which sends and receives checkpoints as bytes.
    """

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        """Return the path on this machine to which the training code writes a checkpoint.

        Parameters
        ----------
        trial : int
            The number of the trial.
        step : int
            The step after which the checkpoint is written.
        attempt : str
            The name of this attempt; different for two workers that may write the same checkpoint.

        Returns
        -------
        Path
            The path of a file or folder that does not exist yet. Its parent folder exists.
        """
        ...

    def put(self, trial: int, step: int, attempt: str = "") -> PutCheckpoint:
        """Copy a checkpoint from the path that `scratch` returned into the store. It is not valid before `commit`.

        Parameters
        ----------
        trial, step, attempt
            As for `scratch`.

        Returns
        -------
        PutCheckpoint
            Its digest; and an archive of it, if it is not in the store now.

        Raises
        ------
        FileNotFoundError
            If nothing was written to the path.
        """
        ...

    def get(self, trial: int, name: str, into: Path, archive: bytes | None = None) -> Path:
        """Return a path from which a committed checkpoint can be read on this machine.

        Parameters
        ----------
        trial : int
            The number of the trial.
        name : str
            The name of the checkpoint, `StoredCheckpoint.name`.
        into : Path
            The folder for a copy, if a copy is needed.
        archive : bytes, optional
            What `pack` returned, for a machine that cannot reach the store.

        Returns
        -------
        Path
            The path of the file or folder that the training code wrote.

        Raises
        ------
        FileNotFoundError
            If the checkpoint does not exist. A store that makes no copy may return a path that does not exist instead.
        """
        ...


class CheckpointStore(CheckpointAccess, Protocol):
    """Stores the checkpoints of one study.

    The runners of this package use it: the process that runs the study calls the methods below, and the machine that trains
    calls `scratch`, `put` and `get`. `tune(checkpoints=…)` takes a folder or an address such as "s3://bucket/runs", and makes
    the store from it; it takes no store of another kind. The author of a store checks it with
    `shoestring.testing.check_checkpoint_store_contract`.

    A store must be picklable, because it is sent to the workers.

    Attributes
    ----------
    where : str
        The address of the store, for messages.
    """

    where: str

    def list(self) -> dict[int, dict[int, StoredCheckpoint]]:
        """Return all committed checkpoints.

        Returns
        -------
        dict of int to dict
            {trial: {step: its checkpoint}}.
        """
        ...

    def delete_uncommitted(self) -> None:
        """Delete everything that was put and never committed.

        Only the process that runs the study may call it, and only before the first `put` of a run.
        """
        ...

    def has(self, trial: int, name: str) -> bool:
        """Return whether a checkpoint that was listed or committed still exists.

        It is called after every step. A store that would need a request over the network returns True without a check.

        Parameters
        ----------
        trial : int
            The number of the trial.
        name : str
            The name of the checkpoint, `StoredCheckpoint.name`.

        Returns
        -------
        bool
            False if the checkpoint was deleted.
        """
        ...

    def commit(self, trial: int, step: int, attempt: str = "", archive: bytes | None = None) -> StoredCheckpoint:
        """Make the checkpoint that was put valid.

        A checkpoint of this step that was committed before is replaced if it has the same name.

        Parameters
        ----------
        trial, step, attempt
            As for `put`.
        archive : bytes, optional
            The archive that `put` returned on the machine that trains.

        Returns
        -------
        StoredCheckpoint
            The checkpoint.
        """
        ...

    def pack(self, trial: int, name: str) -> bytes:
        """Return a checkpoint as bytes, for a machine that cannot reach this store.

        Parameters
        ----------
        trial : int
            The number of the trial.
        name : str
            The name of the checkpoint.

        Returns
        -------
        bytes
            An archive, to be passed to `get` on that machine.
        """
        ...

    def delete(self, trial: int, name: str) -> None:
        """Delete a checkpoint; do nothing if it does not exist.

        Parameters
        ----------
        trial : int
            The number of the trial.
        name : str
            The name of the checkpoint.
        """
        ...

    def check_writable(self) -> None:
        """Check that something can be written to the store.

        Raises
        ------
        RunnerError
            If nothing can be written.
        """
        ...

    def add_marker(self, marker: str) -> None:
        """Write a marker into the store. `has_marker` then shows whether another machine reaches the same store.

        Parameters
        ----------
        marker : str
            A name that no other marker has.
        """
        ...

    def remove_marker(self, marker: str) -> None:
        """Remove a marker; do nothing if it does not exist.

        Parameters
        ----------
        marker : str
            Its name.
        """
        ...

    def has_marker(self, marker: str) -> bool:
        """Return whether this machine reaches the store that holds this marker.

        Parameters
        ----------
        marker : str
            Its name.

        Returns
        -------
        bool
            False also if the store cannot be reached at all, or not be written to.
        """
        ...

    def move_aside(self) -> None:
        """Move everything in the store to another address, because it belongs to another study of the same name."""
        ...

    def move(self, where: str) -> None:
        """Move everything in the store to another address of the same kind, at which nothing is stored yet.

        Parameters
        ----------
        where : str
            The new address.
        """
        ...

    def measure(self) -> tuple[int, int]:
        """Return how many files the trials have in the store, and their size.

        Returns
        -------
        int, int
            The number of files, and their bytes.
        """
        ...

    def delete_all(self) -> None:
        """Delete all files of all trials."""
        ...

    def locate(self, trial: int, name: str) -> str | Path:
        """Return the address of a checkpoint, for users.

        Parameters
        ----------
        trial : int
            The number of the trial.
        name : str
            The name of the checkpoint.

        Returns
        -------
        str or Path
            Its path, if the store is a folder; otherwise its address.
        """
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
        make_folder(partial.parent)
        remove(partial)
        return partial

    def put(self, trial: int, step: int, attempt: str = "") -> PutCheckpoint:
        partial = self._partial(trial, step, attempt)
        require_written(partial)
        with Digest(partial) as digest:
            flush_files(partial)
        return PutCheckpoint(digest.text)

    def commit(self, trial: int, step: int, attempt: str = "", archive: bytes | None = None) -> StoredCheckpoint:
        path, partial = self.path(trial, step), self._partial(trial, step, attempt)
        if archive is not None:
            unpack(io.BytesIO(archive), self.scratch(trial, step, attempt))
            flush_files(partial)
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
            make_folder(self.root)
            probe.write_bytes(b"can be written")
            probe.unlink()
        except OSError as error:
            raise RunnerError(
                f"the checkpoint folder {self.root} cannot be used: {error.strerror or error}: make it writable, or put "
                f"the study's store where there is room, with {show_argument('store')}"
            ) from None

    def add_marker(self, marker: str) -> None:
        make_folder(self.root)
        for left in self.root.glob(".mark-*"):  # left by a run that was killed
            remove(left)
        (self.root / f".mark-{marker}").touch()

    def remove_marker(self, marker: str) -> None:
        remove(self.root / f".mark-{marker}")

    def has_marker(self, marker: str) -> bool:
        return (self.root / f".mark-{marker}").exists() and os.access(self.root, os.W_OK)

    def move_aside(self) -> None:
        unused = (self.root.with_name(f"{self.root.name}.old-{n}") for n in itertools.count(1))
        self.move(str(next(path for path in unused if not path.exists())))

    def move(self, where: str) -> None:
        if self.root.exists():
            self.root.rename(where)

    def measure(self) -> tuple[int, int]:
        sizes = [file.stat().st_size for folder in self.root.glob("trial-*") for file in list_files(folder)]
        return len(sizes), sum(sizes)

    def delete_all(self) -> None:
        for folder in self.root.glob("trial-*"):
            remove(folder)
        remove_empty_folders(own_folders(self.root))

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

    def put(self, trial: int, step: int, attempt: str = "") -> PutCheckpoint:
        written = self._folder._partial(trial, step, attempt)
        require_written(written)
        try:
            with Digest(written) as digest:
                archive = pack(written)
            return PutCheckpoint(digest.text, archive)
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
        raise RunnerError(f"{show_argument('checkpoints', where)} must be a folder, or a place like s3://bucket/runs")
    if "://" not in str(where):
        return {"checkpoints": str(Path(where).absolute())}
    open_checkpoint_store(str(where))  # raise an error now if the place can never be used
    return {"checkpoints": str(where)}


def own_folders(root: Path) -> list[Path]:
    """Return the folder of a study's checkpoints, and the one around it if it was made for the studies of a store."""
    return [root, *([root.parent] if root.parent.name.endswith(".checkpoints") else [])]


def name_trial(trial: int) -> str:
    return f"trial-{trial:04d}"


def name_step(step: int) -> str:
    return f"step-{step:06d}"


def require_written(path: Path) -> None:
    if not path.exists():
        raise FileNotFoundError(f"save(path) returned without writing {path.name}: write to the path it is given")


def flush_files(path: Path) -> None:
    """Wait until all files of a checkpoint are on the disk."""
    for file in list_files(path):
        with file.open("r+b" if IS_WINDOWS else "rb") as written:  # on Windows, only a writer may flush
            os.fsync(written.fileno())


def _describe(path: Path) -> StoredCheckpoint:
    size = sum(file.stat().st_size for file in list_files(path))
    return StoredCheckpoint(path.name, size, path.stat().st_mtime)
