"""The SQL store on SQLite: addresses, durability, damage, a full disk, and concurrent writers."""

from __future__ import annotations

import gc
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, chdir, closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, Engine, event
from thoroughness import examples

from shoestring.core.ledger.entries import Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.errors import Conflict, DamagedStore, DecisionError, MissingExtra, StoreError
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.stores import database
from shoestring.stores import sqlite_file as files
from shoestring.stores.addresses import open_store
from shoestring.stores.database import read_server_address
from shoestring.stores.sql import SqlStore
from shoestring.study.run_study import RunOptions, run_study
from shoestring.study.study import Study
from shoestring.testing.curves import DecayingCurves
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text, entries_of_all_kinds

SPACE = Space({"lr": Float(1e-4, 1.0, log=True)})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def begin(file: Path, entries: int = 10) -> Ledger:
    """Write a study 's' of some entries into a file, without a journal beside it."""
    store = SqlStore(f"sqlite:///{file}")
    notes = [Note(topic="n", facts={"n": n, "text": "x" * 500}) for n in range(1, entries)]
    ledger = store.append("s", None, an_opening(), *notes)
    store.close()
    assert not Path(f"{file}-wal").exists()
    return ledger


def tamper(file: Path, *statements: str) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def refusal(file: Path) -> StoreError:
    with pytest.raises(StoreError) as caught:
        SqlStore(f"sqlite:///{file}").load("s")
    assert "\n" not in str(caught.value)
    return caught.value


# addresses -----------------------------------------------------------------------------------------------------------


def test_a_relative_path_is_resolved_when_the_store_is_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = SqlStore("sqlite:///a b%20ö.db")
    assert store.path == tmp_path / "a b%20ö.db"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.append("s", None, an_opening())
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".db"] == ["a b%20ö.db"]


def test_reading_creates_no_file(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    assert store.studies() == []
    assert store.load("s") is None
    assert not file.exists()
    file.touch()
    assert store.studies() == []
    assert store.load("s") is None
    assert file.stat().st_size == 0


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://host/db", "must begin with sqlite:/// or postgresql://"),
        ("postgresql://host:port/db", "is not an address"),
        ("nonsense", "is not an address"),
    ],
)
def test_an_address_that_cannot_be_used_is_an_error(address: str, text: str) -> None:
    with pytest.raises(StoreError, match=text) as caught:
        SqlStore(address)
    assert address in str(caught.value)


def test_postgresql_without_its_driver_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"psycopg.*shoestring\[postgresql\]"):
        SqlStore("postgresql://127.0.0.1/db")


def test_postgresql_has_no_path_and_hides_its_password() -> None:
    pytest.importorskip("psycopg")
    store = SqlStore("postgresql://me:secret@127.0.0.1:1/db")  # no server listens on port 1
    assert store.path is None
    with pytest.raises(
        StoreError, match=r"the store .* failed: .*: check the address, and that its server runs"
    ) as caught:
        store.load("s")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_study_needs_a_printable_name(file: Path) -> None:
    for name in ("", "two\nlines", "\x00", "\udcff"):
        with pytest.raises(StoreError, match="printable"):
            SqlStore(f"sqlite:///{file}").append(name, None, an_opening())
        assert SqlStore(f"sqlite:///{file}").load(name) is None
    assert not file.exists()


# safety --------------------------------------------------------------------------------------------------------------


def pragma(store: SqlStore, name: str) -> object:
    with store.database.transaction() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()


def test_every_commit_reaches_the_disk(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    store.append("s", None, an_opening())
    assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("wal", 2)
    assert pragma(store, "busy_timeout") == 30_000
    assert store.notices == []


def test_a_disk_without_write_ahead_logging_gives_a_notice(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}?vfs=unix-dotfile")  # without shared memory, like network disks
    ledger = store.append("s", None, *entries_of_all_kinds())
    assert (pragma(store, "journal_mode"), pragma(store, "synchronous")) == ("delete", 2)
    (notice,) = store.notices
    assert str(file) in notice
    assert "rollback journal" in notice
    store.close()
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)


