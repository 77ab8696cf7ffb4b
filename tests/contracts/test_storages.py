"""Every place for checkpoints keeps the same contract; those that need a package of their own are tested in tests/heavy/ray."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.archive import pack, remove_leftovers, temporary_folder, unpack
from shoestring.runners.checkpoints.checkpoint_store import Folder, name_place, open_storage
from shoestring.testing.checkpoint_stores import check_storage_contract, keep_file


def test_a_folder_keeps_the_contract(tmp_path: Path) -> None:
    check_storage_contract(lambda: Folder(tmp_path / "kept"), tmp_path / "copies")


def test_half_a_checkpoint_of_this_very_process_is_not_cleared_by_those_who_look(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.scratch(0, 1, "a1").write_text("being written")
    assert Folder(tmp_path).list() == {0: {}}
    folder.put(0, 1, "a1")
    assert folder.keep(0, 1, "a1").size_bytes == len("being written")


def test_an_archive_cannot_write_elsewhere(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
    archive.seek(0)
    with pytest.raises(tarfile.FilterError):
        unpack(archive, tmp_path / "inside" / "it")
    assert list(tmp_path.rglob("*outside*")) == []
    assert list((tmp_path / "inside").iterdir()) == []


def test_a_half_read_archive_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(bytes(100_000))
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(pack(tmp_path / "state")[:5000]), tmp_path / "copies" / "it")
    assert list((tmp_path / "copies").iterdir()) == []


def test_what_a_killed_process_left_is_told_from_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    class Owner:
        pass

    owner = Owner()
    ours, left = temporary_folder(owner), tmp_path / "shoestring-checkpoints-999999999-abc"
    left.mkdir()
    remove_leftovers()
    assert [path.name for path in tmp_path.iterdir()] == [ours.name]
    del owner
    assert list(tmp_path.iterdir()) == []


def test_places_are_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert name_place("kept") == {"checkpoints": str(tmp_path / "kept")}
    assert name_place(None) == {}
    storage = open_storage(tmp_path / "kept")
    assert keep_file(storage, 0, 1, "x").name == "step-000001"
    assert storage.locate(0, "step-000001") == tmp_path / "kept" / "trial-0000" / "step-000001"


@pytest.mark.parametrize("place", ["nonsense://x", "simplecache::s3://b/r", "http://host/runs", "dask://host/runs"])
def test_only_places_that_hold_files_are_used(place: str) -> None:
    """Looking at a study of somebody else's must not make fsspec do whatever its address says."""
    with pytest.raises(RunnerError, match="is of a kind that is not used here"):
        name_place(place)


def test_passwords_are_not_kept() -> None:
    with pytest.raises(RunnerError, match=r"sftp://me:…@host/runs, holds a password") as caught:
        name_place("sftp://me:secret@host/runs")
    assert "secret" not in str(caught.value)
    assert name_place("sftp://me@host/runs") == {"checkpoints": "sftp://me@host/runs"}
