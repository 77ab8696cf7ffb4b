"""Files of studies without a store: who can read them, and which of them are deleted."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoestring import Float, Space, Study
from shoestring.errors import StoreError
from shoestring.stores import unnamed
from shoestring.stores.sql import SqlStore
from shoestring.stores.unnamed import delete_unnamed, is_unnamed, make_unnamed_file

SPACE = Space({"x": Float(0.0, 1.0)})
DAY_S = 86_400.0


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOESTRING_STUDIES", str(tmp_path))
    return tmp_path


def make_study(days: float) -> Path:
    """Make the file of a study that no process uses, last written so many days ago."""
    file = make_unnamed_file("mine")
    program = (
        "import sys; from shoestring import Study; "
        "Study.begin({'x': {'float': [0.0, 1.0]}}, '9 epochs', store=sys.argv[1]).run(lambda c: c['x'], deadline=0)"
    )
    subprocess.run([sys.executable, "-c", program, str(file)], check=True, capture_output=True)
    make_old(file, days)
    return file


def make_old(file: Path, days: float) -> None:
    then = file.stat().st_mtime - days * DAY_S
    for path in (file.parent, *file.parent.iterdir()):
        os.utime(path, (then, then))


def test_a_file_is_new_and_has_the_name_of_its_study(folder: Path) -> None:
    first, second = make_unnamed_file("a/b \x1b"), make_unnamed_file("a/b \x1b")
    assert first != second
    assert first.parent.parent == folder
    assert first.parent.name.startswith("a_b__-")
    assert first.read_bytes() == b""
    assert is_unnamed(first)
    assert not is_unnamed(folder / "study.db")
    assert not is_unnamed(None)
    delete_unnamed(first)
    assert list(folder.iterdir()) == [second.parent]


def test_files_that_were_not_used_for_two_weeks_are_deleted() -> None:
    old, young = make_study(days=15), make_study(days=13)
    make_unnamed_file("new")
    assert (old.exists(), old.parent.exists(), young.exists()) == (False, False, True)


def test_beyond_fifty_files_those_of_the_last_day_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unnamed, "_MAX_FOLDERS", 2)
    files = {days: make_study(days) for days in (3, 0.5, 2, 0)}
    make_unnamed_file("new")
    assert [days for days, file in files.items() if file.exists()] == [0.5, 0]


def test_what_others_keep_in_the_folder_stays(folder: Path) -> None:
    (folder / "notes").mkdir()
    make_old(make_study(days=0).rename(folder / "notes" / "study.db"), days=99)
    linked = make_study(days=0)
    (folder / "mine-20200101-000000-abcdefgh").symlink_to(linked.parent)
    os.utime(folder / "mine-20200101-000000-abcdefgh", (0, 0), follow_symlinks=False)
    make_unnamed_file("new")
    assert (folder / "notes" / "study.db").exists()
    assert linked.exists()


@pytest.fixture
def other_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that executes each line of its input and answers."""
    program = "import sys\nfor line in sys.stdin:\n    exec(line)\n    print('done', flush=True)"
    with subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, text=True) as process:
        yield process
        process.kill()


def execute(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_a_file_that_another_process_has_open_stays(other_process: subprocess.Popen[str]) -> None:
    file = make_study(days=0)
    execute(other_process, f"from shoestring import Study; study = Study.open(store={str(file)!r})")
    make_old(file, days=15)
    make_unnamed_file("new")
    assert file.exists()
    execute(other_process, "study.store.close()")
    make_old(file, days=15)
    make_unnamed_file("new")
    assert not file.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="whether a process exists is not known there")
def test_a_file_stays_until_the_process_that_ran_its_study_has_ended(other_process: subprocess.Popen[str]) -> None:
    file = make_unnamed_file("mine")
    begin = f"Study.begin({{'x': {{'float': [0.0, 1.0]}}}}, '9 epochs', store={str(file)!r})"
    execute(other_process, f"from shoestring import Study; study = {begin}")
    execute(other_process, "study.run(lambda config: config['x'], deadline=0); study.store.close()")
    make_old(file, days=15)
    make_unnamed_file("new")
    assert file.exists()
    other_process.kill()
    other_process.wait()
    make_unnamed_file("new")
    assert not file.exists()


def test_a_file_that_holds_no_study_is_deleted() -> None:
    empty, damaged = make_unnamed_file("empty"), make_study(days=0)
    damaged.write_bytes(b"not a database" * 100)
    for file in (empty, damaged):
        make_old(file, days=15)
    make_unnamed_file("new")
    assert not empty.exists()
    assert not damaged.exists()


def test_an_error_names_the_variable(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "file").write_text("")
    monkeypatch.setenv("SHOESTRING_STUDIES", str(folder / "file"))
    with pytest.raises(StoreError, match=r"no temporary file can be made .* another folder in SHOESTRING_STUDIES"):
        make_unnamed_file("mine")


@pytest.mark.skipif(sys.platform == "win32", reason="each user has a temporary folder there")
def test_the_folder_of_another_user_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOESTRING_STUDIES")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    ours = make_unnamed_file("mine").parent.parent
    assert ours == folder / f"shoestring-studies-{os.getuid()}"
    assert make_unnamed_file("mine").parent.parent == ours
    ours.chmod(0o777)  # as another user might have made it
    assert make_unnamed_file("mine").parent.parent not in (ours, folder)


def test_opening_a_study_without_a_store_changes_nothing() -> None:
    study = Study.begin(SPACE, "9 epochs", store=str(make_unnamed_file("mine")))
    assert isinstance(study.store, SqlStore)
    assert len(study.ledger) == 1
