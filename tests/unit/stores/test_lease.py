"""Leases: who runs a study, how the dead are recognised, and that a step they were at is charged exactly once."""

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
from shoestring.core.ledger.entries import Entry, Lost, Note
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import Damaged, Leased
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.local.local_runner import Local
from shoestring.stores import sqlite_file as files
from shoestring.stores import store as heartbeat
from shoestring.stores.lease import Process, find_uncharged
from shoestring.stores.sql import Sql
from shoestring.stores.store import HEARTBEAT_S, Heartbeat
from shoestring.study.study import Study
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text

ON_LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process start times are read from /proc")


@pytest.fixture
def store(tmp_path: Path) -> Sql:
    store = Sql(f"sqlite:///{tmp_path}/store.db")
    store.append("s", None, an_opening("1h"), an_order(0, until=4), an_order(1, until=4))
    return store


def another(store: Sql) -> Sql:
    return Sql(f"sqlite:///{store.path}")


def change_lease(store: Sql, **values: object) -> None:
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection, connection:
        for column, value in values.items():
            connection.execute(f"UPDATE leases SET {column} = ?", (value,))


def read_lease(store: Sql) -> Mapping[str, object]:
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection:
        connection.row_factory = sqlite3.Row
        return dict(connection.execute("SELECT * FROM leases").fetchone())


def crash(store: Sql, running_s: Mapping[int, float], *entries: Entry) -> None:
    """Take the lease, beat, append entries, and vanish without a word."""
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
def test_a_process_that_ended_is_dead_even_before_its_parent_looks() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        holder = Process.this()._replace(pid=child.pid, started=stat.rpartition(")")[2].split()[19])
        assert not holder.is_dead()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, but nobody has collected it
        assert holder.is_dead()
    assert holder.is_dead()


@ON_LINUX
def test_a_pid_used_again_is_another_process() -> None:
    assert Process.this()._replace(started="1").is_dead()


@pytest.mark.parametrize("elsewhere", [{"host": "another"}, {"machine": "another boot"}])
def test_of_other_machines_nothing_is_known(elsewhere: dict[str, str]) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    gone = Process.this()._replace(pid=child.pid)
    assert gone.is_dead()
    assert not gone._replace(**elsewhere).is_dead()  # type: ignore[arg-type]


# taking over ---------------------------------------------------------------------------------------------------------


def test_the_holder_is_named(store: Sql) -> None:
    with store.lease("s"):
        change_lease(store, host="tower", pid=4711, heard_at=time.time() - 30)
        with pytest.raises(
            Leased, match=r"the study 's' is being run by process 4711 on tower, last heard of 3\d s ago"
        ):
            another(store).lease("s")


@pytest.mark.parametrize("age_s", [61.0, -61.0])
def test_a_minute_of_silence_frees_the_study(store: Sql, age_s: float) -> None:
    first = store.lease("s")
    change_lease(store, host="tower", heard_at=time.time() - age_s)
    with another(store).lease("s"):
        taken = read_lease(store)
        first.beat(99, {0: 99.0})  # whoever was ousted has no say any more
        first.__exit__(None, None, None)
        assert read_lease(store) == taken


def test_a_heartbeat_keeps_the_lease(store: Sql) -> None:
    with store.lease("s") as lease:
        change_lease(store, host="tower", heard_at=0.0)
        lease.beat(3, {})
        with pytest.raises(Leased):
            another(store).lease("s")


