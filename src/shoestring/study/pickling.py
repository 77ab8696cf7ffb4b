"""Studies as pickles: neither a connection nor a lock travels, only what it takes to have the study again.

A study in a database is its store's address, as it was given (a password in it included), and its name: it is read anew
where it is unpickled, with whatever was recorded meanwhile. A study in memory takes its entries along and is a copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StudyError
from shoestring.stores.addresses import open_store
from shoestring.stores.in_memory import Memory
from shoestring.study.journal import Journal
from shoestring.study.loop import Ending, Reason
from shoestring.study.study import Study


def pickled(study: Study) -> tuple[Any, ...]:
    """What `Study.__reduce__` gives."""
    in_memory = isinstance(study.store, Memory)
    held = study.ledger if in_memory else getattr(study.store, "address", study.store)
    ending = None if study.ending is None else (study.ending.reason, study.ending.text)
    return _restore, (held, study.name, study.given_policy, ending, study.checkpoints if in_memory else None)


def _restore(
    held: Any, name: str, policy: Policy | None, ending: tuple[Reason, str] | None, checkpoints: Path | str | None
) -> Study:
    """`held` is the ledger of a study that was in memory, else its store or the store's address."""
    store = Memory() if isinstance(held, Ledger) else open_store(held, must_exist=True)
    ledger = store.append(name, None, *held.entries()) if isinstance(held, Ledger) else store.load(name)
    if ledger is None:
        raise StudyError(
            f"there is no study {name!r} in {store.where} any more: its pickle held no more than the address"
        )
    study = Study(Journal(store, name, ledger), policy)
    study.checkpoints = checkpoints or study.checkpoints
    study.ending = None if ending is None else Ending(*ending, ledger)
    return study
