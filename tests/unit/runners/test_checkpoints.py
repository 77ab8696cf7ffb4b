"""Checkpoints: complete or ignored, the newest and the best kept, the limit respected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Order, Receipt, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.runners.checkpoints.checkpoint_store import FolderStore, StoredCheckpoint
from shoestring.runners.checkpoints.checkpoints import Checkpoints


def ledger_of(*curves: list[float], direction: str = "min") -> Ledger:
    """Return a study with one trial for each curve."""
    definition = StudyDefinition(
        space=Space({"x": Float(0, 1)}),
        budget=Budget("99 epochs"),
        policy="p",
        settings={},
        seed=0,
        max_steps=9,
        direction=direction,  # type: ignore[arg-type]
    )
    ledger = Ledger([definition])
    for trial, curve in enumerate(curves):
        ledger = ledger.append(Order(number=trial, trial=trial, config={"x": trial / 9}, until=len(curve)))
        for step, value in enumerate(curve, 1):
            ledger = ledger.append(Receipt(order=trial, trial=trial, step=step, value=value, saved_step=step))
    return ledger


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def steps(checkpoints: Checkpoints, trial: int) -> list[str]:
    folder = checkpoints.folder(trial)
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def train(checkpoints: Checkpoints, trial: int, curve: list[float], first: int = 1, size: int = 1) -> None:
    for step, value in enumerate(curve, first):
        if checkpoints.decide_save(trial, step, value, last=True, unsaved_s=0.0):
            checkpoints.save(trial, step, text("x" * size))
            checkpoints.take_notes()  # the loop records them


def test_newest_previous_and_best_checkpoint_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    train(checkpoints, 0, [5.0, 1.0, 4.0, 3.0, 2.0])
    assert steps(checkpoints, 0) == ["step-000002", "step-000004", "step-000005"]
    assert checkpoints.newest_step(0) == 5
    assert checkpoints.newest_step(0, up_to=4) == 4
    train(checkpoints, 1, [0.5])  # another trial is better: the former best and its predecessor are deleted
    assert steps(checkpoints, 0) == ["step-000005"]
    assert steps(checkpoints, 1) == ["step-000001"]


def test_a_crash_between_checkpoint_and_receipt_costs_one_step_not_the_trial(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    train(checkpoints, 0, [3.0, 2.0, 1.0])
    ledger = ledger_of([3.0, 2.0])  # the third receipt was never stored
    assert Checkpoints(tmp_path / "c").start(ledger) == {0: 2}
    assert steps(checkpoints, 0) == ["step-000002"]  # checkpoints of steps that are not in the ledger are deleted


def test_the_former_best_is_deleted_only_when_the_better_one_is_saved(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    train(checkpoints, 0, [1.0, 2.0, 3.0, 4.0])
    assert checkpoints.decide_save(1, 1, 0.5, last=False, unsaved_s=0.0)
    assert checkpoints.path(0, 1).exists()
    with pytest.raises(OSError, match="disk full"):
        checkpoints.save(1, 1, lambda path: (_ for _ in ()).throw(OSError("disk full")))
    assert checkpoints.path(0, 1).exists()
    checkpoints.save(1, 1, text("better"))
    assert not checkpoints.path(0, 1).exists()


def test_the_largest_value_is_the_best_when_maximising(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.start(ledger_of([0.1], direction="max"))
    checkpoints.save(0, 1, text("x"))
    train(checkpoints, 0, [0.9, 0.5, 0.4, 0.3], first=2)
    assert "step-000002" in steps(checkpoints, 0)


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), float("inf")])
def test_a_diverged_step_is_never_the_best(tmp_path: Path, value: float) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    train(checkpoints, 0, [1.0, value, 3.0, 4.0, 5.0])
    assert "step-000001" in steps(checkpoints, 0)


def test_a_step_is_saved_at_the_end_at_a_new_best_or_when_saving_is_cheap(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.decide_save(0, 1, 1.0, last=False, unsaved_s=0.0)  # the first value is the best
    checkpoints._save_s[0] = 2.0
    assert not checkpoints.decide_save(0, 2, 2.0, last=False, unsaved_s=99.0)
    assert not checkpoints.decide_save(0, 2, None, last=False, unsaved_s=99.0)
    assert checkpoints.decide_save(0, 2, 2.0, last=True, unsaved_s=99.0)
    assert checkpoints.decide_save(0, 3, 0.5, last=False, unsaved_s=99.0)
    assert checkpoints.decide_save(0, 4, 2.0, last=False, unsaved_s=101.0), "50 times what saving takes"


def test_a_trial_that_was_never_saved_is_expected_to_take_as_long_as_the_newest_save(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.decide_save(0, 1, None, last=False, unsaved_s=1e-9), (
        "no time is known yet, so the first save measures it"
    )
    checkpoints.best_loss = -1.0
    save_s = checkpoints.save(0, 1, text("x"))
    assert checkpoints.expected_save_s(1) == save_s
    assert not checkpoints.decide_save(1, 1, 0.0, last=False, unsaved_s=49 * save_s)
    assert checkpoints.decide_save(1, 1, 0.0, last=False, unsaved_s=51 * save_s)


def test_a_folder_is_a_checkpoint_too(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")

    def write(path: Path) -> None:
        path.mkdir()
        (path / "weights").write_text("w")
        (path / "optimizer").write_text("oo")

    checkpoints.save(0, 1, write)
    checkpoints.save(0, 1, write)  # again, over the existing checkpoint
    assert (checkpoints.path(0, 1) / "optimizer").read_text() == "oo"
    assert steps(checkpoints, 0) == ["step-000001"]


def test_save_must_write_to_the_path_it_is_given(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    with pytest.raises(FileNotFoundError, match=r"returned without writing step-000001\.partial: write to the path"):
        checkpoints.save(0, 1, lambda path: path.with_suffix(".npy").write_text("numpy adds a suffix"))
    assert checkpoints.newest_step(0) == 0


def test_an_uncommitted_checkpoint_is_ignored(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.folder(0).mkdir(parents=True)
    (checkpoints.folder(0) / "step-000003.partial").write_text("cut off")
    (checkpoints.folder(0) / "notes.txt").write_text("the user's")
    assert checkpoints.newest_step(0) == 0
    assert checkpoints.start(ledger_of([1.0, 2.0, 3.0])) == {}


def test_checkpoints_of_another_study_of_the_same_name_are_moved_aside(tmp_path: Path) -> None:
    train(Checkpoints(tmp_path / "c"), 0, [1.0])
    checkpoints = Checkpoints(tmp_path / "c")
    assert checkpoints.start(ledger_of()) == {}
    assert checkpoints.newest_step(0) == 0
    assert (tmp_path / "c.old-1" / "trial-0000" / "step-000001").exists()


def test_over_the_limit_the_oldest_are_evicted_but_never_the_best_or_live_trials(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", at_most_bytes=250)
    for trial, value in enumerate([4.0, 1.0, 3.0, 2.0]):
        train(checkpoints, trial, [value], size=100)
        os.utime(checkpoints.path(trial, 1), (trial, trial))
    assert [lost.trial for lost in checkpoints.evict_over_limit(keep={2})] == [0, 3]
    assert [checkpoints.newest_step(trial) for trial in range(4)] == [0, 1, 1, 0]
    assert checkpoints.evict_over_limit(keep={2}) == []
    assert Checkpoints(tmp_path / "c").evict_over_limit(keep=set()) == []  # no limit


def test_the_best_checkpoint_stays_even_if_it_exceeds_the_limit(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c", at_most_bytes=1)
    train(checkpoints, 0, [1.0], size=100)
    assert checkpoints.evict_over_limit(keep=set()) == []
    assert checkpoints.newest_step(0) == 1


def test_the_index_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []
    real = FolderStore.list

    def count(self: FolderStore) -> dict[int, dict[int, StoredCheckpoint]]:
        listed.append(self.root)
        return real(self)

    monkeypatch.setattr(FolderStore, "list", count)
    checkpoints = Checkpoints(tmp_path / "c", at_most_bytes=250)
    checkpoints.start(ledger_of())
    for trial in range(4):
        train(checkpoints, trial, [4.0 - trial], size=100)
        checkpoints.evict_over_limit(keep=set())
    assert [checkpoints.newest_step(trial) for trial in range(4)] == [0, 0, 1, 1]
    assert len(listed) == 1


def test_a_checkpoint_deleted_by_another_program_is_not_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "c")
    train(checkpoints, 0, [3.0, 2.0])
    checkpoints.path(0, 2).unlink()
    assert checkpoints.newest_step(0) == 1


def test_a_checkpoint_put_by_a_worker_can_be_committed(tmp_path: Path) -> None:
    checkpoints, worker = Checkpoints(tmp_path / "c"), FolderStore(tmp_path / "c")
    for attempt, text_of_it in (("a1", "first"), ("b2", "again")):
        worker.scratch(0, 1, attempt).write_text(text_of_it)
        put = worker.put(0, 1, attempt)
        assert checkpoints.commit_uploaded(0, 1, 0.5, put, attempt) >= 0.5
    assert checkpoints.path(0, 1).read_text() == "again"
    assert steps(checkpoints, 0) == ["step-000001"]


def test_uncommitted_attempts_are_deleted_at_the_start(tmp_path: Path) -> None:
    FolderStore(tmp_path / "c").scratch(0, 3, "a1").write_text("cut off")
    checkpoints = Checkpoints(tmp_path / "c")
    checkpoints.start(ledger_of([1.0, 2.0, 3.0]))
    assert steps(checkpoints, 0) == []


def test_closing_an_unstarted_study_reads_nothing(tmp_path: Path) -> None:
    """The error of a store that cannot be used must not be hidden by another error when the runner is closed."""
    checkpoints = Checkpoints(tmp_path / "study", at_most_bytes=1.0)
    checkpoints.store.list = lambda: pytest.fail("it was listed")  # type: ignore[method-assign]
    assert checkpoints.evict_over_limit(set()) == []