def test_an_unused_store_closes_its_file(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    store.append("s", None, an_opening())
    assert Path(f"{file}-wal").exists()
    reference = weakref.ref(store.database)
    del store
    gc.collect()
    assert reference() is None
    assert not Path(f"{file}-wal").exists(), "closing the last connection merges the journal into the file"


def test_a_closed_store_opens_again(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening())
    store.close()
    store.close()
    assert entries_as_text(store.append("s", ledger, an_order(0))) == entries_as_text(store.load("s"))


def test_entries_that_cannot_be_stored_change_nothing(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening(), an_order(0))
    with pytest.raises(StoreError, match=r"entry 3 .*'s'.*object"):
        store.append("s", ledger, a_step(0, 1), Note(topic="x", facts={"what": object()}))
    with pytest.raises(DecisionError):
        store.append("s", ledger, a_step(0, 2))
    assert entries_as_text(store.load("s")) == entries_as_text(ledger)
    assert len(store.append("s", ledger, a_step(0, 1))) == 3


@pytest.fixture
def small_disk() -> Iterator[None]:
    """Make SQLite files fail beyond a few pages."""

    def limit(connection: sqlite3.Connection, _: object) -> None:
        connection.execute("PRAGMA max_page_count=8")

    event.listen(Engine, "connect", limit)
    yield
    event.remove(Engine, "connect", limit)


@pytest.mark.usefixtures("small_disk")
def test_a_full_disk_loses_no_stored_entry(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening(), an_order(0))
    big = Note(topic="big", facts={"text": "x" * 5000})
    with pytest.raises(StoreError, match=r"full: free some space.*stored entries are safe") as caught:  # noqa: PT012
        for _ in range(20):
            ledger = store.append("s", ledger, big, big)
    assert "\n" not in str(caught.value)
    assert len(ledger) % 2 == 0
    assert entries_as_text(store.load("s")) == entries_as_text(ledger), "an append stores all its entries or none"
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)
    assert len(store.append("s", ledger, a_step(0, 1))) == len(ledger) + 1, "a smaller entry can be stored"


# damage --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "last_good", "text"),
    [
        (
            "UPDATE entries SET body = replace(body, '\"n\":4', '\"n\":5') WHERE seq = 4",
            3,
            "entry 4 does not match its checksum",
        ),
        ("UPDATE entries SET at = at + 1 WHERE seq = 9", 8, "entry 9 does not match"),
        ("UPDATE entries SET body = '{\"n' WHERE seq = 4", 3, "entry 4 does not match"),
        ("UPDATE entries SET body = CAST(x'ff' AS TEXT) WHERE seq = 4", 3, "entry 4 lies in a destroyed part"),
        ("UPDATE entries SET body = x'00' WHERE seq = 4", 3, "entry 4 does not match"),
        ("DELETE FROM entries WHERE seq = 4", 3, "entry 4 is missing"),
        ("DELETE FROM entries WHERE seq = 0", -1, "entry 0 is missing"),
    ],
)
def test_a_damaged_row_is_named(file: Path, statement: str, last_good: int, text: str) -> None:
    begin(file)
    tamper(file, statement)
    error = refusal(file)
    assert isinstance(error, DamagedStore)
    assert error.last_good == last_good
    assert text in str(error)
    if last_good >= 0:
        assert f"the last good one is entry {last_good}: `shoestring repair --study s --store {file} -o NEW`" in str(
            error
        )


def test_a_damaged_study_does_not_affect_others(file: Path) -> None:
    begin(file)
    store = SqlStore(f"sqlite:///{file}")
    other = store.append("t", None, an_opening())
    tamper(file, "DELETE FROM entries WHERE study = 's' AND seq = 4")
    assert store.studies() == ["s", "t"]
    assert entries_as_text(store.load("t")) == entries_as_text(other)


@pytest.mark.parametrize("n_pages", [2, 3, 4])
def test_a_file_cut_short_is_an_error_with_a_remedy(file: Path, n_pages: int) -> None:
    ledger = begin(file, entries=60)
    data = file.read_bytes()
    file.write_bytes(data[: 4096 * n_pages])
    error = refusal(file)
    assert isinstance(error, DamagedStore)
    assert "-o NEW" in str(error) or "restore" in str(error)
    assert -1 <= error.last_good < len(ledger)


def test_a_file_that_is_not_a_database_is_an_error(file: Path) -> None:
    file.write_text("lr,loss\n0.1,0.5\n" * 100)
    assert "not a database" in str(refusal(file))
    file.unlink()
    file.mkdir()
    assert "its folder must exist" in str(refusal(file))
    missing = file.parent / "nowhere" / "store.db"
    with pytest.raises(StoreError, match="its folder must exist"):
        SqlStore(f"sqlite:///{missing}").append("s", None, an_opening())


