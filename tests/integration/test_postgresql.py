"""The SQL store on a real PostgreSQL server, in addition to the contract of all stores."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_server import Server, new_database
from sqlalchemy import Connection

from shoestring.core.ledger.entries import Note
from shoestring.errors import Conflict, DamagedStore, StoreError, StudyInUse
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.stores.database import Database, StoreUnavailable
from shoestring.stores.ledger_store import Heartbeat
from shoestring.stores.repair import RepairResult, repair
from shoestring.stores.sql import SqlStore
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import an_opening, an_order, entries_as_text, entries_of_all_kinds

pytestmark = pytest.mark.postgresql

WRITER = """
import sys
from shoestring.core.ledger.entries import Note
from shoestring.errors import Conflict
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import an_opening
store, who, written = SqlStore(sys.argv[1]), sys.argv[2], 0
store.studies()
print("ready", flush=True)
sys.stdin.readline()
try:
    ledger = store.append("s", None, an_opening())
except Conflict:
    ledger = store.load("s")
while written < 20:
    try:
        ledger = store.append("s", ledger, Note(topic=who, facts={"n": written}))
        written += 1
    except Conflict:
        ledger = store.refresh("s", ledger)
"""


@pytest.fixture
def address() -> str:
    return new_database()


@pytest.fixture
def query(address: str) -> Callable[[str], object]:
    """Return a function that runs a statement without the store."""
    import psycopg

    def run(statement: str) -> object:
        with psycopg.connect(address, autocommit=True) as connection:
            done = connection.execute(statement.encode())
            return done.fetchall() if done.description else None

    return run


def test_reading_creates_no_tables(address: str, query: Callable[[str], object]) -> None:
    store = SqlStore(address)
    assert store.studies() == []
    assert store.load("s") is None
    assert query("SELECT tablename FROM pg_tables WHERE schemaname = 'public'") == []


def test_concurrent_processes_lose_and_repeat_no_entry(address: str) -> None:
    """They create the tables and begin the same study at once, then append as fast as they can."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, address, f"writer {number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(3)
    ]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    for writer in writers:
        writer.communicate(timeout=60)
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    ledger = SqlStore(address).load("s")
    assert ledger is not None
    notes = [entry for entry in ledger.entries(1) if isinstance(entry, Note)]
    assert len(notes) == len(ledger) - 1 == 60
    for number in range(3):
        assert [note.facts["n"] for note in notes if note.topic == f"writer {number}"] == list(range(20))


def test_processes_may_create_the_tables_at_the_same_time() -> None:
    """PostgreSQL's own "if not exists" fails in this case, with an error that users cannot understand."""
    for _ in range(3):
        databases = [Database(address) for address in [new_database()] * 8]
        start = threading.Barrier(len(databases))

        def make(database: Database, start: threading.Barrier = start) -> None:
            with database.transaction() as connection:  # connect first, so that all start at the same time
                connection.exec_driver_sql("SELECT 1")
            start.wait(30)
            database.make_tables()

        with ThreadPoolExecutor(len(databases)) as pool:
            list(pool.map(make, databases))  # raises the error of any of them
        for database in databases:
            database.close()


