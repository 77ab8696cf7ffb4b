"""Checkpoints wherever fsspec reaches: `s3://bucket/runs`, `gs://…`, `sftp://…`.

    PLACE/trial-0007/step-000012.ATTEMPT.tar       an archive of what training code wrote
    PLACE/trial-0007/step-000012.ATTEMPT.whole     an empty object: that archive is a checkpoint

Such places cannot rename, or only by copying, so an archive becomes a checkpoint when a second, empty object is put beside it.
Who may read and write is settled as fsspec does it, by the environment of each machine; nothing of it is kept by us.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import time
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoestring.errors import MissingExtra, RunnerError, did_you_mean, one_line
from shoestring.runners.checkpoints.archive import remove, temporary_folder, unpack, write_archive
from shoestring.runners.checkpoints.checkpoint_store import Folder, Stored, name_step, name_trial, require_written

_OBJECT = re.compile(r"trial-(\d+)/(step-(\d+)(?:\.\w+)?)\.(tar|whole)")
# Looking at a stored study asks its place, so it must be one that only holds files: fsspec knows others, and chains of them.
_KINDS = (
    "s3",
    "s3a",
    "gs",
    "gcs",
    "az",
    "abfs",
    "abfss",
    "oci",
    "oss",
    "sftp",
    "ssh",
    "smb",
    "hdfs",
    "webhdfs",
    "memory",
)
_WHOLE, _ARCHIVE = ".whole", ".tar"


class Remote:
    """A place that fsspec reaches."""

    def __init__(self, url: str) -> None:
        if (kind := url.partition("://")[0]) not in _KINDS:
            raise RunnerError(
                f"the place for checkpoints, {one_line(url)}, is of a kind that is not used here, {kind!r}. "
                f"{did_you_mean(kind, _KINDS)}"
            )
        if urlsplit(url).password is not None:
            raise RunnerError(
                f"the place for checkpoints, {_hide_password(url)}, holds a password, and the study would keep it: give it "
                "to fsspec on each machine, in the environment or in its configuration file"
            )
        self.where = url.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}  # connections are made where they are used

    def __setstate__(self, state: Mapping[str, str]) -> None:
        self.where = state["where"]

    # where the trial is ------------------------------------------------------------------------------------------------

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        return self._desk.scratch(trial, step, attempt)

    def put(self, trial: int, step: int, attempt: str = "") -> bytes | None:
        written = self._desk._partial(trial, step, attempt)
        require_written(written)
        place = self._place(trial, _join(step, attempt))
        self._make_folder(place)
        self._remove(place + _WHOLE)  # what comes now is not whole until it is kept
        with self._system.open(place + _ARCHIVE, "wb") as file:
            write_archive(written, file)
        remove(written)
        return None

    def get(self, trial: int, name: str, into: Path, parcel: bytes | None = None) -> Path:
        with self._system.open(self._place(trial, name) + _ARCHIVE, "rb") as file:
            return unpack(file, into / name)

    # where the study is run --------------------------------------------------------------------------------------------

    def list(self) -> dict[int, dict[int, Stored]]:
        listed: dict[int, dict[int, Stored]] = {}
        for (trial, step, name), parts in self._find_objects().items():
            if parts.keys() == {_WHOLE, _ARCHIVE}:
                stored = Stored(name, int(parts[_ARCHIVE]["size"] or 0), _read_time(parts[_WHOLE]))
                listed.setdefault(trial, {})[step] = stored
        return listed

    def clear_attempts(self) -> None:
        for (trial, _, name), parts in self._find_objects().items():
            if parts.keys() != {_WHOLE, _ARCHIVE}:
                self.delete(trial, name)

    def has(self, trial: int, name: str) -> bool:
        return True  # asking takes a journey; one that is gone all the same is found when it is fetched

    def keep(self, trial: int, step: int, attempt: str = "", parcel: bytes | None = None) -> Stored:
        name = _join(step, attempt)
        place = self._place(trial, name)
        if parcel is not None:
            self._write(place + _ARCHIVE, parcel)
        self._write(place + _WHOLE, b"")
        return Stored(name, int(self._system.size(place + _ARCHIVE) or 0), time.time())

    def pack(self, trial: int, name: str) -> bytes:
        archive: bytes = self._system.cat_file(self._place(trial, name) + _ARCHIVE)
        return archive

    def delete(self, trial: int, name: str) -> None:
        for part in (_WHOLE, _ARCHIVE):  # in this order: an archive without the other one is no checkpoint
            self._remove(self._place(trial, name) + part)

    def try_out(self) -> None:
        probe = f"{self._root}/probe-{time.time_ns()}"
        bucket = self._root.split("/")[0]  # empty where there are real folders
        try:
            if bucket and not self._system.exists(bucket):
                raise FileNotFoundError(f"there is no {bucket}")  # writing might make one
            self._write(probe, b"can be written")
            self._system.rm_file(probe)
        except Exception as error:  # each kind of place has its own
            remedy = "make it writable from here, or name another with --checkpoints (checkpoints=)"
            said = f"the place for checkpoints, {self.where}, cannot be used: {one_line(str(error))}: {remedy}"
            raise RunnerError(said) from None

    def mark(self, mark: str) -> None:
        self._write(f"{self._root}/.mark-{mark}", b"")

    def unmark(self, mark: str) -> None:
        self._remove(f"{self._root}/.mark-{mark}")

    def sees(self, mark: str) -> bool:
        try:
            return bool(self._system.exists(f"{self._root}/.mark-{mark}"))
        except Exception:  # no package, no rights, no network: not from here
            return False

    def put_aside(self) -> None:
        unused = (f"{self._root}.old-{n}" for n in itertools.count(1))
        aside = next(path for path in unused if not self._system.exists(path))
        found = sorted(self._system.find(self._root))
        for path in found:  # one by one: not every kind of place moves what it calls a folder
            self._make_folder(aside + path.removeprefix(self._root))
            self._system.cp_file(path, aside + path.removeprefix(self._root))
        for path in found:
            self._system.rm_file(path)

    def locate(self, trial: int, name: str) -> str:
        return f"{self.where}/{name_trial(trial)}/{name}{_ARCHIVE}"

    # how it is reached -------------------------------------------------------------------------------------------------

    def _find_objects(self) -> dict[tuple[int, int, str], dict[str, Any]]:
        """{(trial, step, name): {kind: facts}} of all that is there, in the order of the names."""
        self._system.invalidate_cache()
        objects: dict[tuple[int, int, str], dict[str, Any]] = {}
        for path, facts in sorted(self._system.find(self._root, detail=True).items()):
            if found := _OBJECT.fullmatch(path.removeprefix(self._root).lstrip("/")):
                objects.setdefault((int(found[1]), int(found[3]), found[2]), {})[f".{found[4]}"] = facts
        return objects

    @cached_property
    def _reached(self) -> tuple[Any, str]:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise MissingExtra(f"a place for checkpoints like {self.where}", "fsspec", "remote") from None
        try:
            system, root = url_to_fs(self.where)
        except (ImportError, ValueError, OSError) as error:  # no such kind of place, or its package is missing
            raise RunnerError(
                f"the place for checkpoints, {self.where}, cannot be reached: {one_line(str(error))}"
            ) from None
        return system, str(root).rstrip("/")

    @property
    def _system(self) -> Any:
        return self._reached[0]

    @property
    def _root(self) -> str:
        return self._reached[1]

    @cached_property
    def _desk(self) -> Folder:
        """Where training code writes on this machine."""
        return Folder(temporary_folder(self))

    def _place(self, trial: int, name: str) -> str:
        return f"{self._root}/{name_trial(trial)}/{name}"

    def _write(self, path: str, data: bytes) -> None:
        self._make_folder(path)
        self._system.pipe_file(path, data)

    def _make_folder(self, path: str) -> None:
        """Where there are folders, as on a disk behind SFTP. A bucket has none, and must not be made by mistake."""
        if path.startswith("/"):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(path)


def fetch(address: str) -> Path:
    """A copy of the checkpoint that `Remote.locate` tells of, in a temporary folder that goes with this process."""
    place, trial, name = address.removesuffix(_ARCHIVE).rsplit("/", 2)
    return Remote(place).get(int(trial.removeprefix("trial-")), name, temporary_folder(fetch))


def _join(step: int, attempt: str) -> str:
    return f"{name_step(step)}.{attempt}" if attempt else name_step(step)


def _read_time(facts: Mapping[str, Any]) -> float:
    """When an object was written; each kind of place has a name of its own for that."""
    for name in ("LastModified", "mtime", "created", "updated"):
        found = facts.get(name)
        if hasattr(found, "timestamp"):
            return float(found.timestamp())  # type: ignore[union-attr]
        if isinstance(found, int | float):
            return float(found)
    return 0.0


def _hide_password(url: str) -> str:
    parts = urlsplit(url)
    return url.replace(f":{parts.password}@", ":…@")
