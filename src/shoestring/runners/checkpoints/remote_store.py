"""Checkpoints in any place that fsspec can reach: `s3://bucket/runs`, `gs://…`, `sftp://…`.

    PLACE/trial-0007/step-000012.ATTEMPT.tar       an archive of what training code wrote
    PLACE/trial-0007/step-000012.ATTEMPT.whole     an empty object, which says that the archive is complete

Such places cannot rename an object without copying it, so an archive becomes a checkpoint when an empty object is put beside it.
Access rights are those that fsspec finds in the environment of each machine; none of them is stored here.
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
from urllib.parse import parse_qsl, urlsplit

from shoestring.core.values.credentials import hide_credentials, is_secret_name
from shoestring.errors import MissingExtra, RunnerError, did_you_mean, one_line, show_argument
from shoestring.runners.checkpoints.archive import remove, unpack, write_archive
from shoestring.runners.checkpoints.checkpoint_store import (
    FolderStore,
    PutCheckpoint,
    StoredCheckpoint,
    name_step,
    name_trial,
    require_written,
)
from shoestring.runners.checkpoints.digest import Digest
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder

_OBJECT = re.compile(r"trial-(\d+)/(step-(\d+)(?:\.\w+)?)\.(tar|whole)")
# Even showing a stored study reads from its place, so only kinds that store files are allowed. Others of fsspec send requests
# to any web server, or chain several places.
_BUCKET_KINDS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "oss")
_KINDS = (*_BUCKET_KINDS, "sftp", "ssh", "smb", "hdfs", "webhdfs", "memory")
_WHOLE, _ARCHIVE = ".whole", ".tar"


class RemoteStore:
    """Checkpoints in a place that fsspec can reach."""

    def __init__(self, url: str) -> None:
        if (kind := url.partition("://")[0]) not in _KINDS:
            raise RunnerError(
                f"the place for checkpoints, {one_line(hide_credentials(url))}, is of a kind that is not supported, {kind!r}. "
                f"{did_you_mean(kind, _KINDS)}"
            )
        parts = urlsplit(url)
        if parts.password is not None or any(is_secret_name(name) for name, _ in parse_qsl(parts.query)):
            raise RunnerError(
                f"the place for checkpoints, {hide_credentials(url)}, holds a password, which the study would store: give it "
                "to fsspec on each machine, in the environment or in its configuration file"
            )
        self.where = url.rstrip("/")

    def __getstate__(self) -> dict[str, str]:
        return {"where": self.where}  # connections are made where they are used

    def __setstate__(self, state: Mapping[str, str]) -> None:
        self.where = state["where"]

    # on the machine that trains --------------------------------------------------------------------------------------

    def scratch(self, trial: int, step: int, attempt: str = "") -> Path:
        return self._local_folder.scratch(trial, step, attempt)

    def put(self, trial: int, step: int, attempt: str = "") -> PutCheckpoint:
        written = self._local_folder._partial(trial, step, attempt)
        require_written(written)
        place = self._place(trial, _join(step, attempt))
        self._make_folder(place)
        self._remove(place + _WHOLE)  # the new archive is not complete until it is committed
        with Digest(written) as digest, self._system.open(place + _ARCHIVE, "wb") as file:
            write_archive(written, file)
        remove(written)
        return PutCheckpoint(digest.text)

    def get(self, trial: int, name: str, into: Path, archive: bytes | None = None) -> Path:
        with self._system.open(self._place(trial, name) + _ARCHIVE, "rb") as file:
            return unpack(file, into / name)

    # where the study runs --------------------------------------------------------------------------------------------

    def list(self) -> dict[int, dict[int, StoredCheckpoint]]:
        listed: dict[int, dict[int, StoredCheckpoint]] = {}
        for (trial, step, name), parts in self._find_objects().items():
            if parts.keys() == {_WHOLE, _ARCHIVE}:
                stored = StoredCheckpoint(name, int(parts[_ARCHIVE]["size"] or 0), _read_time(parts[_WHOLE]))
                listed.setdefault(trial, {})[step] = stored
        return listed

    def delete_uncommitted(self) -> None:
        for (trial, _, name), parts in self._find_objects().items():
            if parts.keys() != {_WHOLE, _ARCHIVE}:
                self.delete(trial, name)

    def has(self, trial: int, name: str) -> bool:
        return True  # a check would take a request; a missing checkpoint is noticed when it is fetched

    def commit(self, trial: int, step: int, attempt: str = "", archive: bytes | None = None) -> StoredCheckpoint:
        name = _join(step, attempt)
        place = self._place(trial, name)
        if archive is not None:
            self._write(place + _ARCHIVE, archive)
        self._write(place + _WHOLE, b"")
        return StoredCheckpoint(name, int(self._system.size(place + _ARCHIVE) or 0), time.time())

    def pack(self, trial: int, name: str) -> bytes:
        archive: bytes = self._system.cat_file(self._place(trial, name) + _ARCHIVE)
        return archive

    def delete(self, trial: int, name: str) -> None:
        for part in (_WHOLE, _ARCHIVE):  # in this order: an archive alone is no checkpoint
            self._remove(self._place(trial, name) + part)

    def check_writable(self) -> None:
        probe = f"{self._root}/probe-{time.time_ns()}"
        bucket = self._root.split("/")[0]  # empty where there are real folders
        try:
            if bucket and not self._system.exists(bucket):
                raise FileNotFoundError(f"there is no {bucket}")  # writing might make one
            self._write(probe, b"can be written")
            self._system.rm_file(probe)
        except Exception as error:  # each kind of place has its own errors
            remedy = f"make it writable from here, or name another with {show_argument('checkpoints')}"
            raise RunnerError(
                f"the place for checkpoints, {self.where}, cannot be used: {one_line(str(error))}: {remedy}"
            ) from None

    def add_marker(self, marker: str) -> None:
        self._write(f"{self._root}/.mark-{marker}", b"")

    def remove_marker(self, marker: str) -> None:
        self._remove(f"{self._root}/.mark-{marker}")

    def has_marker(self, marker: str) -> bool:
        try:
            return bool(self._system.exists(f"{self._root}/.mark-{marker}"))
        except Exception:  # no package, no rights, or no network: it cannot be reached from here
            return False

    def move_aside(self) -> None:
        unused = (f"{self._root}.old-{n}" for n in itertools.count(1))
        self._move(next(path for path in unused if not self._system.exists(path)))

    def move(self, where: str) -> None:
        self._move(RemoteStore(where)._root)

    def _move(self, root: str) -> None:
        found = sorted(self._find_files())
        for path in found:  # one by one: not every kind of place can move what it calls a folder
            self._make_folder(root + path.removeprefix(self._root))
            self._system.cp_file(path, root + path.removeprefix(self._root))
        for path in found:
            self._system.rm_file(path)

    def measure(self) -> tuple[int, int]:
        sizes = [int(facts["size"] or 0) for facts in self._find_files().values()]
        return len(sizes), sum(sizes)

    def delete_all(self) -> None:
        for path in self._find_files():
            self._system.rm_file(path)

    def locate(self, trial: int, name: str) -> str:
        return f"{self.where}/{name_trial(trial)}/{name}{_ARCHIVE}"

    # access ----------------------------------------------------------------------------------------------------------

    def _find_files(self) -> dict[str, dict[str, Any]]:
        """Return {path: facts} of everything in the place."""
        self._system.invalidate_cache()
        found: dict[str, dict[str, Any]] = self._system.find(self._root, detail=True)
        return found

    def _find_objects(self) -> dict[tuple[int, int, str], dict[str, Any]]:
        """Return {(trial, step, name): {kind: facts}} of all objects, in the order of their names."""
        objects: dict[tuple[int, int, str], dict[str, Any]] = {}
        for path, facts in sorted(self._find_files().items()):
            if found := _OBJECT.fullmatch(path.removeprefix(self._root).lstrip("/")):
                objects.setdefault((int(found[1]), int(found[3]), found[2]), {})[f".{found[4]}"] = facts
        return objects

    @cached_property
    def _system_and_root(self) -> tuple[Any, str]:
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
        return self._system_and_root[0]

    @property
    def _root(self) -> str:
        return self._system_and_root[1]

    @cached_property
    def _local_folder(self) -> FolderStore:
        """The folder into which training code writes on this machine."""
        return FolderStore(get_temporary_folder(self))

    def _place(self, trial: int, name: str) -> str:
        return f"{self._root}/{name_trial(trial)}/{name}"

    def _write(self, path: str, data: bytes) -> None:
        self._make_folder(path)
        self._system.pipe_file(path, data)

    def _make_folder(self, path: str) -> None:
        """Make the folder of a file where there are folders, as with SFTP. A bucket has none and must not be made by mistake."""
        if path.startswith("/"):
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._system.rm_file(path)


def fetch(address: str) -> Path:
    """Fetch the checkpoint at an address that `RemoteStore.locate` returned; return a path that lasts as long as this process."""
    place, trial, name = address.removesuffix(_ARCHIVE).rsplit("/", 2)
    return RemoteStore(place).get(int(trial.removeprefix("trial-")), name, get_temporary_folder(fetch))


def _join(step: int, attempt: str) -> str:
    return f"{name_step(step)}.{attempt}" if attempt else name_step(step)


def _read_time(facts: Mapping[str, Any]) -> float:
    """Return when an object was written; each kind of place has a name of its own for that."""
    for name in ("LastModified", "mtime", "created", "updated"):
        found = facts.get(name)
        if hasattr(found, "timestamp"):
            return float(found.timestamp())  # type: ignore[union-attr]
        if isinstance(found, int | float):
            return float(found)
    return 0.0
