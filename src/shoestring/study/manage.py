"""List, rename and delete the studies of a store, with their checkpoints and logs."""

from __future__ import annotations

from collections.abc import Iterator

from shoestring.core.values import checks
from shoestring.errors import ShoestringError, StoreError
from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore, open_checkpoint_store
from shoestring.stores.ledger_store import LedgerStore, refuse_name
from shoestring.study.journal import locate_checkpoints
from shoestring.study.study import Study


def open_all(store: LedgerStore) -> Iterator[tuple[str, Study | ShoestringError]]:
    """Yield the name of each study with the study, or with the error that it cannot be read."""
    for name in store.studies():
        try:
            yield name, Study.open(name, store)
        except ShoestringError as error:  # a damaged study must not hide the others
            yield name, error


def require_free(study: Study) -> None:
    """Raise StudyInUse if a process runs this study."""
    with study.store.lease(study.name):
        pass


def measure_files(study: Study) -> tuple[int, int]:
    """Return how many files the checkpoints and logs of a study are, and their bytes."""
    return open_checkpoint_store(study.checkpoints).measure()


def delete(study: Study) -> None:
    """Delete a study with its checkpoints and logs; raise StudyInUse if a process runs it."""
    with study.store.lease(study.name):
        # The files last: if that fails, they are only left over, and no study expects checkpoints that are gone.
        study.store.delete(study.name)
        open_checkpoint_store(study.checkpoints).delete_all()


def rename(study: Study, new: str) -> None:
    """Give a study and its checkpoints another name; raise StudyInUse if a process runs it."""
    checks.check_study_name(new)
    there = locate_checkpoints(study.store, new, study.ledger.definition.target.get("checkpoints"))
    with study.store.lease(study.name):
        if new in study.store.studies():  # before its checkpoints are found, which must not be moved away
            raise refuse_name(study.name, new, study.store)
        files, is_moved = open_checkpoint_store(study.checkpoints), there != study.checkpoints
        if is_moved:
            _require_empty(open_checkpoint_store(there), new)
            files.move(str(there))
        try:
            study.store.rename(study.name, new)
        except BaseException:
            if is_moved:
                open_checkpoint_store(there).move(str(study.checkpoints))
            raise


def _require_empty(place: CheckpointStore, name: str) -> None:
    if place.measure()[0]:
        raise StoreError(
            f"there are checkpoints of another study {name!r} in {place.where}: choose another name, or move them away"
        )
