"""Repair: everything up to the last good entry, and never a byte written to the damaged file."""

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
from shoestring.errors import Damaged, StoreError
from shoestring.stores.repair import Repaired, repair
from shoestring.stores.sql import Sql
from shoestring.testing.ledger_stores import a_life, an_opening, entries_as_text

PAGE = 4096


def begin(file: Path, entries: int = 60) -> Ledger:
    store = Sql(f"sqlite:///{file}")
    ledger = store.append("s", None, *a_life())
    notes = [Note(topic="n", facts={"n": n, "text": "x" * (37 * n % 900)}) for n in range(entries)]
    ledger = store.append("s", ledger, *notes)
    store.append("other", None, an_opening())
    store.close()
    return ledger


@contextmanager
def untouched(folder: Path) -> Iterator[None]:
    """No file of this folder is written, made or removed."""

    def state() -> dict[str, tuple[bytes, int]]:
        return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir()}

    before = state()
    yield
    assert state() == before


def test_a_row_that_was_changed(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    file = tmp_path / "old" / "store.db"
    ledger = begin(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE entries SET body = 'x' WHERE study = 's' AND seq = 20")
    with untouched(tmp_path / "old"):
        done = repair(f"sqlite:///{file}", "s", f"sqlite:///{tmp_path}/new.db")
    assert done == Repaired(kept=20, dropped=len(ledger) - 20, why="entry 20 does not match its checksum")
    store = Sql(f"sqlite:///{tmp_path}/new.db")
    kept = store.load("s")
    assert entries_as_text(kept) == entries_as_text(ledger.fork(20))
    assert store.studies() == ["s"]
    assert kept is not None
    assert len(store.append("s", kept, Note(topic="on we go"))) == 21


def test_a_missing_row(tmp_path: Path) -> None:
    ledger = begin(tmp_path / "store.db")
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        connection.execute("DELETE FROM entries WHERE study = 's' AND seq = 20")
    done = repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db"))
    assert done == Repaired(kept=20, dropped=len(ledger) - 21, why="entry 20 is missing")


def test_a_sound_study_is_copied_whole(tmp_path: Path) -> None:
    ledger = begin(tmp_path / "store.db")
    done = repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db"))
    assert done == Repaired(kept=len(ledger), dropped=0, why="")
    assert entries_as_text(Sql(f"sqlite:///{tmp_path}/new.db").load("s")) == entries_as_text(ledger)


CRASH = """
import os, sys
from shoestring.core.ledger.entries import Note
from shoestring.stores.sql import Sql
store = Sql(sys.argv[1])
store.append("s", store.load("s"), *[Note(topic="late", facts={"n": n}) for n in range(5)])
os.kill(os.getpid(), 9)
"""


def test_what_a_crash_left_in_the_journal_is_saved_too(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    file = tmp_path / "old" / "store.db"
    ledger = begin(file)
    subprocess.run([sys.executable, "-c", CRASH, f"sqlite:///{file}"], check=False, timeout=60)
    assert Path(f"{file}-wal").stat().st_size > 0
    with untouched(tmp_path / "old"):
        done = repair(f"sqlite:///{file}", "s", f"sqlite:///{tmp_path}/new.db")
    assert done.kept == len(ledger) + 5


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, Ledger]:
    file = tmp_path_factory.mktemp("whole") / "store.db"
    ledger = begin(file)
    return file.read_bytes(), ledger


@examples(10, thorough=30)
@given(seed=st.integers(0, 10_000), cut=st.booleans())
def test_any_destroyed_page(
    whole: tuple[bytes, Ledger], tmp_path_factory: pytest.TempPathFactory, seed: int, cut: bool
) -> None:
    """A page of noise, or the file cut short: what is read is always a true beginning of the study."""
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
    store = Sql(f"sqlite:///{file}")
    try:
        loaded = store.load("s")
        last_good = len(loaded or ()) - 1
        assert entries_as_text(loaded) == entries_as_text(ledger), "what loads is whole"
    except Damaged as error:
        last_good = error.last_good
    store.close()
    with untouched(folder / "old"):
        if last_good < 0:
            with pytest.raises(StoreError, match="nothing of the study 's' can be saved"):
                repair(str(file), "s", str(folder / "new.db"))
            assert not (folder / "new.db").exists()
            return
        done = repair(str(file), "s", str(folder / "new.db"))
    assert done.kept == last_good + 1, "the error names exactly what repair keeps"
    assert entries_as_text(Sql(f"sqlite:///{folder}/new.db").load("s")) == entries_as_text(ledger.fork(done.kept))


def test_most_destroyed_pages_cost_only_what_comes_after_them(tmp_path: Path) -> None:
    """Of all pages, one after another: the entries kept grow with the place of the damage."""
    ledger = begin(tmp_path / "store.db", entries=100)
    whole = (tmp_path / "store.db").read_bytes()
    kept = []
    for page in range(2, len(whole) // PAGE):
        damaged = tmp_path / f"{page}.db"
        damaged.write_bytes(whole[: page * PAGE] + b"\xa5" * PAGE + whole[(page + 1) * PAGE :])
        try:
            kept.append(repair(str(damaged), "s", str(tmp_path / f"new-{page}.db")).kept)
        except StoreError:
            kept.append(0)
    assert max(kept) > len(ledger) / 2
    assert sum(count > 0 for count in kept) > len(kept) / 2


def test_a_destroyed_beginning(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    begin(file)
    data = file.read_bytes()
    file.write_bytes(b"\0" * 100 + data[100:])
    with pytest.raises(StoreError, match="nothing of the study 's' can be saved"):
        repair(str(file), "s", str(tmp_path / "new.db"))


def test_what_is_refused(tmp_path: Path) -> None:
    file, new = tmp_path / "store.db", tmp_path / "new.db"
    ledger = begin(file)
    with pytest.raises(StoreError, match=r"there is no such study\. Did you mean 'other'"):
        repair(str(file), "othr", str(new))
    with pytest.raises(StoreError, match="there is no store"):
        repair(str(tmp_path / "missing.db"), "s", str(new))
    with pytest.raises(StoreError, match=r"store\.db exists: give the repaired study a file of its own"):
        repair(str(file), "s", str(file))
    assert not new.exists()
    new.write_text("mine")
    with pytest.raises(StoreError, match=r"new\.db exists"):
        repair(str(file), "s", str(new))
    assert new.read_text() == "mine"
    assert entries_as_text(Sql(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
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
    assert repair(str(tmp_path / "store.db"), "s", str(tmp_path / "new.db")).dropped == 0