def test_tables_of_another_program_are_left_unchanged(file: Path) -> None:
    tamper(file, "CREATE TABLE entries (title TEXT)")
    before = file.read_bytes()
    assert "no such column" in str(refusal(file))
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_a_file_locked_by_another_program_is_tried_again(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = begin(file)
    monkeypatch.setattr(files, "BUSY_S", 0.05)
    monkeypatch.setattr(database, "RETRY_S", 0.2)
    store = SqlStore(f"sqlite:///{file}")
    messages: list[str] = []
    store.on_outage = messages.append
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="locked: another program has locked it"):
            store.append("s", ledger, an_order(0))
    (message,) = messages  # once, however often it was repeated
    assert "another program has locked it" in message
    assert message.endswith(". Trying again for 0 s; training goes on meanwhile")
    assert entries_as_text(store.append("s", ledger, an_order(0))) == entries_as_text(store.load("s"))


# other processes -----------------------------------------------------------------------------------------------------


def test_refresh_verifies_only_new_rows(file: Path) -> None:
    ours, theirs = SqlStore(f"sqlite:///{file}"), SqlStore(f"sqlite:///{file}")
    ledger = ours.append("s", None, an_opening(), an_order(0))
    loaded = theirs.load("s")
    assert loaded is not None
    tamper(file, "UPDATE entries SET at = 0 WHERE seq = 1")  # this row was read before
    ledger = ours.append("s", ledger, a_step(0, 1))
    loaded = theirs.refresh("s", loaded)
    assert entries_as_text(loaded) == entries_as_text(ledger)
    ledger = ours.append("s", ledger, a_step(0, 2), an_order(1))
    tamper(file, "UPDATE entries SET at = 0 WHERE seq = 4")
    with pytest.raises(DamagedStore, match="entry 4 ") as caught:
        theirs.refresh("s", loaded)
    assert caught.value.last_good == 3


def test_a_study_that_was_deleted_is_an_error(file: Path) -> None:
    ledger = begin(file)
    with pytest.raises(StoreError, match="it was deleted, renamed, or its file replaced"):
        SqlStore(f"sqlite:///{file.parent}/another.db").refresh("s", ledger)


STEPS = st.lists(st.tuples(st.integers(0, 1), st.sampled_from(["append", "stale", "refresh", "reopen"])), max_size=25)


