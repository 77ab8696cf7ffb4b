"""Leases: who runs a study, how dead holders are recognised, and that their running steps are charged exactly once."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event
from thoroughness import examples

from shoestring.core.ledger.budget import PricedSeconds, price_of
from shoestring.core.ledger.entries import Entry, Note, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import DamagedStore, StudyInUse
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.stores import ledger_store as heartbeat
from shoestring.stores import sqlite_file as files
from shoestring.stores.lease import Process, find_uncharged
from shoestring.stores.ledger_store import HEARTBEAT_S, Heartbeat
from shoestring.stores.sql import SqlStore
from shoestring.study.run_study import RunOptions, run_study
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text

ON_LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process start times are read from /proc")


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    store.append("s", None, an_opening("1h"), an_order(0, until=4), an_order(1, until=4))
    return store


def open_again(store: SqlStore) -> SqlStore:
    return SqlStore(f"sqlite:///{store.path}")


def change_lease(store: SqlStore, **values: object) -> None:
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection, connection:
        for column, value in values.items():
            connection.execute(f"UPDATE leases SET {column} = ?", (value,))


def read_lease(store: SqlStore) -> Mapping[str, object]:
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        return dict(connection.execute("SELECT * FROM leases").fetchone())


def crash(store: SqlStore, running_s: Mapping[int, float], *entries: Entry) -> None:
    """Take the lease, write a heartbeat, append entries, and end without closing the lease."""
    ledger = store.load("s")
    assert ledger is not None
    store.lease("s").beat(len(ledger), running_s)
    if entries:
        store.append("s", ledger, *entries)
    change_lease(store, heard_at=0.0)  # long ago


# processes -----------------------------------------------------------------------------------------------------------


def test_this_process_is_alive() -> None:
    here = Process.this()
    assert here.pid == os.getpid()
    assert not here.is_dead()


@ON_LINUX
def test_a_process_that_ended_is_dead_before_its_parent_waits_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        holder = Process.this()._replace(pid=child.pid, started=stat.rpartition(")")[2].split()[19])
        assert not holder.is_dead()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but its parent has not collected it
        assert holder.is_dead()
    assert holder.is_dead()


@ON_LINUX
def test_a_later_process_with_the_same_pid_is_another_process() -> None:
    assert Process.this()._replace(started="1").is_dead()


@pytest.mark.parametrize("differences", [{"host": "another"}, {"machine": "another boot"}])
def test_processes_of_other_machines_are_not_known_to_be_dead(differences: dict[str, str]) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    child_process = Process.this()._replace(pid=child.pid)
    assert child_process.is_dead()
    assert not child_process._replace(**differences).is_dead()  # type: ignore[arg-type]


# taking over ---------------------------------------------------------------------------------------------------------


def test_the_message_names_the_holder(store: SqlStore) -> None:
    with store.lease("s"):
        change_lease(store, host="tower", pid=4711, heard_at=time.time() - 30)
        with pytest.raises(
            StudyInUse,
            match=r"the study 's' is being run by process 4711 on tower, last heartbeat 3\d s ago: wait for its end or stop it; "
            "after 60 s of silence the study is free again",
        ):
            open_again(store).lease("s")


@pytest.mark.parametrize("age_s", [61.0, -61.0])
def test_a_minute_of_silence_frees_the_study(store: SqlStore, age_s: float) -> None:
    first = store.lease("s")
    change_lease(store, host="tower", heard_at=time.time() - age_s)
    with open_again(store).lease("s"):
        row = read_lease(store)
        first.beat(99, {0: 99.0})  # the old holder can no longer write
        first.__exit__(None, None, None)
        assert read_lease(store) == row


def test_a_heartbeat_keeps_the_lease(store: SqlStore) -> None:
    with store.lease("s") as lease:
        change_lease(store, host="tower", heard_at=0.0)
        lease.beat(3, {})
        with pytest.raises(StudyInUse):
            open_again(store).lease("s")


HOLDER = """
import sys
from shoestring.stores.sql import SqlStore
store = SqlStore(sys.argv[1])
with store.lease("s") as lease:
    lease.beat(len(store.load("s")), {1: 7.5})
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_the_lease_of_a_killed_holder_is_taken_over_at_once(store: SqlStore) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"sqlite:///{store.path}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StudyInUse, match=f"process {holder.pid} "):
            store.lease("s")
        holder.kill()
    with store.lease("s") as lease:
        assert 7.5 < lease.uncharged_s[1] <= 7.5 + HEARTBEAT_S, (
            "the stored seconds, and the time it may have lived since"
        )


