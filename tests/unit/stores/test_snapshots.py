"""Snapshots in a store: a long study is opened from one, only a fitting one is trusted, and earlier rows are verified."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, event

from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import DamagedStore
from shoestring.stores import snapshots
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(snapshots, "_MIN_NEW_ENTRIES_AT_END", 1)
    return tmp_path / "store.db"


def write_study(file: Path, trials: int = 5) -> Ledger:
    """Write a study that has entries behind its snapshot."""
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening())
    for number in range(trials):
        ledger = store.append("s", ledger, an_order(number), a_step(number, 1), a_step(number, 2))
    store.finish_run("s", ledger)
    ledger = store.append("s", ledger, an_order(trials), a_step(trials, 1))
    store.close()
    return ledger


def tamper(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def rows_read(file: Path) -> tuple[Ledger, int]:
    """Return the study, and how many rows of entries were decoded to load it."""
    decoded: list[str] = []

    def watch(connection: object, cursor: object, statement: str, parameters: object, *rest: object) -> None:
        decoded.append(f"{statement} {parameters}")

    event.listen(Engine, "before_cursor_execute", watch)
    try:
        ledger = SqlStore(f"sqlite:///{file}").load("s")
    finally:
        event.remove(Engine, "before_cursor_execute", watch)
    assert ledger is not None
    return ledger, sum("FROM entries" in text and "('s', 0)" in text for text in decoded)


def test_a_study_is_opened_from_its_snapshot(file: Path) -> None:
    truth = write_study(file)
    ledger, whole_reads = rows_read(file)
    assert whole_reads == 0, "only the first row and the rows behind the snapshot"
    assert (len(ledger), ledger.spent, len(ledger.orders)) == (len(truth), truth.spent, 6)
    assert repr(ledger.trials) == repr(truth.trials)
    assert entries_as_text(ledger) == entries_as_text(truth), "earlier entries are read when they are needed"
    assert list(ledger.orders) == list(truth.orders)
    assert ledger.fork(4).spent == truth.fork(4).spent


def test_a_study_is_continued_from_its_snapshot(file: Path) -> None:
    truth = write_study(file)
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.load("s")
    assert ledger is not None
    grown = store.append("s", ledger, a_step(5, 2))
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == [
        *entries_as_text(truth),
        entries_as_text(grown)[-1],
    ]
    other = SqlStore(f"sqlite:///{file}")
    assert entries_as_text(other.refresh("s", truth)) == entries_as_text(grown)
    other.append("s", grown, an_order(6))
    assert len(store.refresh("s", grown)) == len(grown) + 1
    tamper(file, "DELETE FROM snapshots")
    assert len(SqlStore(f"sqlite:///{file}").load("s") or ()) == len(grown) + 1, (
        "the chain of checksums does not need the snapshot"
    )


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM snapshots",
        "DROP TABLE snapshots",
        "UPDATE snapshots SET body = replace(body, '0.5', '0.4')",
        "UPDATE snapshots SET body = substr(body, 1, 100)",
        "UPDATE snapshots SET body = x'00ff'",
        "UPDATE snapshots SET body = CAST(x'ff' AS TEXT)",
        "UPDATE snapshots SET body = NULL" if sqlite3.sqlite_version_info < (3, 0) else "UPDATE snapshots SET body = 7",
        "UPDATE snapshots SET seq = seq - 1",
        "UPDATE snapshots SET sum = (SELECT sum FROM entries WHERE seq = 3)",
        "UPDATE snapshots SET layout = 'older'",
        "UPDATE snapshots SET seal = ''",
        "UPDATE snapshots SET study = 't'",
    ],
)
def test_a_snapshot_that_does_not_fit_is_ignored(file: Path, damage: str) -> None:
    truth = write_study(file)
    tamper(file, damage)
    ledger, _ = rows_read(file)
    assert entries_as_text(ledger) == entries_as_text(truth)
    assert repr(ledger.trials) == repr(truth.trials)
    assert ledger.spent == truth.spent


def test_a_snapshot_of_another_study_s_rows_is_ignored(file: Path, tmp_path: Path) -> None:
    write_study(file)
    other = tmp_path / "other.db"
    truth = write_study(other, trials=7)
    tamper(other, f"ATTACH '{file}' AS a")
    with closing(sqlite3.connect(other)) as connection, connection:
        connection.execute("ATTACH ? AS a", (str(file),))
        connection.execute("DELETE FROM snapshots")
        connection.execute("INSERT INTO snapshots SELECT * FROM a.snapshots")
    ledger, _ = rows_read(other)
    assert entries_as_text(ledger) == entries_as_text(truth)


@pytest.mark.parametrize("seq", [1, 7, 15])
def test_earlier_rows_are_verified_when_they_are_read(file: Path, seq: int) -> None:
    truth = write_study(file)
    tamper(file, f"UPDATE entries SET body = replace(body, '0.', '1.') WHERE seq = {seq}")
    ledger, _ = rows_read(file)
    assert repr(ledger.trials) == repr(truth.trials), "the state comes from the snapshot"
    with pytest.raises(DamagedStore, match=f"entry {seq} ") as caught:
        ledger.entries()
    assert caught.value.last_good == seq - 1
    with pytest.raises(DamagedStore):
        list(ledger.orders)


def test_a_change_of_the_first_row_is_noticed(file: Path) -> None:
    """The snapshot has the checksum of row 0, because row 0 is read without the rows between."""
    write_study(file)
    other_file = file.parent / "stranger.db"
    SqlStore(f"sqlite:///{other_file}").append("s", None, an_opening("7 epochs"))
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("ATTACH ? AS other", (str(other_file),))
        connection.execute("DELETE FROM entries WHERE seq = 0")
        connection.execute("INSERT INTO entries SELECT * FROM other.entries")
    with pytest.raises(DamagedStore, match="entry 1 "):
        SqlStore(f"sqlite:///{file}").load("s")


def test_a_study_cut_off_before_the_end_of_its_snapshot_is_damaged(file: Path) -> None:
    truth = write_study(file)
    tamper(file, "DELETE FROM entries WHERE seq > 15")
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(truth.fork(16))
    tamper(file, "DELETE FROM entries WHERE seq > 9")
    with pytest.raises(DamagedStore, match="entry 10 is missing, of 16 that were stored") as caught:
        SqlStore(f"sqlite:///{file}").load("s")
    assert caught.value.last_good == 9


def test_snapshots_are_written_rarely_and_at_the_end_of_a_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert snapshots.is_due(5_000, 0)
    assert not snapshots.is_due(4_999, 0)
    assert not snapshots.is_due(105_000, 100_000)
    assert snapshots.is_due(115_000, 100_000)
    monkeypatch.setattr(snapshots, "_MIN_NEW_ENTRIES", 10)
    written: list[int] = []
    write = snapshots.write
    monkeypatch.setattr(snapshots, "write", lambda *words: (written.append(words[3]), write(*words)))  # type: ignore[func-returns-value]
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening())
    for n in range(40):
        ledger = store.append("s", ledger, Note(topic="n", facts={"n": n}))
    assert written == [9, 20, 33], "the intervals grow by a tenth of the study"
    store.finish_run("s", ledger)
    store.finish_run("s", ledger)
    assert written == [9, 20, 33, 40]


def test_a_snapshot_that_cannot_be_written_is_not_an_error(file: Path) -> None:
    write_study(file)
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.load("s")
    assert ledger is not None
    tamper(file, "CREATE TRIGGER t BEFORE DELETE ON snapshots BEGIN SELECT RAISE(FAIL, 'no'); END")
    ledger = store.append("s", ledger, a_step(5, 2))
    store.finish_run("s", ledger)
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)
