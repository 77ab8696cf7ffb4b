"""Checkpoint stores that need a package: fsspec's own memory, and a server that speaks S3."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from ray_code import CONFIGS, Quick, loss_at

from shoestring import Space, Study, tune
from shoestring.core.ledger.entries import StateLoss
from shoestring.errors import RunnerError, StudyError
from shoestring.runners.checkpoints.remote_store import RemoteStore
from shoestring.testing.checkpoint_stores import check_checkpoint_store_contract, keep_file

SPACE = Space.from_configs(CONFIGS)


def test_memory_keeps_the_contract(tmp_path: Path) -> None:
    place = f"memory://{uuid.uuid4().hex}/runs"
    check_checkpoint_store_contract(lambda: RemoteStore(place), tmp_path)


def test_s3_keeps_the_contract(s3: str, tmp_path: Path) -> None:
    check_checkpoint_store_contract(lambda: RemoteStore(f"{s3}/contract"), tmp_path)


def test_an_archive_without_its_second_object_is_no_checkpoint(s3: str) -> None:
    checkpoints = RemoteStore(f"{s3}/incomplete")
    stored = keep_file(checkpoints, 0, 3, "whole")
    checkpoints.scratch(0, 4).write_text("put and never committed")
    checkpoints.put(0, 4)
    assert list(RemoteStore(f"{s3}/incomplete").list()[0]) == [3]
    again = RemoteStore(f"{s3}/incomplete")
    again.delete_uncommitted()
    again._system.invalidate_cache()
    found = sorted(path.rpartition("/")[2] for path in again._system.find(again._root))
    assert found == [f"{stored.name}.tar", f"{stored.name}.whole"]


def test_a_study_continues_from_checkpoints_in_s3(s3: str, tmp_path: Path) -> None:
    """Nothing is stored on this machine, and the best model can be loaded again."""
    place, store = f"{s3}/studies", str(tmp_path / "s.db")
    # With one live trial, each is saved when another begins. Of several, as many are saved at the end as there is time for.
    how = {"max_steps": 6, "policy": "asha", "store": store, "seed": 1, "live": 1, "progress": False}
    tune(Quick, SPACE, "12 epochs", checkpoints=place, **how)
    study = tune(Quick, SPACE, "30 epochs", **how)  # the same place, though it is not named again
    assert study.spent == 30
    assert not any(isinstance(entry, StateLoss) for entry in study.ledger.entries()), (
        "all trials continued from their checkpoints"
    )
    best = Study.open(store=store).best
    assert best is not None
    assert best.checkpoint is None
    assert str(best.address).startswith(f"{place}/study/trial-")
    assert best.load(Quick).done == best.step
    assert best.value == loss_at(best.config, best.step)
    assert not list(tmp_path.glob("*checkpoints*"))
    with pytest.raises(StudyError, match=r"s3://bucket/studies,.* s3://bucket/other"):
        tune(Quick, SPACE, "40 epochs", checkpoints=f"{s3}/other", **how)


def test_a_missing_checkpoint_is_an_error(s3: str, tmp_path: Path) -> None:
    from shoestring.runners.checkpoints.checkpoints import Checkpoints

    checkpoints = Checkpoints(f"{s3}/gone")
    checkpoints.save(0, 1, lambda path: path.write_text("x"))
    RemoteStore(f"{s3}/gone").delete(0, checkpoints.name(0, 1))
    with pytest.raises(
        RunnerError, match="the checkpoint of step 1 of trial 0 is gone from s3://bucket/gone, or was changed: start"
    ):
        checkpoints.path_to_load(0, 1)


@pytest.mark.parametrize("damage", ["a bit", "the archive"])
def test_a_changed_archive_is_not_used(damage: str, tmp_path: Path) -> None:
    place, store = f"memory://{uuid.uuid4().hex}", str(tmp_path / "s.db")
    how = {"max_steps": 6, "policy": "asha", "store": store, "seed": 1, "live": 1, "progress": False}
    study = tune(Quick, SPACE, "12 epochs", checkpoints=place, **how)
    remote = RemoteStore(str(study.checkpoints))
    archives = [path for path in remote._system.find(remote._root) if path.endswith(".tar")]
    for path in archives:
        content = remote._system.cat_file(path)
        step = str(int(path.rpartition("step-")[2][:6])).encode()
        place_of_digit = content.rindex(step)  # only zeros follow it
        flipped = content[:place_of_digit] + b"9" + content[place_of_digit + 1 :]
        changed = flipped if damage == "a bit" else content[:100]
        assert changed != content
        remote._system.pipe_file(path, changed)
    with pytest.warns(UserWarning, match="is not the one that was saved"):
        study = tune(Quick, SPACE, "30 epochs", **how)
    for trial in study.trials:
        assert trial.values == [loss_at(trial.config, step) for step in range(1, trial.steps + 1)]


def test_a_location_that_cannot_be_used_is_an_error_before_any_training(s3: str, tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="the place for checkpoints, s3://no-such-bucket/x/study, cannot be used"):
        tune(Quick, SPACE, "12 epochs", max_steps=6, checkpoints="s3://no-such-bucket/x", progress=False)
