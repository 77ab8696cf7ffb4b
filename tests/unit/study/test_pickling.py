"""Studies and ledgers as pickles: by address and name where there is a database, with their entries where there is none."""

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
from shoestring.stores.in_memory import Memory
from shoestring.stores.sql import Sql

SPACE = Space({"lr": Float(1e-4, 1.0, log=True), "o": Choice(["a", "b"])})


def loss(config: Any) -> float:
    return float(config["lr"])


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@dataclass(frozen=True)
class Mine:
    """A policy that is in no registry."""

    name: ClassVar[str] = "mine"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return Train(trial=len(ledger.trials), config={"lr": 0.5, "o": "a"}, until=1)


def test_a_ledger_keeps_all_entries_and_what_follows_from_them() -> None:
    ledger = tune(loss, SPACE, "9 epochs", seed=1).ledger
    copied = again(ledger)
    assert copied.entries() == ledger.entries()
    assert (copied.spent, copied.best.best_value) == (ledger.spent, ledger.best.best_value)  # type: ignore[union-attr]
    assert copy.deepcopy(ledger).entries() == ledger.entries()


def test_an_older_ledger_is_pickled_as_it_was_then() -> None:
    study = tune(loss, SPACE, "4 epochs", seed=1)
    older = study.ledger.fork(3)
    assert len(again(older)) == 3
    assert again(older).entries() == study.ledger.entries()[:3]


def test_a_study_in_memory_is_a_copy_that_goes_on() -> None:
    study = tune(loss, SPACE, "5 epochs", seed=1)
    copied = again(study)
    assert isinstance(copied.store, Memory)
    assert (copied.name, copied.best, repr(copied)) == (study.name, study.best, repr(study))
    assert copied.ending.reason == "budget"
    assert copied.checkpoints == study.checkpoints
    copied.enqueue({"lr": 0.5, "o": "a"})
    assert len(copied.ledger) == len(study.ledger) + 1


def test_a_study_in_a_file_is_read_anew_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = Study.begin(SPACE, "5 epochs", store="s.db", seed=1)
    pickled = pickle.dumps(study)
    study.run(loss)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    copied = pickle.loads(pickled)
    assert isinstance(copied.store, Sql)
    assert copied.spent == 5  # what was recorded since is there
    assert copied.checkpoints == study.checkpoints
    copied.enqueue({"lr": 0.5, "o": "a"})
    assert len(study.journal.refresh()) == len(copied.ledger)


def test_another_process_can_take_it(tmp_path: Path) -> None:
    study = tune(loss, SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", seed=1)
    program = "import pickle, sys; study = pickle.load(sys.stdin.buffer); print([study.spent, study.best.value])"
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(study), capture_output=True, timeout=120, check=True
    )
    assert study.best is not None
    assert json.loads(done.stdout) == [5, study.best.value]


def test_neither_lock_nor_connection_travels_and_the_password_does(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db")
    assert len(pickle.dumps(study)) < 1000  # the address and the name
    address = "postgresql://me:secret@db.example/x"
    database = Database(address)
    assert database.address == address
    assert "secret" not in database.where


def test_a_study_that_is_gone_says_so(tmp_path: Path) -> None:
    study = Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", name="s")
    pickled = pickle.dumps(study)
    (tmp_path / "s.db").unlink()
    with pytest.raises(StoreError, match="there is no store"):
        pickle.loads(pickled)
    Study.begin(SPACE, "5 epochs", store=f"sqlite:///{tmp_path}/s.db", name="other")
    with pytest.raises(StudyError, match=r"there is no study 's' in .* any more"):
        pickle.loads(pickled)


def test_a_policy_that_is_not_registered_comes_along() -> None:
    study = Study.begin(SPACE, "5 epochs", policy=Mine())
    assert again(study).ask() is not None
