"""Studies in memory leave no files, and have their checkpoints as long as they exist."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from training_code import Counter

from shoestring import tune
from shoestring.runners.checkpoints.temporary_folders import get_temporary_folder


@pytest.fixture(autouse=True)
def _in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(train: Any, **more: Any) -> Any:
    return tune(train, {"x": {"float": [0.0, 1.0]}}, "6 epochs", max_steps=3, seed=1, **more)


def test_a_study_in_memory_has_its_best_checkpoint_as_long_as_it_exists() -> None:
    study = run(Counter, store=":memory:")
    checkpoint = study.best.checkpoint
    assert checkpoint.read_text() == "1"
    assert list(Path.cwd().iterdir()) == []
    del study
    gc.collect()
    assert not checkpoint.exists()
    assert not checkpoint.parents[2].exists()


def test_a_study_in_a_file_leaves_no_empty_folders() -> None:
    def no_saving(config: Any) -> Any:
        yield 1.0
        yield 2.0
        yield 3.0

    run(no_saving, store="study.db")
    assert [path.name for path in Path.cwd().iterdir() if path.is_dir()] == []
    run(Counter, store="study.db", name="other")
    assert [path.name for path in Path.cwd().iterdir() if path.is_dir()] == ["study.db.checkpoints"]


def test_a_forked_child_does_not_delete_the_folder_of_its_parent() -> None:
    class Owner:
        pass

    owner = Owner()
    folder = get_temporary_folder(owner)
    assert get_temporary_folder(owner) == folder
    child = os.fork()
    if child == 0:
        try:
            del owner
            gc.collect()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert folder.is_dir()
    del owner
    gc.collect()
    assert not folder.exists()