@examples(9, thorough=25)
@given(steps=STEPS)
def test_two_writers_give_the_list_of_the_accepted_entries(
    steps: list[tuple[int, str]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever two handles do in any order, the study is the list of the accepted entries."""
    address = f"sqlite:///{tmp_path_factory.mktemp('two')}/store.db"
    stores = [SqlStore(address), SqlStore(address)]
    ledger = stores[0].append("s", None, an_opening())
    ledgers, truth = [ledger, stores[1].load("s") or ledger], list(entries_as_text(ledger))
    for number, (index, what) in enumerate(steps):
        if what == "reopen":
            stores[index].close()
            stores[index] = SqlStore(address)
        elif what == "refresh":
            ledgers[index] = stores[index].refresh("s", ledgers[index])
            assert entries_as_text(ledgers[index]) == truth
        else:
            entry = Note(topic="n", facts={"n": number})
            base = (
                ledgers[index].fork(len(ledgers[index]) - 1)
                if what == "stale" and len(ledgers[index]) > 1
                else ledgers[index]
            )
            if len(base) == len(truth):
                ledgers[index] = stores[index].append("s", base, entry)
                truth = entries_as_text(ledgers[index])
            else:
                with pytest.raises(Conflict):
                    stores[index].append("s", base, entry)
    for store in stores:
        assert entries_as_text(store.load("s")) == truth
        store.close()


WRITER = """
import sys
from shoestring.core.ledger.entries import Note
from shoestring.errors import Conflict
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import an_opening
address, who, many = sys.argv[1], sys.argv[2], int(sys.argv[3])
store, written = SqlStore(address), 0
print("ready", flush=True)
sys.stdin.readline()
try:
    ledger = store.append("s", None, an_opening())
except Conflict:
    ledger = store.load("s")
while written < many:
    try:
        ledger = store.append("s", ledger, Note(topic=who, facts={"n": written}))
        written += 1
    except Conflict:
        ledger = store.refresh("s", ledger)
"""


def race(address: str, writers: int = 3, many: int = 20) -> None:
    """Let processes begin the same study and append as fast as they can; check that no entry is lost or stored twice."""
    started = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, address, f"writer {number}", str(many)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    for writer in started:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in started:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in started:
        writer.communicate(timeout=60)
        assert writer.returncode == 0
    ledger = SqlStore(address).load("s")
    assert ledger is not None
    notes = [entry for entry in ledger.entries(1) if isinstance(entry, Note)]
    assert len(notes) == len(ledger) - 1 == writers * many
    for number in range(writers):
        assert [note.facts["n"] for note in notes if note.topic == f"writer {number}"] == list(range(many))


def test_concurrent_processes_lose_and_repeat_no_entry(file: Path) -> None:
    race(f"sqlite:///{file}")


def test_heartbeats_are_written_while_entries_are_appended(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening())
    stop, beats = threading.Event(), [0]
    with store.lease("s") as lease:

        def beat() -> None:
            while not stop.is_set():
                lease.beat(1, {0: float(beats[0])})
                beats[0] += 1

        heart = threading.Thread(target=beat)
        heart.start()
        try:
            appended = 0
            while appended < 100 or beats[0] < 100:
                ledger = store.append("s", ledger, Note(topic="n"))
                appended += 1
        finally:
            stop.set()
            heart.join()
    assert len(ledger) == appended + 1
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("s")) == entries_as_text(ledger)


def test_a_file_may_be_created_by_another_process_at_the_same_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not wait while another process changes the journal mode: it reports "locked" at once, so we try again."""
    refusals = iter([True, True])
    transaction = database.Database.transaction

    def refused(self: database.Database, **how: bool) -> AbstractContextManager[Connection]:
        if next(refusals, False):
            raise database.StoreUnavailable("database is locked")
        return transaction(self, **how)

    monkeypatch.setattr(database.Database, "transaction", refused)
    database.Database(f"sqlite:///{file}").make_tables()
    assert next(refusals, None) is None
    monkeypatch.setattr(files, "BUSY_S", 0.0)
    monkeypatch.setattr(
        database.Database, "transaction", lambda self: (_ for _ in ()).throw(database.StoreUnavailable("locked"))
    )
    with pytest.raises(StoreError, match="locked"):
        database.Database(f"sqlite:///{file}").make_tables()


# waiting for the disk ------------------------------------------------------------------------------------------------


def test_a_batch_of_receipts_is_one_commit(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening(), *(an_order(n) for n in range(5)))
    commits: list[object] = []
    event.listen(store.database._engine, "commit", commits.append)
    store.append("s", ledger, *(a_step(n, step) for step in (1, 2) for n in range(5)))
    assert len(commits) == 1


def test_entries_that_are_not_durable_do_not_wait_for_the_disk(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}")
    ledger = store.append("s", None, an_opening(), durable=False)
    assert pragma_now(store, "synchronous") == 1
    ledger = store.append("s", ledger, an_order(0))
    assert pragma_now(store, "synchronous") == 2, "and other appends do"
    store.append("s", ledger, a_step(0, 1), durable=False)
    assert pragma_now(store, "synchronous") == 1
    with store.lease("s") as lease:
        lease.beat(3, {})
        assert pragma_now(store, "synchronous") == 2, "a heartbeat takes all earlier entries to the disk"


def pragma_now(store: SqlStore, name: str) -> object:
    """Return the setting that the last transaction left."""
    connection = store.database._connection
    assert connection is not None
    driver = connection.connection.dbapi_connection
    assert driver is not None
    return driver.cursor().execute(f"PRAGMA {name}").fetchone()[0]


def test_without_write_ahead_logging_every_commit_waits(file: Path) -> None:
    store = SqlStore(f"sqlite:///{file}?vfs=unix-dotfile")
    store.append("s", None, an_opening(), durable=False)
    assert pragma_now(store, "synchronous") == 2


def test_a_simulated_study_waits_for_the_disk_only_at_its_end(file: Path) -> None:
    """Its appends do not wait; the last heartbeat does."""
    settings: list[object] = []
    study = Study.begin(SPACE, "30 epochs", store=f"sqlite:///{file}", policy="random_search", seed=1)

    def look(ledger: Ledger, entry: object) -> None:
        assert isinstance(study.store, SqlStore)
        settings.append(pragma_now(study.store, "synchronous"))

    run_study(study, SimulatedRunner(DecayingCurves()), RunOptions(observe=look))
    assert settings.count(1) >= 58  # a heartbeat may come between
    assert isinstance(study.store, SqlStore)
    assert pragma_now(study.store, "synchronous") == 2
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("study")) == entries_as_text(study.ledger)


def test_a_real_study_reaches_the_disk_while_it_trains(file: Path, tmp_path: Path) -> None:
    """Quick appends do not wait for the disk, but a heartbeat soon takes them there, and the last one waits."""
    store = SqlStore(f"sqlite:///{file}")
    study = Study.begin(SPACE, "3 epochs", store=store, policy="random_search", seed=1)
    waited: list[object] = []

    def train(config: object) -> float:
        deadline = time.monotonic() + 30.0
        while time.monotonic() < deadline and pragma_now(store, "synchronous") != 2:
            time.sleep(0.005)  # long enough for the heartbeat thread
        waited.append(pragma_now(store, "synchronous"))
        return 1.0

    def look(ledger: Ledger, entry: object) -> None:
        appended.append(pragma_now(store, "synchronous"))

    appended: list[object] = []
    run_study(study, LocalRunner(train, Checkpoints(tmp_path / "checkpoints")), RunOptions(observe=look))
    assert waited == [2, 2, 2]
    assert 1 in appended
    assert pragma_now(store, "synchronous") == 2


# passwords -----------------------------------------------------------------------------------------------------------


def test_a_password_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    bare = "postgresql://me@127.0.0.1:1/db"
    monkeypatch.delenv("SHOESTRING_STORE_PASSWORD", raising=False)
    assert read_server_address(bare).password is None
    assert not SqlStore(bare).has_password
    assert read_server_address("postgresql://me:own@127.0.0.1:1/db").password == "own"
    with pytest.raises(StoreError, match="hides its password: put it into SHOESTRING_STORE_PASSWORD"):
        SqlStore("postgresql://me:***@127.0.0.1:1/db")
    monkeypatch.setenv("SHOESTRING_STORE_PASSWORD", "p@ss/word")
    for address in (bare, "postgresql://me:***@127.0.0.1:1/db"):
        assert read_server_address(address).password == "p@ss/word"
    assert read_server_address("postgresql://me:own@127.0.0.1:1/db").password == "own"


def test_a_password_among_the_parameters_is_used_and_hidden() -> None:
    pytest.importorskip("psycopg")
    store = SqlStore("postgresql://me@127.0.0.1:1/db?password=h%40sh&application_name=me%40work&sslpassword=hush")
    assert store.has_password
    assert store.where == "postgresql+psycopg://me@127.0.0.1:1/db?application_name=me%40work"
    url = read_server_address(store.address)
    assert (url.password, url.query["sslpassword"]) == ("h@sh", "hush")


@pytest.mark.parametrize(
    "address",
    [
        "postgres://me:hush@127.0.0.1:1/db",
        "postgresql://me:hush@127.0.0.1:port/db",
        "postgresql://me:hush@hush@127.0.0.1:1/db",
        "postgresql://me:hu?sh@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?password=hu@hush",
        "postgresql//me:hush@127.0.0.1:1/db",
        "postgresql://127.0.0.1:port/db?password=hush",
        "host=127.0.0.1 port=1 password=hush",
        "postgresql://me:hush@127.0.0.1:1/db\n",
    ],
)
def test_an_address_that_cannot_be_used_does_not_show_its_password(address: str, tmp_path: Path) -> None:
    with chdir(tmp_path), pytest.raises(StoreError) as caught:
        open_store(address).load("s")
    assert "hush" not in str(caught.value)
    assert "***" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_address_of_a_store_can_be_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg")
    store = SqlStore("postgresql://me:p%40ss@127.0.0.1:1/db")
    assert store.has_password
    assert store.where == "postgresql+psycopg://me@127.0.0.1:1/db"
    monkeypatch.setenv("SHOESTRING_STORE_PASSWORD", "p@ss")
    assert SqlStore(store.where).where == store.where
    assert "SHOESTRING_STORE_PASSWORD" in str(store._describe_damage("s", 3, "entry 3 is missing"))