def test_the_lease_uses_the_clock_of_the_server(
    address: str, query: Callable[[str], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = SqlStore(address), SqlStore(address)
    ours.append("s", None, an_opening("1h"), an_order(0))
    with ours.lease("s") as lease:
        lease.beat(2, {0: 2.5})
        query("UPDATE leases SET host = 'tower', heard_at = heard_at - 30")
        monkeypatch.setattr("time.time", lambda: 1e12)  # this machine's clock is far ahead
        with pytest.raises(StudyInUse, match=r"tower.* 3\d s "):
            theirs.lease("s")
        query("UPDATE leases SET heard_at = heard_at - 31")
        with theirs.lease("s") as lease:
            assert dict(lease.uncharged_s) == {0: 3.5}, "and one heartbeat is added"
            with pytest.raises(StudyInUse):
                ours.lease("s")


DISCONNECT_ALL = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname <> ''"
)


def test_a_broken_connection_is_opened_again(address: str, query: Callable[[str], object]) -> None:
    store = SqlStore(address)
    messages: list[str] = []
    store.on_outage = messages.append
    ledger = store.append("s", None, an_opening())
    query(DISCONNECT_ALL)
    grown = store.append("s", ledger, an_order(0))
    assert entries_as_text(SqlStore(address).load("s")) == entries_as_text(grown)
    disconnected, connected_again = messages
    assert " 60 s" in disconnected
    assert re.search(r"the store .* answers again, after \d+ s", connected_again)
    assert not any("\n" in message for message in messages)
    query(DISCONNECT_ALL)
    assert entries_as_text(store.load("s")) == entries_as_text(grown)
    query(DISCONNECT_ALL)
    with store.lease("s"):
        pass


def test_entries_whose_answer_was_lost_are_not_stored_again(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqlStore(address)
    store.on_outage = lambda text: None
    ledger = store.append("s", None, an_opening())
    transaction, lost = Database.transaction, iter([True])

    @contextmanager
    def break_after_the_commit(self: Database, **how: bool) -> Iterator[Connection]:
        with transaction(self, **how) as connection:
            yield connection
        if next(lost, False):
            self.close()
            raise StoreUnavailable("the server closed the connection unexpectedly")

    with store.lease("s") as lease:
        monkeypatch.setattr(Database, "transaction", break_after_the_commit)
        grown = store.append("s", ledger, an_order(0), an_order(1), heartbeat=Heartbeat(lease, {0: 0.0}))
        grown = store.append("s", grown, an_order(2))
    assert next(lost, None) is None
    assert len(grown) == 4
    assert entries_as_text(SqlStore(address).load("s")) == entries_as_text(grown)


def test_a_conflict_after_a_broken_connection_is_a_conflict(address: str, query: Callable[[str], object]) -> None:
    ours, theirs = SqlStore(address), SqlStore(address)
    ours.on_outage = lambda text: None
    ledger = ours.append("s", None, an_opening())
    stale = theirs.load("s")
    query(DISCONNECT_ALL)
    SqlStore(address).append("s", stale, an_order(0))
    with pytest.raises(Conflict):
        ours.append("s", ledger, an_order(0))


def test_a_server_that_restarts_does_not_end_a_study(tmp_path: Path) -> None:
    """The running step continues, the loop waits, and heartbeats are written again afterwards."""
    server = Server.start()
    messages: list[str] = []
    steps: list[int] = []

    def train(config: Any) -> Iterator[float]:
        for step in range(1, 9):
            steps.append(step)
            if len(steps) == 5:
                server.stop()
                back.start()
            yield 1.0 / step

    back = threading.Timer(1.0, server.launch)
    try:
        study = Study.begin(
            {"x": {"float": [0, 1]}}, "40 epochs", store=server.new_database(), max_steps=8, policy="random_search"
        )
        study.store.on_outage = messages.append  # type: ignore[attr-defined]
        ending = study.run(LocalRunner(train, Checkpoints(tmp_path)))
        back.join()
        assert ending.reason == "budget"
        assert study.spent == len(steps) == 40
        disconnected, connected_again = messages
        assert " 60 s" in disconnected
        assert " 60 s" not in connected_again
        loaded = study.store.load(study.name)
        assert entries_as_text(loaded) == entries_as_text(study.ledger)
    finally:
        server.stop()


def test_an_address_that_never_worked_is_not_tried_again() -> None:
    store = SqlStore("postgresql://tester@127.0.0.1:1/nothing")
    store.on_outage = pytest.fail
    with pytest.raises(StoreError, match=r"127\.0\.0\.1:1/nothing"):
        store.studies()


def test_no_transaction_is_open_between_calls(address: str, query: Callable[[str], object]) -> None:
    store = SqlStore(address)
    ledger = store.append("s", None, an_opening())
    store.refresh("s", ledger)
    with store.lease("s") as lease:
        lease.beat(1, {})
    assert query("SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'") == [(0,)]


def test_a_changed_row_is_found_and_earlier_rows_are_copied(
    address: str, query: Callable[[str], object], tmp_path: Path
) -> None:
    ledger = SqlStore(address).append("s", None, *entries_of_all_kinds())
    query("UPDATE entries SET body = replace(body, '0.5', '0.4') WHERE seq = 5")
    with pytest.raises(DamagedStore, match=r"entry 5 .*entry 4") as caught:
        SqlStore(address).load("s")
    assert caught.value.last_good == 4
    done = repair(address, "s", f"sqlite:///{tmp_path}/new.db")
    assert (done.n_copied, done.n_dropped) == (5, len(ledger) - 5)
    assert done.reason.startswith("entry 5 ")
    assert entries_as_text(SqlStore(f"sqlite:///{tmp_path}/new.db").load("s")) == entries_as_text(ledger.fork(5))
    with pytest.raises(StoreError, match="holds a study 's' already"):
        repair(f"sqlite:///{tmp_path}/new.db", "s", address)
    target = new_database()
    assert repair(f"sqlite:///{tmp_path}/new.db", "s", target) == RepairResult(5, 0, "")
    assert entries_as_text(SqlStore(target).load("s")) == entries_as_text(ledger.fork(5))


@pytest.mark.parametrize("form", ["tester:p%40ss@", "?password=p%40ss"])
def test_the_printed_command_works(address: str, tmp_path: Path, form: str) -> None:
    """The password is neither shown nor replaced by stars: the command reads it from a variable."""
    (tmp_path / "job.py").write_text("def train(config):\n    return config['x']\n")
    secret = address + form if form.startswith("?") else address.replace("tester@", form)
    words = ["run", "job.py:train", "-p", "x={float=[0,1]}", "--budget", "3 epochs", "--store", secret]
    done = subprocess.run(
        [sys.executable, "-m", "shoestring", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "p%40ss" not in done.stdout + done.stderr
    assert "***" not in done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "SHOESTRING_STORE_PASSWORD" in line]
    assert "(put the password into SHOESTRING_STORE_PASSWORD)" in line
    command = shlex.split(line.partition("): ")[2].replace("'<a larger total>'", "'5 epochs'"))
    again = subprocess.run(
        [sys.executable, "-m", *command, "--json", "--quiet"],
        cwd=tmp_path,
        env={**os.environ, "SHOESTRING_STORE_PASSWORD": "p@ss"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert json.loads(again.stdout)["spent"] == 5
    words = ["report", "-o", "report.html", "--store", secret]
    subprocess.run([sys.executable, "-m", "shoestring", *words], cwd=tmp_path, timeout=120, check=True)
    assert "p%40ss" not in (tmp_path / "report.html").read_text()
