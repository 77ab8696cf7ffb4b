"""SQLite files that cannot be written can be read; an attempt to write gives one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amendment
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StoreError
from shoestring.stores.sql import SqlStore
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import an_order, entries_as_text, entries_of_all_kinds

ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep other rules about deleted journals")


@pytest.fixture(params=["without a journal", "with a journal", "with a rollback journal's mode"])
def read_only_study(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, Ledger]:
    """Yield a study in a folder that cannot be written, such as an archive; a crash may have left a journal there."""
    folder = tmp_path / "archive"
    folder.mkdir()
    file = tmp_path / "made.db"
    options = "?vfs=unix-dotfile" if "rollback" in request.param else ""
    store = SqlStore(f"sqlite:///{file}{options}")
    ledger = store.append("s", None, *entries_of_all_kinds())
    if request.param != "with a journal":
        store.close()
    for path in tmp_path.glob("made.db*"):
        if not path.name.endswith("-shm"):  # shared memory does not outlive a restart
            shutil.copy(path, folder / path.name.replace("made", "read_only_study"))
    store.close()
    found = folder / "read_only_study.db"
    assert Path(f"{found}-wal").exists() == (request.param == "with a journal")
    _forbid_writing(folder, monkeypatch)
    return found, ledger


def _forbid_writing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a folder read-only. Root may write anywhere, so for root only the check itself is replaced."""
    may = os.access
    for path in (*folder.iterdir(), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)
    monkeypatch.setattr(
        os,
        "access",
        lambda path, mode: not (mode & os.W_OK and folder in (Path(path), Path(path).parent)) and may(path, mode),
    )


@ON_LINUX
def test_it_is_opened_for_reading(read_only_study: tuple[Path, Ledger]) -> None:
    file, truth = read_only_study
    before = {path.name: path.read_bytes() for path in file.parent.iterdir() if not path.name.endswith("-shm")}
    study = Study.open("s", str(file))
    assert entries_as_text(study.ledger) == entries_as_text(truth)
    assert study.explain(0).number == 0
    assert study.store.studies() == ["s"]
    after = {path.name: path.read_bytes() for path in file.parent.iterdir() if not path.name.endswith("-shm")}
    assert after == before


@ON_LINUX
def test_writing_is_refused(read_only_study: tuple[Path, Ledger]) -> None:
    file, truth = read_only_study
    study = Study.open("s", str(file))
    for attempt in (
        lambda: study.store.append("s", truth, an_order(3)),
        lambda: study.store.lease("s"),
        lambda: study.amend(Amendment(budget=Budget("3h"))),
        lambda: study.enqueue({"lr": 0.5, "kind": "~odd"}),
    ):
        with pytest.raises(StoreError, match="can only be read: make the file and its folder writable") as caught:
            attempt()
        assert "\n" not in str(caught.value)


def test_a_journal_that_cannot_be_merged_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`immutable` alone would show the study without the entries in the journal."""
    file = tmp_path / "read_only_study.db"
    store = SqlStore(f"sqlite:///{file}")
    first, *rest = entries_of_all_kinds()
    ledger = store.append("s", None, first)
    store.close()
    ledger = store.append("s", ledger, *rest)
    archive = tmp_path / "archive"
    archive.mkdir()
    for ending in ("", "-wal"):
        shutil.copy(f"{file}{ending}", archive / f"read_only_study.db{ending}")
    store.close()
    with closing(sqlite3.connect(f"file:{archive}/read_only_study.db?immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (1,)
    _forbid_writing(archive, monkeypatch)
    assert len(SqlStore(f"sqlite:///{archive}/read_only_study.db").load("s") or ()) == len(ledger)
