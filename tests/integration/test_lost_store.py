"""The file of a store that disappears during a run: the run stops, and what was stored is beside its place."""

from __future__ import annotations

import errno
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shoestring.core.ledger.entries import Note
from shoestring.errors import StoreError
from shoestring.stores import sqlite_file
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import a_step, an_opening, an_order, entries_as_text

TRAINING = """
import time

def train(config):
    while True:
        time.sleep(0.05)
        yield config["x"]

def long(config):
    time.sleep(0.3)
    yield config["x"]
    time.sleep(60)
    yield config["x"]
"""
RUN = ["run", "-p", "x={float=[0,1]}", "--budget", "200s", "--max-steps", "1000", "--store", "store.db", "--quiet"]


def begin(folder: Path, *words: str) -> subprocess.Popen[str]:
    (folder / "job.py").write_text(TRAINING)
    run = [sys.executable, "-m", "shoestring", *RUN, *words]
    process = subprocess.Popen(run, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while count_receipts(folder / "store.db") == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process


def count_receipts(file: Path) -> int:
    store = SqlStore(f"sqlite:///{file}")
    try:
        ledger = store.load("job")
        return 0 if ledger is None else ledger.state.receipts
    finally:
        store.close()


@pytest.mark.parametrize("code", ["job.py:train", "job.py:long"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_run_stops_when_its_store_is_deleted(tmp_path: Path, code: str, is_replaced: bool) -> None:
    process = begin(tmp_path, code, "--runner", "process")
    before = count_receipts(tmp_path / "store.db")
    (tmp_path / "store.db").unlink()
    if is_replaced:
        (tmp_path / "store.db").touch()
    try:
        _, messages = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 1, messages
    assert messages.count("\n") == 1
    assert "was deleted or replaced by another program" in messages
    assert count_receipts(tmp_path / "store.db.rescued") >= before
    command = shlex.split(messages.split("`")[1])
    assert command == ["mv", str(tmp_path / "store.db.rescued"), str(tmp_path / "store.db")]
    subprocess.run(command, check=True)
    run = [sys.executable, "-m", "shoestring", *RUN, code, "--runner", "process", "--deadline", "0s"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, timeout=60)


def test_all_studies_are_rescued_and_nothing_is_written_afterwards(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    ledger = store.append("s", None, an_opening(), an_order(0))
    store.append("other", None, an_opening())
    (tmp_path / "store.db").unlink()
    for _ in range(2):
        with pytest.raises(
            StoreError, match=r"was deleted or replaced .* all that it held is in .*store\.db\.rescued; to go on"
        ):
            store.append("s", ledger, a_step(0, 1))
    assert [file.name for file in tmp_path.iterdir()] == ["store.db.rescued"]
    rescued = SqlStore(f"sqlite:///{tmp_path}/store.db.rescued")
    assert rescued.studies() == ["s", "other"]
    assert entries_as_text(rescued.load("s")) == entries_as_text(ledger)


def test_a_lost_folder_is_rescued_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    store = SqlStore("sqlite:///runs/store.db")
    ledger = store.append("s", None, an_opening())
    for file in (tmp_path / "runs").iterdir():
        file.unlink()
    (tmp_path / "runs").rmdir()
    with pytest.raises(StoreError, match="was deleted"):
        store.append("s", ledger, Note(topic="n"))
    assert entries_as_text(SqlStore("sqlite:///store.db.rescued").load("s")) == entries_as_text(ledger)


def test_a_disk_that_does_not_answer_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    ledger = store.append("s", None, an_opening())

    def fail(path: Path) -> None:
        raise OSError(errno.ESTALE, "stale file handle")

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_file, "identify", fail)
        ledger = store.append("s", ledger, an_order(0))
    assert len(store.append("s", ledger, a_step(0, 1))) == 3


def test_a_closed_store_may_be_replaced(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/store.db")
    store.append("s", None, an_opening())
    store.close()
    other = SqlStore(f"sqlite:///{tmp_path}/other.db")
    ledger = other.append("s", None, an_opening(), an_order(0))
    other.close()
    (tmp_path / "other.db").rename(tmp_path / "store.db")
    assert entries_as_text(SqlStore(f"sqlite:///{tmp_path}/store.db").load("s")) == entries_as_text(ledger)
    assert len(store.load("s") or ()) == 2