HOLDER = """
import sys
from shoestring.stores.sql import Sql
store = Sql(sys.argv[1])
with store.lease("s") as lease:
    lease.beat(len(store.load("s")), {1: 7.5})
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_killed_holder_is_succeeded_at_once(store: Sql) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, f"sqlite:///{store.path}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(Leased, match=f"process {holder.pid} "):
            store.lease("s")
        holder.kill()
    with store.lease("s") as lease:
        assert 7.5 < lease.cut_off[1] <= 7.5 + HEARTBEAT_S, "as it said, and what it may have worked since"


def test_a_lock_does_not_stop_the_heart(store: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUSY_S", 0.05)
    impatient = another(store)
    with impatient.lease("s") as lease:
        assert store.path is not None
        with closing(sqlite3.connect(store.path)) as other:
            other.execute("BEGIN EXCLUSIVE")
            lease.beat(3, {0: 1.0})
        assert read_lease(store)["running"] == "{}"
        lease.beat(3, {0: 2.0})
        assert read_lease(store)["running"] == '{"0":2.0}'


def test_a_damaged_study_is_not_held(store: Sql) -> None:
    crash(store, {0: 1.0})
    assert store.path is not None
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DELETE FROM entries WHERE seq = 1")
    with pytest.raises(Damaged):
        another(store).lease("s")
    assert read_lease(store)["holder"] == ""


def test_a_heartbeat_that_cannot_be_read_is_no_obstacle(store: Sql) -> None:
    for text in ("", "[]", '{"x":1}', '{"0":null}'):
        crash(store, {0: 1.0})
        change_lease(store, running=text)
        with another(store).lease("s") as lease:
            assert dict(lease.cut_off) == {}


# what is charged -----------------------------------------------------------------------------------------------------


def test_a_clean_stop_hands_on_what_was_under_way(store: Sql) -> None:
    with store.lease("s") as lease:
        lease.beat(3, {0: 2.5, 1: 0.0})
    with another(store).lease("s") as lease:
        assert dict(lease.cut_off) == {0: 2.5}


@pytest.mark.parametrize(
    ("entries", "due"),
    [
        ([], {0: 3.0, 1: 4.0}),
        ([a_step(0, 1)], {1: 4.0}),
        ([Lost(trial=0, held=0, seconds=2.0)], {1: 4.0}),
        ([Note(topic="released", facts={"order": 1})], {0: 3.0}),
        ([Note(topic="enqueue", facts={"config": {"lr": 0.5, "kind": "naïve"}})], {0: 3.0, 1: 4.0}),
        ([an_order(2)], {0: 3.0, 1: 4.0}),
        ([a_step(0, 1), Lost(trial=1, held=0, seconds=3.0)], {}),
    ],
)
def test_what_a_later_entry_speaks_of_is_paid_for(store: Sql, entries: list[Entry], due: dict[int, float]) -> None:
    """One second more than was said: it crashed long ago, and may have worked on for one heartbeat."""
    crash(store, {0: 2.0, 1: 3.0}, *entries)
    with another(store).lease("s") as lease:
        assert dict(lease.cut_off) == due


def test_an_order_that_is_not_open_is_not_charged() -> None:
    ledger = Ledger([an_opening(), an_order(0, until=1), a_step(0, 1)])
    assert find_uncharged(ledger, 3, {0: 1.0, 7: 1.0}) == {}


@pytest.mark.parametrize(("ago_s", "extra_s"), [(0.25, 0.25), (0.75, 0.75), (30.0, HEARTBEAT_S), (-30.0, HEARTBEAT_S)])
def test_a_crash_is_charged_for_what_was_not_heard(store: Sql, ago_s: float, extra_s: float) -> None:
    crash(store, {0: 2.0, 1: 0.0})
    change_lease(store, host=Process.this().host, started="1", heard_at=time.time() - ago_s)  # certainly dead
    with another(store).lease("s") as lease:
        assert lease.cut_off[0] == pytest.approx(2.0 + extra_s, abs=0.2)
        assert lease.cut_off[0] <= 2.0 + HEARTBEAT_S
        assert lease.cut_off[1] == pytest.approx(extra_s, abs=0.2), "a step that had just begun"


def test_seconds_of_a_dear_worker_stay_seconds_and_keep_their_price(store: Sql) -> None:
    """However often they are handed on. The heartbeat that was not heard costs as much."""
    crash(store, {0: PricedSeconds(2.0, 2.5), 1: 3.0})
    for _ in range(2):
        with another(store).lease("s") as lease:
            assert dict(lease.cut_off) == {0: 3.0, 1: 4.0}
            assert {number: price_of(seconds) for number, seconds in lease.cut_off.items()} == {0: 2.5, 1: 1.0}


def test_nothing_is_added_twice(store: Sql) -> None:
    """Those who took over and ended before the charge was stored: by a crash, or in peace."""
    crash(store, {0: 2.0})
    for _ in range(3):
        lease = another(store).lease("s")
        assert dict(lease.cut_off) == {0: 3.0}
        lease.beat(3, {})  # its own word must not hide what is due
        change_lease(store, heard_at=0.0)
    with another(store).lease("s") as lease:
        assert dict(lease.cut_off) == {0: 3.0}
    with another(store).lease("s") as lease:
        assert dict(lease.cut_off) == {0: 3.0}


def test_an_append_says_what_is_under_way_in_one_commit(store: Sql) -> None:
    ledger = store.load("s")
    assert ledger is not None
    commits: list[object] = []
    with store.lease("s") as lease:
        event.listen(store.database._engine, "commit", commits.append)
        store.append("s", ledger, an_order(2), beat=Heartbeat(lease, {0: 4.0, 2: 0.0}))
        assert len(commits) == 1
        row = read_lease(store)
        assert (row["entries"], row["running"]) == (4, '{"0":4.0,"2":0.0}')


def test_nothing_is_appended_under_a_lease_that_is_gone(store: Sql) -> None:
    ledger = store.load("s")
    assert ledger is not None
    lease = store.lease("s")
    change_lease(store, holder="somebody else")
    with pytest.raises(Leased, match="taken over by another process"):
        store.append("s", ledger, an_order(2), beat=Heartbeat(lease, {}))
    assert lease.lost
    assert entries_as_text(another(store).load("s")) == entries_as_text(ledger)


@examples(5, thorough=15)
@given(lives=st.lists(st.sets(st.sampled_from(["beat before", "charge", "step", "beat after"])), max_size=3))
def test_a_lost_step_is_charged_once(lives: list[set[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    """One holder crashes at a step; others take over and crash in turn, wherever in their work.

    Two seconds were heard of the first step; each crash adds the heartbeat that it may have worked on for.
    """
    address = f"sqlite:///{tmp_path_factory.mktemp('lives')}/store.db"
    store = Sql(address)
    ledger: Ledger | None = store.append("s", None, an_opening("1h"), an_order(0, until=4))
    crash(store, {0: 2.0})
    for life in [*lives, {"charge"}]:
        successor = Sql(address)
        lease = successor.lease("s")
        ledger = successor.load("s")
        assert ledger is not None
        if "beat before" in life:
            lease.beat(len(ledger), {})
        if "charge" in life:  # as the loop does, before it buys anything
            charges = [Lost(trial=n, held=ledger.trials[n].held, seconds=s) for n, s in lease.cut_off.items()]
            ledger = successor.append("s", ledger, *charges, beat=Heartbeat(lease, {0: 0.0}))
            if "step" in life:
                step = a_step(0, ledger.trials[0].held + 1)
                ledger = successor.append("s", ledger, step, beat=Heartbeat(lease, {0: 0.0}))
            if "beat after" in life:
                lease.beat(len(ledger), {0: 0.0})
        change_lease(successor, heard_at=0.0)
        successor.close()
    assert ledger is not None
    charged = sum("charge" in life for life in lives)  # each of them began the next step, and crashed at it
    assert ledger.books.by_kind["lost"] == 2.0 + HEARTBEAT_S + charged * HEARTBEAT_S
    store.close()


# the loop ------------------------------------------------------------------------------------------------------------


def test_of_quick_entries_one_in_a_tenth_of_a_second_waits_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    now, beats = [100.0], []
    monkeypatch.setattr("shoestring.stores.store.time.monotonic", lambda: now[0])
    heart = heartbeat.Heart(lambda: beats.append(now[0]))
    try:
        assert heart.wait_for_disk()
        now[0] += 0.05
        assert not heart.wait_for_disk()
        for _ in range(500):
            if beats:
                break
            time.sleep(0.01)
        assert beats, "what did not wait is taken to the disk by a beat"
        now[0] += 0.06
        assert heart.wait_for_disk()
    finally:
        heart.stop()


def test_every_append_of_a_run_says_what_is_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The start of each step is known to the store at the moment at which the step begins."""
    monkeypatch.setattr(heartbeat, "_TO_DISK_S", 60.0)  # no beat of the heart's own comes between
    store = Sql(f"sqlite:///{tmp_path}/run.db")
    study = Study.begin({"x": {"float": [0, 1]}}, "1h", store=store, max_steps=3, policy="random_search", seed=1)
    seen: list[tuple[str, dict[str, float]]] = []

    def train(config: object) -> Iterator[float]:
        for _ in range(3):
            time.sleep(0.1)
            yield 1.0

    def look(ledger: Ledger, entry: Entry | None) -> None:
        row = read_lease(store)
        if entry is not None and row["entries"] == len(ledger):  # else two entries were stored together
            seen.append((entry.kind, json.loads(str(row["running"]))))

    study.run(
        Local(train, Checkpoints(tmp_path / "checkpoints")), should_stop=lambda: len(study.ledger) > 12, observe=look
    )
    orders = [running for kind, running in seen if kind == "order"]
    assert orders[:3] == [{"0": 0.0}, {"1": 0.0}, {"2": 0.0}]
    between = [running for kind, running in seen if kind == "receipt" and running]
    assert between, "a step follows in the same order"
    assert all(0 <= seconds < 0.1 for running in between for seconds in running.values()), "what is paid is not due"


def test_a_study_taken_up_says_so_before_its_first_step(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/run.db"
    study = Study.begin({"x": {"float": [0, 1]}}, "1h", store=address, max_steps=3, policy="random_search", seed=1)
    study.run(Local(forever, Checkpoints(tmp_path / "c")), should_stop=lambda: len(study.ledger) == 3)
    store = Sql(address)
    change_lease(store, running="{}")
    again = Study.open(store=address)
    seen: list[object] = []

    def look_first(config: object) -> Iterator[float]:
        seen.append(read_lease(store)["running"])
        yield from forever(config)

    again.run(Local(look_first, Checkpoints(tmp_path / "c")), should_stop=lambda: bool(seen))
    assert list(json.loads(str(seen[0]))) == ["0"]


def forever(config: object) -> Iterator[float]:
    while True:
        yield 1.0
