"""Every checkpoint store keeps the same contract; those that need a package of their own are tested in tests/heavy/ray."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from shoestring.errors import RunnerError
from shoestring.runners.checkpoints.archive import pack, unpack
from shoestring.runners.checkpoints.checkpoint_store import FolderStore, make_location_entry, open_checkpoint_store
from shoestring.testing.checkpoint_stores import check_checkpoint_store_contract, keep_file


def test_a_folder_keeps_the_contract(tmp_path: Path) -> None:
    check_checkpoint_store_contract(lambda: FolderStore(tmp_path / "kept"), tmp_path / "copies")


def test_listing_does_not_delete_a_checkpoint_that_is_being_written(tmp_path: Path) -> None:
    folder = FolderStore(tmp_path)
    folder.scratch(0, 1, "a1").write_text("being written")
    assert FolderStore(tmp_path).list() == {0: {}}
    folder.put(0, 1, "a1")
    assert folder.commit(0, 1, "a1").size_bytes == len("being written")


def test_an_archive_cannot_write_elsewhere(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(tarfile.TarInfo("../outside"), io.BytesIO(b""))
    archive.seek(0)
    with pytest.raises(tarfile.FilterError):
        unpack(archive, tmp_path / "inside" / "it")
    assert list(tmp_path.rglob("*outside*")) == []
    assert list((tmp_path / "inside").iterdir()) == []


def test_an_incomplete_archive_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(bytes(100_000))
    with pytest.raises(tarfile.TarError):
        unpack(io.BytesIO(pack(tmp_path / "state")[:5000]), tmp_path / "copies" / "it")
    assert list((tmp_path / "copies").iterdir()) == []


def test_a_location_is_stored_as_a_full_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert make_location_entry("kept") == {"checkpoints": str(tmp_path / "kept")}
    assert make_location_entry(None) == {}
    store = open_checkpoint_store(tmp_path / "kept")
    assert keep_file(store, 0, 1, "x").name == "step-000001"
    assert store.locate(0, "step-000001") == tmp_path / "kept" / "trial-0000" / "step-000001"


@pytest.mark.parametrize("location", ["nonsense://x", "simplecache::s3://b/r", "http://host/runs", "dask://host/runs"])
def test_only_locations_of_files_are_used(location: str) -> None:
    """Opening another person's study must not make fsspec access an arbitrary address."""
    with pytest.raises(RunnerError, match="is of a kind that is not supported"):
        make_location_entry(location)


def test_passwords_are_not_stored() -> None:
    with pytest.raises(RunnerError, match=r"sftp://me:\*\*\*@host/runs, holds a password") as caught:
        make_location_entry("sftp://me:secret@host/runs")
    assert "secret" not in str(caught.value)
    assert make_location_entry("sftp://me@host/runs") == {"checkpoints": "sftp://me@host/runs"}
