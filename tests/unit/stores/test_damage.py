"""Damage that the checksums of the rows cannot show: lost ends, entries that exist but cannot be read, broken files."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from thoroughness import repetitions

from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import DamagedStore, ShoestringError, StudyInUse
from shoestring.stores import database, lease
from shoestring.stores.ledger_store import Heartbeat
from shoestring.stores.repair import RepairResult, repair
from shoestring.stores.sql import SqlStore
from shoestring.study.journal import Journal
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text

PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def write_study(file: Path, orders: int = 10) -> Ledger:
    """Write a study as a run does, with heartbeats; return its ledger of 1 + 2 * orders entries."""
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening("10000 epochs"))
    with store.lease("s") as held:
        for number in range(orders):
            entries = an_order(number), a_step(number, 1)
            ledger = store.append("s", ledger, *entries, heartbeat=Heartbeat(held, {}))
    store.close()
    return ledger


def tamper(file: Path, statement: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(statement)


def open_store(file: Path) -> SqlStore:
    return SqlStore(f"sqlite:///{file}")


@pytest.mark.parametrize("left", [0, 1, 20])
def test_a_study_shorter_than_at_its_last_heartbeat_is_damaged(file: Path, tmp_path: Path, left: int) -> None:
    truth = write_study(file)
    tamper(file, f"DELETE FROM entries WHERE seq >= {left}")
    with pytest.raises(DamagedStore, match=f"entry {left} is missing, of 21 that were stored") as caught:
        open_store(file).load("s")
    assert caught.value.last_good == left - 1
    if left:
        assert repair(str(file), "s", str(tmp_path / "new.db")) == RepairResult(
            left, 21 - left, f"entry {left} is missing"
        )
        assert entries_as_text(open_store(tmp_path / "new.db").load("s")) == entries_as_text(truth.fork(left))


def test_entries_that_vanish_during_a_run_are_damage(file: Path) -> None:
    write_study(file)
    store = open_store(file)
    ledger = store.load("s")
    assert ledger is not None
    grown = store.append("s", ledger, Note(topic="n"))
    tamper(file, "DELETE FROM entries WHERE seq >= 15")
    with pytest.raises(DamagedStore, match="entry 15 is missing, of 22 that were stored"):
        store.refresh("s", grown.fork(15))


def test_a_conflict_without_a_new_entry_is_damage(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(file)
    tamper(file, "CREATE TRIGGER refuse BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'it exists'); END")
    calls = 0

    def count(method: str) -> None:
        original = getattr(SqlStore, method)

        def counted(*given: object) -> object:
            nonlocal calls
            calls += 1
            assert calls < 1000, "the append is repeated for ever"
            return original(*given)

        monkeypatch.setattr(SqlStore, method, counted)

    count("refresh")
    count("load")
    store = open_store(file)
    ledger = store.load("s")
    assert ledger is not None
    with pytest.raises(DamagedStore, match="entry 21 exists, but cannot be read"):
        Journal(store, "s", ledger).append_newest(lambda ledger: [Note(topic="n")])
    definition = ledger.definition
    with pytest.raises(DamagedStore, match="entry 21 exists, but cannot be read"):
        Study.begin(definition.space, "9000 epochs", name="s", store=str(file), max_steps=4)


def test_a_lease_that_changes_all_the_time_is_not_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(file)
    tries = 0

    def never(self: lease.SqlLease, connection: object) -> None:
        nonlocal tries
        tries += 1
        assert tries < 1000, "the lease is tried for ever"

    monkeypatch.setattr(lease.SqlLease, "_try_to_take", never)
    with pytest.raises(StudyInUse, match="its lease changed 100 times meanwhile"):
        open_store(file).lease("s")


def test_the_structure_of_the_file_is_checked_before_a_run(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    truth = write_study(file)
    add_unused_page(file)
    store = open_store(file)
    assert entries_as_text(store.load("s")) == entries_as_text(truth)
    with pytest.raises(
        DamagedStore, match=r"store.db is damaged: .*[Pp]age .*never used.*: `shoestring repair --study NAME"
    ):
        store.lease("s")
    monkeypatch.setattr(database, "_CHECK_S", -1.0)  # the time is over before the damage is found
    monkeypatch.setattr(database, "_CHECK_INSTRUCTIONS", 1)
    store.lease("s")


def add_unused_page(file: Path) -> None:
    """Add a page to the file that no table uses: all rows can be read, but the file was not written by SQLite."""
    merge_journal(file)
    data = bytearray(file.read_bytes())
    data[28:32] = (len(data) // PAGE + 1).to_bytes(4, "big")
    file.write_bytes(bytes(data) + bytes(PAGE))


def merge_journal(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


@pytest.mark.repeated
def test_a_flipped_bit_never_shortens_a_study(tmp_path: Path) -> None:
    truth = write_study(tmp_path / "made.db", orders=60)
    merge_journal(tmp_path / "made.db")
    data, whole = (tmp_path / "made.db").read_bytes(), entries_as_text(truth)
    with closing(sqlite3.connect(tmp_path / "made.db")) as connection:
        roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_master").fetchall())
    pages = [page for page in range(2, len(data) // PAGE + 1) if page not in (roots["leases"], roots["snapshots"])]
    refused = 0
    for seed in range(repetitions(200, thorough=3000)):
        chance, changed = random.Random(seed), bytearray(data)
        # Half of the bits are in the head of a page, which says how many rows it has and where.
        place = PAGE * (chance.choice(pages) - 1) + chance.randrange(12 if seed % 2 else PAGE)
        changed[place] ^= 1 << chance.randrange(8)
        file = tmp_path / "store.db"
        file.write_bytes(changed)
        for ending in ("-wal", "-shm"):
            Path(f"{file}{ending}").unlink(missing_ok=True)
        store = open_store(file)
        try:
            seen = entries_as_text(store.load("s"))
        except ShoestringError:
            refused += 1
        else:
            assert seen == whole, f"seed {seed}: {len(seen)} of {len(whole)} entries"
        finally:
            store.close()
    assert refused > 10
