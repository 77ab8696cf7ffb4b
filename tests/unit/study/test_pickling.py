"""Pickles of studies and ledgers: the address and name of a stored study, or all entries of a study in memory."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from shoestring import Choice, Float, Space, Study, tune
from shoestring.core.deciding.decision import Decision, Train
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StoreError, StudyError
from shoestring.stores.database import Database
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.sql import SqlStore

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "o": Choice(["a", "b"])})


def loss(config: Any) -> float:
    return float(config["lr"])


def pickle_and_unpickle(original: Any) -> Any:
    return pickle.loads(pickle.dumps(original))


@dataclass(frozen=True)
class UnregisteredPolicy:
    """A policy that is not registered."""

    name: ClassVar[str] = "mine"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return Train(trial=len(ledger.trials), config={"lr": 0.5, "o": "a"}, until=1)


def test_a_ledger_keeps_its_entries_and_its_state() -> None:
    ledger = tune(loss, SPACE, "9 epochs", seed=1).ledger
    copied = pickle_and_unpickle(ledger)
    assert copied.entries() == ledger.entries()
    assert (copied.spent, copied.best.best_value) == (ledger.spent, ledger.best.best_value)  # type: ignore[union-attr]
    assert copy.deepcopy(ledger).entries() == ledger.entries()


def test_an_older_ledger_is_pickled_without_newer_entries() -> None:
    study = tune(loss, SPACE, "4 epochs", seed=1)
    older = study.ledger.fork(3)
    assert len(pickle_and_unpickle(older)) == 3
    assert pickle_and_unpickle(older).entries() == study.ledger.entries()[:3]


def test_a_study_in_memory_becomes_a_copy_that_can_continue() -> None:
    study = tune(loss, SPACE, "5 epochs", seed=1)
    copied = pickle_and_unpickle(study)
    assert isinstance(copied.store, MemoryStore)
    assert (copied.name, copied.best, repr(copied)) == (study.name, study.best, repr(study))
    assert copied.ending.reason == "budget"
    assert copied.checkpoints == study.checkpoints
    copied.enqueue({"lr": 0.5, "o": "a"})
    assert len(copied.ledger) == len(study.ledger) + 1


def test_a_study_in_a_file_is_read_again_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study.begin(SPACE, "5 epochs", store="s.db", seed=1)
    pickled = pickle.dumps(study)
    study.run(loss)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    copied = pickle.loads(pickled)
    assert isinstance(copied.store, SqlStore)
    assert copied.spent == 5  # includes the steps that were recorded after the pickle was made
    assert copied.checkpoints == study.checkpoints
    copied.enqueue({"lr": 0.5, "o": "a"})
    assert len(study.journal.refresh()) == len(copied.ledger)


def test_another_process_can_unpickle_a_study(tmp_path: Path) -> None:
    study = tune(loss, SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", seed=1)
    program = "import pickle, sys; study = pickle.load(sys.stdin.buffer); print([study.spent, study.best.value])"
    result = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(study), capture_output=True, timeout=120, check=True
    )
    assert study.best is not None
    assert json.loads(result.stdout) == [5, study.best.value]


def test_a_pickle_has_the_password_but_no_lock_or_connection(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db")
    assert len(pickle.dumps(study)) < 1000  # the address and the name
    address = "postgresql://me:secret@db.example/x"
    database = Database(address)
    assert database.address == address
    assert "secret" not in database.where


def test_a_study_that_no_longer_exists_is_an_error(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", name="s")
    pickled = pickle.dumps(study)
    (tmp_path / "s.db").unlink()
    with pytest.raises(StoreError, match=r"'.*s\.db'"):
        pickle.loads(pickled)
    Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", name="other")
    with pytest.raises(StudyError, match=r"there is no study 's' in .* any more"):
        pickle.loads(pickled)


def test_an_unregistered_policy_is_in_the_pickle() -> None:
    study = Study.begin(SPACE, "5 epochs", policy=UnregisteredPolicy())
    assert pickle_and_unpickle(study).ask() is not None