def test_a_locked_database_does_not_stop_heartbeats(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUSY_S", 0.05)
    second = open_again(store)
    with second.lease("s") as lease:
        assert store.path is not None
        with closing(sqlite3.connect(store.path)) as other:
            other.execute("BEGIN EXCLUSIVE")
            lease.beat(3, {0: 1.0})
        assert read_lease(store)["running"] == "{}"
        lease.beat(3, {0: 2.0})
        assert read_lease(store)["running"] == '{"0":2.0}'


def test_the_lease_of_a_damaged_study_is_released(store: SqlStore) -> None:
    crash(store, {0: 1.0})
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE seq = 1")
    with pytest.raises(DamagedStore):
        open_again(store).lease("s")
    assert read_lease(store)["holder"] == ""


def test_a_heartbeat_that_cannot_be_read_is_ignored(store: SqlStore) -> None:
    for text in ("", "[]", '{"x":1}', '{"0":null}'):
        crash(store, {0: 1.0})
        change_lease(store, running=text)
        with open_again(store).lease("s") as lease:
            assert dict(lease.uncharged_s) == {}


# what is charged -----------------------------------------------------------------------------------------------------


def test_a_regular_stop_passes_on_the_running_steps(store: SqlStore) -> None:
    with store.lease("s") as lease:
        lease.beat(3, {0: 2.5, 1: 0.0})
    with open_again(store).lease("s") as lease:
        assert dict(lease.uncharged_s) == {0: 2.5}


@pytest.mark.parametrize(
    ("entries", "due"),
    [
        ([], {0: 3.0, 1: 4.0}),
        ([a_step(0, 1)], {1: 4.0}),
        ([StateLoss(trial=0, resumable_step=0, seconds=2.0)], {1: 4.0}),
        ([Note(topic="released", facts={"order": 1})], {0: 3.0}),
        ([Note(topic="enqueue", facts={"config": {"lr": 0.5, "kind": "naïve"}})], {0: 3.0, 1: 4.0}),
        ([an_order(2)], {0: 3.0, 1: 4.0}),
        ([a_step(0, 1), StateLoss(trial=1, resumable_step=0, seconds=3.0)], {}),
    ],
)
def test_a_step_with_a_later_entry_is_not_charged_again(
    store: SqlStore, entries: list[Entry], due: dict[int, float]
) -> None:
    """One second is added: the holder crashed long ago, and may have lived for one more heartbeat."""
    crash(store, {0: 2.0, 1: 3.0}, *entries)
    with open_again(store).lease("s") as lease:
        assert dict(lease.uncharged_s) == due


def test_an_order_that_is_not_open_is_not_charged() -> None:
    ledger = Ledger([an_opening(), an_order(0, until=1), a_step(0, 1)])
    assert find_uncharged(ledger, 3, {0: 1.0, 7: 1.0}) == {}


def test_no_time_after_the_cutoff_is_charged(store: SqlStore) -> None:
    """Three workers at the end of their budget: their steps end then, although the driver was killed before."""
    ledger = store.load("s")
    assert ledger is not None
    store.lease("s").beat(len(ledger), {0: 2.0, 1: 3.0}, 0.25)
    change_lease(store, host=Process.this().host, started="1", heard_at=time.time() - 30.0)
    with open_again(store).lease("s") as lease:
        assert dict(lease.uncharged_s) == {0: 2.25, 1: 3.25}


@pytest.mark.parametrize(("ago_s", "extra_s"), [(0.25, 0.25), (0.75, 0.75), (30.0, HEARTBEAT_S), (-30.0, HEARTBEAT_S)])
def test_the_time_since_the_last_heartbeat_is_charged(store: SqlStore, ago_s: float, extra_s: float) -> None:
    crash(store, {0: 2.0, 1: 0.0})
    change_lease(store, host=Process.this().host, started="1", heard_at=time.time() - ago_s)  # dead
    with open_again(store).lease("s") as lease:
        assert lease.uncharged_s[0] == pytest.approx(2.0 + extra_s, abs=0.2)
        assert lease.uncharged_s[0] <= 2.0 + HEARTBEAT_S
        assert lease.uncharged_s[1] == pytest.approx(extra_s, abs=0.2), "a step that had just begun"


def test_seconds_of_an_expensive_worker_have_their_price_factor(store: SqlStore) -> None:
    """This also holds after several take-overs, and for the heartbeat interval that is added."""
    crash(store, {0: PricedSeconds(2.0, 2.5), 1: 3.0})
    for _ in range(2):
        with open_again(store).lease("s") as lease:
            assert dict(lease.uncharged_s) == {0: 3.0, 1: 4.0}
            assert {number: price_of(seconds) for number, seconds in lease.uncharged_s.items()} == {0: 2.5, 1: 1.0}


def test_no_time_is_added_twice(store: SqlStore) -> None:
    """Holders take over and end, by a crash or regularly, before the charge is stored."""
    crash(store, {0: 2.0})
    for _ in range(3):
        lease = open_again(store).lease("s")
        assert dict(lease.uncharged_s) == {0: 3.0}
        lease.beat(3, {})  # its own heartbeat must not hide what is due
        change_lease(store, heard_at=0.0)
    with open_again(store).lease("s") as lease:
        assert dict(lease.uncharged_s) == {0: 3.0}
    with open_again(store).lease("s") as lease:
        assert dict(lease.uncharged_s) == {0: 3.0}


def test_an_append_stores_the_heartbeat_in_the_same_transaction(store: SqlStore) -> None:
    ledger = store.load("s")
    assert ledger is not None
    commits: list[object] = []
    with store.lease("s") as lease:
        event.listen(store.database._engine, "commit", commits.append)
        store.append("s", ledger, an_order(2), heartbeat=Heartbeat(lease, {0: 4.0, 2: 0.0}))
        assert len(commits) == 1
        row = read_lease(store)
        assert (row["entries"], row["running"]) == (4, '{"0":4.0,"2":0.0}')


def test_nothing_is_appended_after_the_lease_was_taken_over(store: SqlStore) -> None:
    ledger = store.load("s")
    assert ledger is not None
    lease = store.lease("s")
    change_lease(store, holder="somebody else")
    with pytest.raises(StudyInUse, match="the study 's' was taken over by another process: this one stops"):
        store.append("s", ledger, an_order(2), heartbeat=Heartbeat(lease, {}))
    assert lease.lost
    assert entries_as_text(open_again(store).load("s")) == entries_as_text(ledger)


@examples(5, thorough=15)
@given(crashes=st.lists(st.sets(st.sampled_from(["beat before", "charge", "step", "beat after"])), max_size=3))
def test_a_lost_step_is_charged_once(crashes: list[set[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """One holder crashes at a step; others take over and crash in turn, at any point of their work.

    Heartbeats reported two seconds of the first step. Each crash adds one heartbeat interval, because the holder may have
    worked for so long after its last heartbeat.
    """
    address = f"sqlite:///{tmp_path_factory.mktemp('lives')}/store.db"
    store = SqlStore(address)
    ledger: Ledger | None = store.append("s", None, an_opening("1h"), an_order(0, until=4))
    crash(store, {0: 2.0})
    for events in [*crashes, {"charge"}]:
        successor = SqlStore(address)
        lease = successor.lease("s")
        ledger = successor.load("s")
        assert ledger is not None
        if "beat before" in events:
            lease.beat(len(ledger), {})
        if "charge" in events:  # as the loop does, before it orders anything
            charges = [
                StateLoss(trial=n, resumable_step=ledger.trials[n].resumable_step, seconds=s)
                for n, s in lease.uncharged_s.items()
            ]
            ledger = successor.append("s", ledger, *charges, heartbeat=Heartbeat(lease, {0: 0.0}))
            if "step" in events:
                step = a_step(0, ledger.trials[0].resumable_step + 1)
                ledger = successor.append("s", ledger, step, heartbeat=Heartbeat(lease, {0: 0.0}))
            if "beat after" in events:
                lease.beat(len(ledger), {0: 0.0})
        change_lease(successor, heard_at=0.0)
        successor.close()
    assert ledger is not None
    charged = sum("charge" in events for events in crashes)  # each of them began the next step, and crashed at it
    assert ledger.state.by_kind["lost"] == 2.0 + HEARTBEAT_S + charged * HEARTBEAT_S
    store.close()


# the loop ------------------------------------------------------------------------------------------------------------


def test_quick_entries_wait_for_the_disk_ten_times_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now, beats = [100.0], []
    monkeypatch.setattr("shoestring.stores.ledger_store.time.monotonic", lambda: now[0])
    heart = heartbeat.HeartbeatThread(lambda: beats.append(now[0]))
    try:
        assert heart.should_wait_for_disk()
        now[0] += 0.05
        assert not heart.should_wait_for_disk()
        for _ in range(500):
            if beats:
                break
            time.sleep(0.01)
        assert beats, "a heartbeat takes the others to the disk"
        now[0] += 0.06
        assert heart.should_wait_for_disk()
    finally:
        heart.stop()


def test_every_append_of_a_run_stores_the_running_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store knows the start of each step when the step begins."""
    monkeypatch.setattr(heartbeat, "_DISK_INTERVAL_S", 60.0)  # no heartbeat of the thread comes between
    store = SqlStore(f"sqlite:///{tmp_path}/run.db")
    study = Study.begin({"x": {"float": [0, 1]}}, "1h", store=store, max_steps=3, policy="random_search", seed=1)
    recorded: list[tuple[str, dict[str, float]]] = []

    def train(config: object) -> Iterator[float]:
        for _ in range(3):
            time.sleep(0.1)
            yield 1.0

    def look(ledger: Ledger, entry: Entry | None) -> None:
        row = read_lease(store)
        if entry is not None and row["entries"] == len(ledger):  # else two entries were stored together
            recorded.append((entry.kind, json.loads(str(row["running"]))))

    options = RunOptions(should_stop=lambda: len(study.ledger) > 12, observe=look)
    run_study(study, LocalRunner(train, Checkpoints(tmp_path / "checkpoints")), options)
    orders = [running for kind, running in recorded if kind == "order"]
    assert orders[:3] == [{"0": 0.0}, {"1": 0.0}, {"2": 0.0}]
    between = [running for kind, running in recorded if kind == "receipt" and running]
    assert between, "the order has another step"
    assert all(0 <= seconds < 0.1 for running in between for seconds in running.values()), "paid seconds are not due"


def test_a_resumed_study_writes_a_heartbeat_before_its_first_step(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/run.db"
    study = Study.begin({"x": {"float": [0, 1]}}, "1h", store=address, max_steps=3, policy="random_search", seed=1)
    study.run(LocalRunner(train_forever, Checkpoints(tmp_path / "c")), should_stop=lambda: len(study.ledger) == 3)
    store = SqlStore(address)
    change_lease(store, running="{}")
    again = Study.open(store=address)
    recorded: list[object] = []

    def look_first(config: object) -> Iterator[float]:
        recorded.append(read_lease(store)["running"])
        yield from train_forever(config)

    again.run(LocalRunner(look_first, Checkpoints(tmp_path / "c")), should_stop=lambda: bool(recorded))
    assert list(json.loads(str(recorded[0]))) == ["0"]


def train_forever(config: object) -> Iterator[float]:
    while True:
        yield 1.0
