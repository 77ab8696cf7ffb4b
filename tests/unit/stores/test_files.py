"""SQLite files that must not be written are read all the same, and what would write says so in one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StoreError
from shoestring.stores.sql import Sql
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import a_life, an_order, entries_as_text

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep other rules about deleted journals")


@pytest.fixture(params=["without a journal", "with a journal", "with a rollback journal's mode"])
def frozen(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Ledger]:
    """A study in a folder that cannot be written, as on a mounted archive; a crash may have left a journal there."""
    folder = tmp_path / "archive"
    folder.mkdir()
    file = tmp_path / "made.db"
    options = "?vfs=unix-dotfile" if "rollback" in request.param else ""
    store = Sql(f"sqlite:///{file}{options}")
    ledger = store.append("s", None, *a_life())
    if request.param != "with a journal":
        store.close()
    for path in tmp_path.glob("made.db*"):
        if not path.name.endswith("-shm"):  # shared memory does not outlive a restart
            shutil.copy(path, folder / path.name.replace("made", "frozen"))
    store.close()
    found = folder / "frozen.db"
    assert Path(f"{found}-wal").exists() == (request.param == "with a journal")
    _forbid_writing(folder, monkeypatch)
    return found, ledger


def _forbid_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For this user: root may write anywhere, so for root the question alone is answered as on read-only media."""
    may = os.access
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (mode & os.W_OK and folder in (Path(path), Path(path).parent)) and may(path, mode),
    )


@ON_LINUX
def test_it_opens_for_reading(frozen: tuple[Path, Ledger]) -> None:
    file, truth = frozen
    before = {path.name: path.read_bytes() for path in file.parent.iterdir() if not path.name.endswith("-shm")}
    study = Study.open("s", str(file))
    assert entries_as_text(study.ledger) == entries_as_text(truth)
    assert study.explain(0).number == 0
    assert study.store.studies() == ["s"]
    after = {path.name: path.read_bytes() for path in file.parent.iterdir() if not path.name.endswith("-shm")}
    assert after == before


@ON_LINUX
def test_what_would_write_says_so(frozen: tuple[Path, Ledger]) -> None:
    file, truth = frozen
    study = Study.open("s", str(file))
    for attempt in (
        lambda: study.store.append("s", truth, an_order(3)),
        lambda: study.store.lease("s"),
        lambda: study.amend(Amended(budget=Budget("3h"))),
        lambda: study.enqueue({"lr": 0.5, "kind": "~odd"}),
    ):
        with pytest.raises(StoreError, match="can only be read: make the file and its folder writable") as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_a_journal_that_cannot_be_taken_in_is_not_overlooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`immutable` alone would show the study as it was before the journal: old news, taken for the truth."""
    file = tmp_path / "frozen.db"
    store = Sql(f"sqlite:///{file}")
    first, *rest = a_life()
    ledger = store.append("s", None, first)
    store.close()
    ledger = store.append("s", ledger, *rest)
    archive = tmp_path / "archive"
    archive.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{file}{ending}", archive / f"frozen.db{ending}")
    store.close()
    with closing(sqlite3.connect(f"file:{archive}/frozen.db?immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    _forbid_writing(archive, monkeypatch)
    assert len(Sql(f"sqlite:///{archive}/frozen.db").load("s") or ()) == len(ledger)
