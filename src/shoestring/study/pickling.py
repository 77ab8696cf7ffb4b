"""Pickle studies without their connections and locks.

The pickle of a stored study contains its name and the address of its store, with the password if the address has one. When it is
unpickled, the study is read from the store, with everything that was recorded in the meantime. The pickle of a study in memory
contains a copy of all entries; so does that of a study in a temporary file, which may be deleted before the pickle is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StudyError
from shoestring.stores.addresses import open_store
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.unnamed import is_unnamed
from shoestring.study.journal import Journal
from shoestring.study.loop import Ending, Reason
from shoestring.study.study import Study


def reduce_study(study: Study) -> tuple[Any, ...]:
    """Return the value of `Study.__reduce__`."""
    is_copy = isinstance(study.store, MemoryStore) or is_unnamed(getattr(study.store, "path", None))
    source = study.ledger if is_copy else getattr(study.store, "address", study.store)
    ending = None if study.ending is None else (study.ending.reason, study.ending.text)
    return _restore, (source, study.name, study.given_policy, ending, study.checkpoints if is_copy else None)


def _restore(
    source: Any, name: str, policy: Policy | None, ending: tuple[Reason, str] | None, checkpoints: Path | str | None
) -> Study:
    """Return the unpickled study; `source` is its ledger, its store or the address of the store."""
    store = MemoryStore() if isinstance(source, Ledger) else open_store(source, must_exist=True)
    ledger = store.append(name, None, *source.entries()) if isinstance(source, Ledger) else store.load(name)
    if ledger is None:
        raise StudyError(
            f"there is no study {name!r} in {store.where} any more: its pickle contains only the address of the store"
        )
    study = Study(Journal(store, name, ledger), policy)
    study.checkpoints = checkpoints or study.checkpoints
    study.ending = None if ending is None else Ending(*ending, ledger)
    return study
