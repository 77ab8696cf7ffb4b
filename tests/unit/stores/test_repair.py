"""Repair copies all entries up to the last good one, and never writes to the damaged file."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Engine, event
from thoroughness import examples

from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import DamagedStore, StoreError
from shoestring.stores.repair import RepairResult, repair
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import an_opening, entries_as_text, entries_of_all_kinds

PAGE = 4096


def begin(file: Path, entries: int = 60) -> Ledger:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, *entries_of_all_kinds())
    notes = [Note(topic="n", facts={"n": n, "text": "x" * (37 * n % 900)}) for n in range(entries)]
    ledger = store.append("s", ledger, *notes)
    store.append("other", None, an_opening())
    store.close()
    return ledger


@contextmanager
def check_unchanged(folder: Path) -> Iterator[None]:
    """Check that no file of this folder is written, created or removed."""

    def state() -> dict[str, tuple[bytes, int]]:
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    before = state()
    yield
    assert state() == before


def test_entries_before_a_changed_row_are_copied(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    file = tmp_path / "old" / "store.db"
    ledger = begin(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE entries SET body = 'x' WHERE study = 's' AND seq = 20")
    with check_unchanged(tmp_path / "old"):
        done = repair(f"sqlite:///{file}", "s", f"sqlite:///{tmp_path}/new.db")
    assert (done.n_copied, done.n_dropped) == (20, len(ledger) - 20)
    assert done.reason.startswith("entry 20 ")
    store = SqlStore(f"sqlite:///{tmp_path}/new.db")
    n_copied = store.load("s")
    assert entries_as_text(n_copied) == entries_as_text(ledger.fork(20))
    assert store.studies() == ["s"]
    assert n_copied is not None
    assert len(store.append("s", n_copied, Note(topic="more"))) == 21


def test_entries_before_a_missing_row_are_copied(tmp_path: Path) -> None:
    ledger = begin(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("DELETE FROM entries WHERE study = 's' AND seq = 20")
    done = repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db"))
    assert (done.n_copied, done.n_dropped) == (20, len(ledger) - 21)
    assert done.reason.startswith("entry 20 ")


def test_an_undamaged_study_is_copied_completely(tmp_path: Path) -> None:
    ledger = begin(tmp_path / "store.db")
    done = repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db"))
    assert done == RepairResult(n_copied=len(ledger), n_dropped=0, reason="")
    assert entries_as_text(SqlStore(f"sqlite:///{tmp_path}/new.db").load("s")) == entries_as_text(ledger)


CRASH = """
import os, sys
from shoestring.core.ledger.entries import Note
from shoestring.stores.sql import SqlStore
store = SqlStore(sys.argv[1])
store.append("s", store.load("s"), *[Note(topic="late", facts={"n": n}) for n in range(5)])
os.kill(os.getpid(), 9)
"""


def test_entries_that_a_crash_left_in_the_journal_are_copied(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    file = tmp_path / "old" / "store.db"
    ledger = begin(file)
    subprocess.run([sys.executable, "-c", CRASH, f"sqlite:///{file}"], check=False, timeout=60)
    assert Path(f"{file}-wal").stat().st_size > 0
    with check_unchanged(tmp_path / "old"):
        done = repair(f"sqlite:///{file}", "s", f"sqlite:///{tmp_path}/new.db")
    assert done.n_copied == len(ledger) + 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Ledger]:
    file = tmp_path_factory.mktemp("whole") / "store.db"
    ledger = begin(file)
    return file.read_bytes(), ledger


@examples(10, thorough=30)
@given(seed=st.integers(0, 10_000), cut=st.booleans())
def test_after_a_destroyed_page_exactly_the_good_entries_are_copied(
    whole: tuple[bytes, Ledger], tmp_path_factory: pytest.TempPathFactory, seed: int, cut: bool
) -> None:
    """With a page of noise, or a file cut short, the entries that are read are always the first entries of the study."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "old").mkdir()
    file = folder / "old" / "store.db"
    data, ledger = bytearray(whole[0]), whole[1]
    noise = random.Random(seed)
    page = noise.randrange(1, len(data) // PAGE)  # the first one is tested apart
    if cut:
        del data[page * PAGE + noise.randrange(PAGE) :]
    else:
        data[page * PAGE : (page + 1) * PAGE] = noise.randbytes(PAGE)
    file.write_bytes(data)
    store = SqlStore(f"sqlite:///{file}")
    try:
        loaded = store.load("s")
        last_good = len(loaded or ()) - 1
        assert entries_as_text(loaded) == entries_as_text(ledger), "a study that loads is complete"
    except DamagedStore as error:
        last_good = error.last_good
    store.close()
    with check_unchanged(folder / "old"):
        if last_good < 0:
            with pytest.raises(StoreError, match="'s'"):
                repair(str(file), "s", str(folder / "new.db"))
            assert not (folder / "new.db").exists()
            return
        done = repair(str(file), "s", str(folder / "new.db"))
    assert done.n_copied == last_good + 1, "the error names exactly the last entry that repair copies"
    assert entries_as_text(SqlStore(f"sqlite:///{folder}/new.db").load("s")) == entries_as_text(
        ledger.fork(done.n_copied)
    )


def test_most_destroyed_pages_cost_only_later_entries(tmp_path: Path) -> None:
    """Destroy each page in turn: the later the page, the more entries are copied."""
    ledger = begin(tmp_path / "store.db", entries=100)
    whole = (tmp_path / "store.db").read_bytes()
    n_copied = []
    for page in range(2, len(whole) // PAGE):
        damaged = tmp_path / f"{page}.db"
        damaged.write_bytes(whole[: page * PAGE] + b"\xa5" * PAGE + whole[(page + 1) * PAGE :])
        try:
            n_copied.append(repair(str(damaged), "s", str(tmp_path / f"new-{page}.db")).n_copied)
        except StoreError:
            n_copied.append(0)
    assert max(n_copied) > len(ledger) / 2
    assert sum(count > 0 for count in n_copied) > len(n_copied) / 2


def test_nothing_can_be_copied_from_a_file_with_a_destroyed_beginning(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    begin(file)
    data = file.read_bytes()
    file.write_bytes(b"\0" * 100 + data[100:])
    with pytest.raises(StoreError, match=r"nothing of the study 's' can be copied from .*store\.db: "):
        repair(str(file), "s", str(tmp_path / "new.db"))


def test_a_repair_that_would_overwrite_or_finds_nothing_is_refused(tmp_path: Path) -> None:
    file, new = tmp_path / "store.db", tmp_path / "new.db"
    ledger = begin(file)
    with pytest.raises(StoreError, match=r"there is no such study\. Did you mean 'other'"):
        repair(str(file), "othr", str(new))
    with pytest.raises(
        StoreError,
        match=r"there is no store '.*missing\.db': give one that exists, with store=…",
    ):
        repair(str(tmp_path / "missing.db"), "s", str(new))
    with pytest.raises(StoreError, match=r"store\.db exists: give the repaired study a file of its own"):
        repair(str(file), "s", str(file))
    assert not new.exists()
    new.write_text("mine")
    with pytest.raises(StoreError, match=r"new\.db exists"):
        repair(str(file), "s", str(new))
    assert new.read_text() == "mine"
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)


def test_a_full_disk_leaves_no_file(tmp_path: Path) -> None:
    begin(tmp_path / "store.db")

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count=4")

    event.listen(Engine, "connect", limit)
    try:
        with pytest.raises(StoreError, match="full"):
            repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db"))
    finally:
        event.remove(Engine, "connect", limit)
    assert [path.name for path in tmp_path.iterdir()] == ["store.db"]
    assert repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db")).n_dropped == 0
