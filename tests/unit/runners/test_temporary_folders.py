"""Temporary folders are deleted with their owner; those of killed processes by others, and no other ones."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shoestring.runners.checkpoints import temporary_folders
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder, remove_leftover_folders

MODULE = "from shoestring.runners.checkpoints import temporary_folders as t\n"
OWNER = f"{MODULE}class Owner: pass\nowner = Owner()\nprint(t.get_temporary_folder(owner).name, flush=True)\ninput()"
NEW_PROCESS_NUMBERS = ["unshare", "--pid", "--fork", "--mount-proc"]  # as in a container


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@contextmanager
def owning_process(*prefix: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Start a process that has a temporary folder; yield it and the name of the folder."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([*prefix, sys.executable, "-c", OWNER], **pipes) as process:  # type: ignore[call-overload]
        yield process, process.stdout.readline().strip()
        process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_deleted_with_its_owner(tmp_path: Path) -> None:
    class Owner:
        pass

    owner = Owner()
    folder = get_temporary_folder(owner)
    assert get_temporary_folder(owner) == folder
    remove_leftover_folders()
    assert names(tmp_path) == [folder.name]
    del owner
    assert names(tmp_path) == []


def test_the_folder_of_a_killed_process_is_deleted_and_not_before(tmp_path: Path) -> None:
    with owning_process() as (process, folder):
        remove_leftover_folders()
        assert names(tmp_path) == [folder]
        process.kill()
        process.wait()
        assert names(tmp_path) == [folder]
        remove_leftover_folders()
        assert names(tmp_path) == []


@pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run([*NEW_PROCESS_NUMBERS, "true"], capture_output=True, check=False).returncode != 0,
    reason="no process numbers of its own can be made here",
)
def test_a_container_does_not_delete_the_folders_of_another_one(tmp_path: Path) -> None:
    clean = [sys.executable, "-c", f"{MODULE}t.remove_leftover_folders()"]
    with owning_process() as (_, mine), owning_process(*NEW_PROCESS_NUMBERS) as (_, other):
        subprocess.run([*NEW_PROCESS_NUMBERS, *clean], check=True, timeout=60)
        subprocess.run(clean, check=True, timeout=60)
        assert names(tmp_path) == sorted([mine, other])


@pytest.mark.parametrize("content", [None, "", "another boot"])
def test_a_folder_of_which_nothing_is_known_is_left_alone(content: str | None, tmp_path: Path) -> None:
    """It is of another release or of another machine, or is being made now."""
    folder = tmp_path / "shoestring-checkpoints-999999999-abc"
    folder.mkdir()
    if content is not None:
        (folder / ".in-use").write_text(content)
    remove_leftover_folders()
    assert names(tmp_path) == [folder.name]


def test_without_locks_nothing_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(temporary_folders, "fcntl", None)
    with owning_process() as (process, folder):
        process.kill()
        process.wait()
        remove_leftover_folders()
        assert names(tmp_path) == [folder]
