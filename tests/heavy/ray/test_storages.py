"""Places for checkpoints that need a package: fsspec's own memory, and a server that speaks S3."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from ray_code import CONFIGS, Quick, loss_at

from shoestring import Space, Study, tune
from shoestring.core.ledger.entries import Lost
from shoestring.errors import RunnerError, StudyError
from shoestring.runners.checkpoints.remote_store import Remote
from shoestring.testing.checkpoint_stores import check_storage_contract, keep_file

SPACE = Space.listed(CONFIGS)


def test_memory_keeps_the_contract(tmp_path: Path) -> None:
    place = f"memory://{uuid.uuid4().hex}/runs"
    check_storage_contract(lambda: Remote(place), tmp_path)


def test_s3_keeps_the_contract(s3: str, tmp_path: Path) -> None:
    check_storage_contract(lambda: Remote(f"{s3}/contract"), tmp_path)


def test_an_archive_without_its_second_object_is_no_checkpoint(s3: str) -> None:
    storage = Remote(f"{s3}/half")
    kept = keep_file(storage, 0, 3, "whole")
    storage.scratch(0, 4).write_text("put and never kept")
    storage.put(0, 4)
    assert list(Remote(f"{s3}/half").list()[0]) == [3]
    again = Remote(f"{s3}/half")
    again.clear_attempts()
    again._system.invalidate_cache()
    found = sorted(path.rpartition("/")[2] for path in again._system.find(again._root))
    assert found == [f"{kept.name}.tar", f"{kept.name}.whole"]


def test_a_study_is_kept_in_s3_and_goes_on_from_there(s3: str, tmp_path: Path) -> None:
    """Nothing lies on this machine, and the model can be had again."""
    place, store = f"{s3}/studies", str(tmp_path / "s.db")
    # One trial alive: each is kept when another begins. Of several, the end saves as many as there is time for.
    how = {"max_steps": 6, "policy": "asha", "store": store, "seed": 1, "live": 1, "progress": False}
    tune(Quick, SPACE, "12 epochs", checkpoints=place, **how)
    study = tune(Quick, SPACE, "30 epochs", **how)  # the same place, without saying so
    assert study.spent == 30
    assert not any(isinstance(entry, Lost) for entry in study.ledger.entries()), (
        "all trials went on from their checkpoints"
    )
    best = Study.open(store=store).best
    assert best is not None
    assert best.checkpoint is None
    assert str(best.address).startswith(f"{place}/study/trial-")
    assert best.load(Quick).done == best.step
    assert best.value == loss_at(best.config, best.step)
    assert not list(tmp_path.glob("*checkpoints*"))
    with pytest.raises(StudyError, match="keeps its checkpoints at s3://bucket/studies, not at s3://bucket/other"):
        tune(Quick, SPACE, "40 epochs", checkpoints=f"{s3}/other", **how)


def test_a_checkpoint_that_is_gone_is_told(s3: str, tmp_path: Path) -> None:
    from shoestring.runners.checkpoints.checkpoints import Checkpoints

    kept = Checkpoints(f"{s3}/gone")
    kept.save(0, 1, lambda path: path.write_text("x"))
    Remote(f"{s3}/gone").delete(0, kept.name(0, 1))
    with pytest.raises(
        RunnerError, match="the checkpoint of step 1 of trial 0 is gone from s3://bucket/gone: start again"
    ):
        kept.path_to_thaw(0, 1)


def test_a_place_that_cannot_be_used_is_told_before_anything_is_bought(s3: str, tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="the place for checkpoints, s3://no-such-bucket/x/study, cannot be used"):
        tune(Quick, SPACE, "12 epochs", max_steps=6, checkpoints="s3://no-such-bucket/x", progress=False)
