"""The contract of a checkpoint store, as a check that its author can run.

The author of a store calls `check_checkpoint_store_contract(make, folder)` in a test. Each call of `make` returns a new object
for the same place, as if on another machine. The place is empty at first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from shoestring.runners.checkpoints.checkpoint_store import CheckpointStore, StoredCheckpoint
from shoestring.runners.checkpoints.digest import compute_digest

MakeCheckpointStore = Callable[[], CheckpointStore]


def check_checkpoint_store_contract(make: MakeCheckpointStore, folder: Path) -> None:
    """Check the whole contract of checkpoint stores.

    Parameters
    ----------
    make : callable
        Returns a new object for the same place at each call; the place is empty at first.
    folder : Path
        An empty folder for copies.

    Raises
    ------
    AssertionError
        If the store breaks the contract.
    """
    check_reading_elsewhere(make, folder)
    check_attempts_are_separate(make, folder)
    check_bytes_transfer(make, folder)
    check_markers(make)
    check_moving_aside(make)
    check_moving_and_deleting(make)


def check_reading_elsewhere(make: MakeCheckpointStore, folder: Path) -> None:
    """A checkpoint (a file or a folder) is listed with its size from its commit until it is deleted."""
    worker, driver = make(), make()
    driver.check_writable()
    assert names(driver.list()) == {}
    write_file(worker, 0, 1, "a" * 1000)
    assert names(make().list()) == {}, "it was not committed yet"
    first = driver.commit(0, 1)
    second = keep_folder(driver, 0, 12)
    other = keep_file(driver, 3, 7, "c")
    listed = make().list()
    assert names(listed) == {0: {1: first.name, 12: second.name}, 3: {7: other.name}}
    assert 1000 <= listed[0][1].size_bytes == first.size_bytes
    assert worker.get(0, first.name, folder / "1").read_text() == "a" * 1000
    there = pickle.loads(pickle.dumps(make())).get(0, second.name, folder / "2")
    assert {file.name: file.read_text() for file in there.iterdir()} == {"weights": "w", "optimizer": "o"}
    assert driver.has(0, first.name)
    driver.delete(0, first.name)
    driver.delete(0, first.name)  # again, after a crash
    assert names(make().list())[0] == {12: second.name}
    assert _is_missing(lambda: worker.get(0, first.name, folder / "3").read_text())
    worker.scratch(5, 1)
    assert _is_missing(lambda: worker.put(5, 1)), "nothing was written"
    driver.delete(0, second.name)
    driver.delete(3, other.name)


def check_attempts_are_separate(make: MakeCheckpointStore, folder: Path) -> None:
    """Files that a worker writes after the driver stopped waiting for it are not read, and are deleted at the next start."""
    abandoned, worker, driver = make(), make(), make()
    partial = abandoned.scratch(1, 4, "a1")
    partial.write_text("from an abandoned worker")
    committed = keep_file(driver, 1, 4, "good", by=worker, attempt="b2")
    abandoned.put(1, 4, "a1")
    assert worker.get(1, committed.name, folder / "4").read_text() == "good"
    assert names(make().list())[1] == {4: committed.name}
    again = make()
    again.delete_uncommitted()
    assert names(again.list())[1] == {4: committed.name}
    assert worker.get(1, committed.name, folder / "5").read_text() == "good"
    better = keep_file(driver, 1, 4, "trained again", by=worker, attempt="c3")
    assert worker.get(1, better.name, folder / "6").read_text() == "trained again"
    driver.delete(1, better.name)
    if better.name != committed.name:
        driver.delete(1, committed.name)
    assert names(make().list()) == {}


def check_bytes_transfer(make: MakeCheckpointStore, folder: Path) -> None:
    """A worker that cannot reach the store sends and receives checkpoints as bytes."""
    from shoestring.runners.checkpoints.checkpoint_store import BytesTransfer

    worker, driver = BytesTransfer(folder / "worker"), make()
    path = worker.scratch(2, 3, "d4")
    path.mkdir()
    (path / "weights").write_text("w")
    put = worker.put(2, 3, "d4")
    committed = driver.commit(2, 3, "d4", put.archive)
    assert (make().get(2, committed.name, folder / "7") / "weights").read_text() == "w"
    there = worker.get(2, committed.name, folder / "8", driver.pack(2, committed.name))
    assert (there / "weights").read_text() == "w"
    assert compute_digest(there) == put.digest
    assert [path.name for path in (folder / "worker").rglob("*.partial")] == []
    driver.delete(2, committed.name)


def check_markers(make: MakeCheckpointStore) -> None:
    """All machines that reach the store see a marker until it is removed."""
    driver = make()
    driver.add_marker("m1")
    assert make().has_marker("m1")
    assert not make().has_marker("m2")
    driver.remove_marker("m1")
    assert not make().has_marker("m1")


def check_moving_aside(make: MakeCheckpointStore) -> None:
    """Checkpoints of another study can be moved aside, also a second time, and are then not listed."""
    driver = make()
    keep_file(driver, 0, 1, "another study's")
    driver.move_aside()
    assert names(make().list()) == {}
    keep_file(driver, 0, 1, "and another's")
    driver.move_aside()
    assert names(make().list()) == {}


def check_moving_and_deleting(make: MakeCheckpointStore) -> None:
    """Everything in a store can be moved to another address, and deleted."""
    clearings: list[Callable[[CheckpointStore], None]] = [
        lambda store: store.move(f"{store.where}-moved"),
        lambda store: store.delete_all(),
    ]
    for clear in clearings:
        keep_file(make(), 0, 1, "weights")
        files, size_bytes = make().measure()
        assert files >= 1
        assert size_bytes >= len("weights")
        clear(make())
        assert names(make().list()) == {}
        assert make().measure() == (0, 0)


def write_file(store: CheckpointStore, trial: int, step: int, text: str, attempt: str = "") -> None:
    store.scratch(trial, step, attempt).write_text(text)
    assert store.put(trial, step, attempt).archive is None


def keep_file(
    driver: CheckpointStore, trial: int, step: int, text: str, *, by: CheckpointStore | None = None, attempt: str = ""
) -> StoredCheckpoint:
    write_file(by or driver, trial, step, text, attempt)
    return driver.commit(trial, step, attempt)


def keep_folder(driver: CheckpointStore, trial: int, step: int) -> StoredCheckpoint:
    path = driver.scratch(trial, step)
    path.mkdir()
    (path / "weights").write_text("w")
    (path / "optimizer").write_text("o")
    digest = driver.put(trial, step).digest
    stored = driver.commit(trial, step)
    with TemporaryDirectory() as copy:
        assert compute_digest(driver.get(trial, stored.name, Path(copy) / "digest")) == digest
    return stored


def names(listed: dict[int, dict[int, StoredCheckpoint]]) -> dict[int, dict[int, str]]:
    """Return {trial: {step: name}} of all checkpoints, without trials that have none."""
    return {trial: {step: stored.name for step, stored in steps.items()} for trial, steps in listed.items() if steps}


def _is_missing(read: Callable[[], object]) -> bool:
    try:
        read()
    except FileNotFoundError:
        return True
    return False
