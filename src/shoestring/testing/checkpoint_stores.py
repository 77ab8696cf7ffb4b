"""What every place for checkpoints must do alike. An author calls `check_storage_contract(make)`, where each call of `make`
gives another object for the same place, as several machines have them; the place is empty at first.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

from shoestring.runners.checkpoints.checkpoint_store import Storage, Stored

MakeStorage = Callable[[], Storage]


def check_storage_contract(make: MakeStorage, folder: Path) -> None:
    """All of the contract; `folder` is for copies."""
    check_what_was_kept_is_read_elsewhere(make, folder)
    check_attempts_do_not_meet(make, folder)
    check_parcels(make, folder)
    check_marks(make)
    check_putting_aside(make)


def check_what_was_kept_is_read_elsewhere(make: MakeStorage, folder: Path) -> None:
    """A file or a folder; listed with its size once it is kept, and not before; gone when it is deleted."""
    seat, driver = make(), make()
    driver.try_out()
    assert names(driver.list()) == {}
    write_file(seat, 0, 1, "a" * 1000)
    assert names(make().list()) == {}, "nobody has kept it yet"
    first = driver.keep(0, 1)
    second = keep_folder(driver, 0, 12)
    other = keep_file(driver, 3, 7, "c")
    listed = make().list()
    assert names(listed) == {0: {1: first.name, 12: second.name}, 3: {7: other.name}}
    assert 1000 <= listed[0][1].size_bytes == first.size_bytes
    assert seat.get(0, first.name, folder / "1").read_text() == "a" * 1000
    there = pickle.loads(pickle.dumps(make())).get(0, second.name, folder / "2")
    assert {file.name: file.read_text() for file in there.iterdir()} == {"weights": "w", "optimizer": "o"}
    assert driver.has(0, first.name)
    driver.delete(0, first.name)
    driver.delete(0, first.name)  # again, after a crash
    assert names(make().list())[0] == {12: second.name}
    assert _is_missing(lambda: seat.get(0, first.name, folder / "3").read_text())
    seat.scratch(5, 1)
    assert _is_missing(lambda: seat.put(5, 1)), "nothing was written"
    driver.delete(0, second.name)
    driver.delete(3, other.name)


def check_attempts_do_not_meet(make: MakeStorage, folder: Path) -> None:
    """A worker that was given up may write when another one has: nobody reads that, and the next start clears it away."""
    given_up, seat, driver = make(), make(), make()
    half = given_up.scratch(1, 4, "a1")
    half.write_text("from a zombie")
    kept = keep_file(driver, 1, 4, "good", by=seat, attempt="b2")
    given_up.put(1, 4, "a1")
    assert seat.get(1, kept.name, folder / "4").read_text() == "good"
    assert names(make().list())[1] == {4: kept.name}
    again = make()
    again.clear_attempts()
    assert names(again.list())[1] == {4: kept.name}
    assert seat.get(1, kept.name, folder / "5").read_text() == "good"
    better = keep_file(driver, 1, 4, "trained again", by=seat, attempt="c3")
    assert seat.get(1, better.name, folder / "6").read_text() == "trained again"
    driver.delete(1, better.name)
    if better.name != kept.name:
        driver.delete(1, kept.name)
    assert names(make().list()) == {}


def check_parcels(make: MakeStorage, folder: Path) -> None:
    """A worker that reaches nothing sends bytes and gets bytes."""
    from shoestring.runners.checkpoints.checkpoint_store import Parcels

    seat, driver = Parcels(folder / "seat"), make()
    path = seat.scratch(2, 3, "d4")
    path.mkdir()
    (path / "weights").write_text("w")
    kept = driver.keep(2, 3, "d4", seat.put(2, 3, "d4"))
    assert (make().get(2, kept.name, folder / "7") / "weights").read_text() == "w"
    there = seat.get(2, kept.name, folder / "8", driver.pack(2, kept.name))
    assert (there / "weights").read_text() == "w"
    assert [path.name for path in (folder / "seat").rglob("*.partial")] == []
    driver.delete(2, kept.name)


def check_marks(make: MakeStorage) -> None:
    driver = make()
    driver.mark("m1")
    assert make().sees("m1")
    assert not make().sees("m2")
    driver.unmark("m1")
    assert not make().sees("m1")


def check_putting_aside(make: MakeStorage) -> None:
    driver = make()
    keep_file(driver, 0, 1, "another study's")
    driver.put_aside()
    assert names(make().list()) == {}
    keep_file(driver, 0, 1, "and another's")
    driver.put_aside()
    assert names(make().list()) == {}


def write_file(storage: Storage, trial: int, step: int, text: str, attempt: str = "") -> None:
    storage.scratch(trial, step, attempt).write_text(text)
    assert storage.put(trial, step, attempt) is None


def keep_file(
    driver: Storage, trial: int, step: int, text: str, *, by: Storage | None = None, attempt: str = ""
) -> Stored:
    write_file(by or driver, trial, step, text, attempt)
    return driver.keep(trial, step, attempt)


def keep_folder(driver: Storage, trial: int, step: int) -> Stored:
    path = driver.scratch(trial, step)
    path.mkdir()
    (path / "weights").write_text("w")
    (path / "optimizer").write_text("o")
    driver.put(trial, step)
    return driver.keep(trial, step)


def names(listed: dict[int, dict[int, Stored]]) -> dict[int, dict[int, str]]:
    """Of all that is kept; a trial of which nothing is may be listed or not."""
    return {trial: {step: stored.name for step, stored in steps.items()} for trial, steps in listed.items() if steps}


def _is_missing(read: Callable[[], object]) -> bool:
    try:
        read()
    except FileNotFoundError:
        return True
    return False
