"""Where the checkpoints of a study lie: beside its database; for a study in memory, in a folder that lives as long as it."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from hashlib import blake2b
from pathlib import Path

from shoestring.stores.in_memory import Memory
from shoestring.stores.store import Store

_folders: weakref.WeakKeyDictionary[object, Path] = weakref.WeakKeyDictionary()


def checkpoint_place(store: Store, name: str, place: str | None) -> Path | str:
    """In the `place` that the study names, a folder or `s3://bucket/runs`, else in its `checkpoint_root`."""
    if place is None:
        return checkpoint_root(store, name)
    leaf = "-".join(part for part in _split_name(name) if part)
    return f"{place.rstrip('/')}/{leaf}" if "://" in place else Path(place) / leaf


def checkpoint_root(store: Store, name: str) -> Path:
    """Beside the database of the store, in the present folder for a server, in a temporary one for a study in memory.

    Nothing is made in a folder of the user's before training code is run.
    """
    plain, tail = _split_name(name)
    if beside := getattr(store, "path", None):  # a database file
        folder = Path(f"{beside}.checkpoints")
    elif store.where == Memory.where:
        folder = temporary_folder(store)
    else:
        folder, tail = (
            Path("shoestring.checkpoints"),
            _hash(f"{store.where} {name}"),
        )
    return folder / (f"{plain}-{tail}" if tail else plain)


def _split_name(name: str) -> tuple[str, str]:
    """A study's name as files may have it, and a tail that tells names apart which look alike then."""
    plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)
    return plain, "" if plain == name else _hash(name)


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=4).hexdigest()


def temporary_folder(owner: object) -> Path:
    """The same folder each time it is asked for; deleted when the owner goes, at the latest when the process ends."""
    if owner not in _folders:
        folder = Path(tempfile.mkdtemp(prefix="shoestring-"))
        _folders[owner] = folder
        weakref.finalize(owner, _remove_own, folder, os.getpid())
    return _folders[owner]


def _remove_own(folder: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, at its end, must not delete what its parent uses
        shutil.rmtree(folder, ignore_errors=True)
