"""Checkpoints: whole or not there, the newest and the best kept, the limit respected."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Space
from shoestring.runners.checkpoints.checkpoint_store import Folder, Stored
from shoestring.runners.checkpoints.checkpoints import Checkpoints


def ledger_of(*curves: list[float], direction: str = "min") -> Ledger:
    """A study with one trial a curve."""
    opened = Opened(
        space=Space({"x": Float(0, 1)}),
        budget=Budget("99 epochs"),
        policy="p",
        settings={},
        seed=0,
        max_steps=9,
        direction=direction,  # type: ignore[arg-type]
    )
    ledger = Ledger([opened])
    for trial, curve in enumerate(curves):
        ledger = ledger.append(Order(number=trial, trial=trial, config={"x": trial / 9}, until=len(curve)))
        for step, value in enumerate(curve, 1):
            ledger = ledger.append(Receipt(order=trial, trial=trial, step=step, value=value, saved=step))
    return ledger


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def steps(kept: Checkpoints, trial: int) -> list[str]:
    folder = kept.folder(trial)
    return sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []


def train(kept: Checkpoints, trial: int, curve: list[float], first: int = 1, size: int = 1) -> None:
    for step, value in enumerate(curve, first):
        if kept.is_due(trial, step, value, last=True, unsaved_s=0.0):
            kept.save(trial, step, text("x" * size))


def test_the_newest_its_predecessor_and_the_best_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    train(kept, 0, [5.0, 1.0, 4.0, 3.0, 2.0])
    assert steps(kept, 0) == ["step-000002", "step-000004", "step-000005"]
    assert kept.newest(0) == 5
    assert kept.newest(0, up_to=4) == 4
    train(kept, 1, [0.5])  # a better one, elsewhere: the former best has served, and so has the predecessor
    assert steps(kept, 0) == ["step-000005"]
    assert steps(kept, 1) == ["step-000001"]


def test_a_crash_between_checkpoint_and_receipt_costs_one_step_not_the_trial(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    train(kept, 0, [3.0, 2.0, 1.0])
    ledger = ledger_of([3.0, 2.0])  # the third receipt was never stored
    assert Checkpoints(tmp_path / "c").start(ledger) == {0: 2}
    assert steps(kept, 0) == ["step-000002"]  # what is beyond the ledger is not trusted


def test_the_former_best_goes_only_when_its_better_is_on_disk(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    train(kept, 0, [1.0, 2.0, 3.0, 4.0])
    assert kept.is_due(1, 1, 0.5, last=False, unsaved_s=0.0)
    assert kept.path(0, 1).exists()
    with pytest.raises(OSError, match="disk full"):
        kept.save(1, 1, lambda path: (_ for _ in ()).throw(OSError("disk full")))
    assert kept.path(0, 1).exists()
    kept.save(1, 1, text("better"))
    assert not kept.path(0, 1).exists()


def test_larger_may_be_better(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    kept.start(ledger_of([0.1], direction="max"))
    kept.save(0, 1, text("x"))
    train(kept, 0, [0.9, 0.5, 0.4, 0.3], first=2)
    assert "step-000002" in steps(kept, 0)


@pytest.mark.parametrize("value", [float("-inf"), float("nan"), float("inf")])
def test_a_diverged_step_is_never_the_best(tmp_path: Path, value: float) -> None:
    kept = Checkpoints(tmp_path / "c")
    train(kept, 0, [1.0, value, 3.0, 4.0, 5.0])
    assert "step-000001" in steps(kept, 0)


def test_a_step_is_saved_at_the_end_at_a_new_best_or_when_it_is_cheap(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    assert kept.is_due(0, 1, 1.0, last=False, unsaved_s=0.0)  # the first value is the best
    kept._save_s[0] = 2.0
    assert not kept.is_due(0, 2, 2.0, last=False, unsaved_s=99.0)
    assert not kept.is_due(0, 2, None, last=False, unsaved_s=99.0)
    assert kept.is_due(0, 2, 2.0, last=True, unsaved_s=99.0)
    assert kept.is_due(0, 3, 0.5, last=False, unsaved_s=99.0)
    assert kept.is_due(0, 4, 2.0, last=False, unsaved_s=101.0), "50 times what saving takes"


def test_a_trial_that_was_never_saved_is_expected_to_take_as_long_as_the_newest_save(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    assert kept.is_due(0, 1, None, last=False, unsaved_s=1e-9), "nothing is known yet: save, and see"
    kept.best_loss = -1.0
    took_s = kept.save(0, 1, text("x"))
    assert kept.expect_save_s(1) == took_s
    assert not kept.is_due(1, 1, 0.0, last=False, unsaved_s=49 * took_s)
    assert kept.is_due(1, 1, 0.0, last=False, unsaved_s=51 * took_s)


def test_a_folder_is_a_checkpoint_too(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")

    def write(path: Path) -> None:
        path.mkdir()
        (path / "weights").write_text("w")
        (path / "optimizer").write_text("oo")

    kept.save(0, 1, write)
    kept.save(0, 1, write)  # again over what is there
    assert (kept.path(0, 1) / "optimizer").read_text() == "oo"
    assert steps(kept, 0) == ["step-000001"]


def test_save_must_write_where_it_is_told(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    with pytest.raises(FileNotFoundError, match=r"returned without writing step-000001\.partial: write to the path"):
        kept.save(0, 1, lambda path: path.with_suffix(".npy").write_text("numpy adds a suffix"))
    assert kept.newest(0) == 0


def test_half_a_checkpoint_is_none(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    kept.folder(0).mkdir(parents=True)
    (kept.folder(0) / "step-000003.partial").write_text("cut off")
    (kept.folder(0) / "notes.txt").write_text("the user's")
    assert kept.newest(0) == 0
    assert kept.start(ledger_of([1.0, 2.0, 3.0])) == {}


def test_checkpoints_of_another_study_of_that_name_are_put_aside(tmp_path: Path) -> None:
    train(Checkpoints(tmp_path / "c"), 0, [1.0])
    kept = Checkpoints(tmp_path / "c")
    assert kept.start(ledger_of()) == {}
    assert kept.newest(0) == 0
    assert (tmp_path / "c.old-1" / "trial-0000" / "step-000001").exists()


def test_over_the_limit_the_oldest_go_but_never_the_best_or_the_living(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c", at_most_bytes=250)
    for trial, value in enumerate([4.0, 1.0, 3.0, 2.0]):
        train(kept, trial, [value], size=100)
        os.utime(kept.path(trial, 1), (trial, trial))
    assert [lost.trial for lost in kept.drop_over_limit(keep={2})] == [0, 3]
    assert [kept.newest(trial) for trial in range(4)] == [0, 1, 1, 0]
    assert kept.drop_over_limit(keep={2}) == []
    assert Checkpoints(tmp_path / "c").drop_over_limit(keep=set()) == []  # no limit


def test_a_limit_that_cannot_be_kept_is_not_kept_by_deleting_the_best(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c", at_most_bytes=1)
    train(kept, 0, [1.0], size=100)
    assert kept.drop_over_limit(keep=set()) == []
    assert kept.newest(0) == 1


def test_the_index_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[Path] = []
    real = Folder.list

    def count(self: Folder) -> dict[int, dict[int, Stored]]:
        listed.append(self.root)
        return real(self)

    monkeypatch.setattr(Folder, "list", count)
    kept = Checkpoints(tmp_path / "c", at_most_bytes=250)
    kept.start(ledger_of())
    for trial in range(4):
        train(kept, trial, [4.0 - trial], size=100)
        kept.drop_over_limit(keep=set())
    assert [kept.newest(trial) for trial in range(4)] == [0, 0, 1, 1]
    assert len(listed) == 1


def test_what_was_deleted_behind_our_back_is_not_there(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path / "c")
    train(kept, 0, [3.0, 2.0])
    kept.path(0, 2).unlink()
    assert kept.newest(0) == 1


def test_a_worker_elsewhere_has_written_it_already(tmp_path: Path) -> None:
    kept, seat = Checkpoints(tmp_path / "c"), Folder(tmp_path / "c")
    for attempt, text_of_it in (("a1", "first"), ("b2", "again")):
        seat.scratch(0, 1, attempt).write_text(text_of_it)
        seat.put(0, 1, attempt)
        assert kept.keep_put(0, 1, 0.5, attempt) >= 0.5
    assert kept.path(0, 1).read_text() == "again"
    assert steps(kept, 0) == ["step-000001"]


def test_attempts_that_came_to_nothing_go_when_the_study_is_taken_up(tmp_path: Path) -> None:
    Folder(tmp_path / "c").scratch(0, 3, "a1").write_text("cut off")
    kept = Checkpoints(tmp_path / "c")
    kept.start(ledger_of([1.0, 2.0, 3.0]))
    assert steps(kept, 0) == []


def test_nothing_is_looked_for_in_a_place_that_was_never_taken_up(tmp_path: Path) -> None:
    """The error of a place that cannot be used must not be hidden by another one when the runner is closed."""
    checkpoints = Checkpoints(tmp_path / "study", at_most_bytes=1.0)
    checkpoints.storage.list = lambda: pytest.fail("it was listed")  # type: ignore[method-assign]
    assert checkpoints.drop_over_limit(set()) == []
