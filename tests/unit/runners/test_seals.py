"""A checkpoint is loaded only if it is the one that was saved, as the ledger says."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_ray import FakeRay, a_node, install

from shoestring import Space, Study, tune
from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger import snapshot
from shoestring.core.ledger.entries import Entry, Note, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import ChangedCheckpoint, CheckpointSeal
from shoestring.errors import StudyError
from shoestring.integrations.sklearn import warm_start_steps
from shoestring.runners.checkpoints import digest
from shoestring.runners.checkpoints.checkpoints import Checkpoints
from shoestring.runners.checkpoints.digest import compute_digest
from shoestring.runners.local.local_runner import LocalRunner
from shoestring.runners.process.process_runner import ProcessRunner
from shoestring.runners.ray.ray_runner import RayRunner
from shoestring.runners.runner import Runner
from shoestring.study.run_study import RunOptions, run_study
from shoestring.testing.runners import make_definition

VALUES = [9.0, 8.0, 7.0, 6.0]  # of the steps of one training


class Descends:
    """A trainer whose state is a number in a text; any other digit there gives another loss."""

    def __init__(self, config: Any) -> None:
        self.done = 0

    def step(self) -> float:
        self.done += 1
        return 10.0 - self.done

    def save(self, path: Path) -> None:
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        self.done = int(path.read_text())


@dataclass(frozen=True)
class OneTrial:
    """A policy that trains one trial to its last step."""

    name = "one_trial"

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        trial = ledger.trials[0] if ledger.trials else None
        return Finish() if trial and trial.is_ended else Train(trial=0, config={"rate": 1}, until=4)


RUNNERS: dict[str, Callable[[Checkpoints], Runner]] = {
    "local": lambda checkpoints: LocalRunner(Descends, checkpoints),
    "process": lambda checkpoints: ProcessRunner(Descends, checkpoints),
    "ray": lambda checkpoints: RayRunner(Descends, checkpoints),
}


@pytest.fixture
def _ray(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, FakeRay([a_node("node")]))


def train(folder: Path, epochs: int, make: Callable[[Checkpoints], Runner] = RUNNERS["local"]) -> Study:
    """Begin or continue a study of one trial with four steps."""
    folder.mkdir(exist_ok=True)
    how: dict[str, Any] = {"max_steps": 4, "policy": OneTrial(), "seed": 0, "store": str(folder / "s.db")}
    study = Study.begin(Space.from_configs([{"rate": 1}]), f"{epochs} epochs", **how)
    study.run(make(Checkpoints(study.checkpoints)))
    return study


def checkpoint_of(study: Study, step: int) -> Path:
    return Path(study.checkpoints) / "trial-0000" / f"step-{step:06d}"


def notes(study: Study, topic: str) -> list[Note]:
    return [entry for entry in study.ledger.entries() if isinstance(entry, Note) and entry.topic == topic]


# a changed checkpoint ------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize("kind", RUNNERS)
def test_a_flipped_checkpoint_is_lost_and_its_steps_are_trained_again(kind: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(train(tmp_path, 2, RUNNERS[kind]), 2)
    assert checkpoint.read_text() == "2"
    checkpoint.write_text("8")  # it can be read all the same, and would give the losses 1 and 0
    study = train(tmp_path, 4, RUNNERS[kind])
    assert study.trials[0].values == VALUES
    assert [note.facts for note in notes(study, ChangedCheckpoint.topic)] == [{"trial": 0, "step": 2}]
    losses = [entry for entry in study.ledger.entries() if isinstance(entry, StateLoss)]
    assert [loss.resumable_step for loss in losses] == [1], "the checkpoint before it is good"


@pytest.mark.usefixtures("_ray")
@pytest.mark.parametrize("kind", RUNNERS)
def test_an_unchanged_checkpoint_is_used(kind: str, tmp_path: Path) -> None:
    train(tmp_path, 2, RUNNERS[kind])
    study = train(tmp_path, 4, RUNNERS[kind])
    assert study.trials[0].values == VALUES
    assert not any(isinstance(entry, StateLoss) for entry in study.ledger.entries())


def test_a_change_is_told_and_the_checkpoint_is_never_used_later(tmp_path: Path) -> None:
    study = train(tmp_path, 2)
    for step in (1, 2):
        checkpoint_of(study, step).write_text("8")
    how: dict[str, Any] = {"max_steps": 4, "policy": OneTrial(), "store": str(tmp_path / "s.db"), "progress": False}
    with pytest.warns(UserWarning, match=r"of step \d of trial 0 is not the one that was saved, so it is not used"):
        study = tune(Descends, Space.from_configs([{"rate": 1}]), "3 epochs", name="study", **how)
    assert study.trials[0].values == VALUES[:3]
    assert train(tmp_path, 4).trials[0].values == VALUES


def test_a_checkpoint_that_was_not_recorded_is_not_used(tmp_path: Path) -> None:
    """Someone else put it there, or the process was killed before the ledger had its digest."""
    study = train(tmp_path, 3)
    for step in (1, 2, 3):
        checkpoint_of(study, step).unlink(missing_ok=True)
    checkpoint_of(study, 1).write_text("8")
    assert train(tmp_path, 4).trials[0].values == VALUES


def test_a_study_of_an_older_release_continues_from_its_checkpoints(tmp_path: Path) -> None:
    checkpoints, ledger = Checkpoints(tmp_path), Ledger([make_definition()])
    for entry in train(tmp_path / "study", 3).ledger.entries(1):
        if not (isinstance(entry, Note) and entry.topic == CheckpointSeal.topic):
            ledger = ledger.append(entry)
    assert ledger.state.has_unsealed_saves
    checkpoints.folder(0).mkdir()
    checkpoints.path(0, 3).write_text("3")
    assert checkpoints.start(ledger) == {0: 3}
    assert checkpoints.find_unchanged_step(0, up_to=3) == 3
    ledger = ledger.append(CheckpointSeal(trial=0, step=2, digest="d").to_note())
    assert Checkpoints(tmp_path).start(ledger) == {}, "its trial was saved with a digest since then"


def test_no_checkpoint_is_deleted_before_the_newer_one_is_sealed(tmp_path: Path) -> None:
    """Many trials are saved at the end of a run. If the process is killed then, each continues from its former checkpoint."""
    checkpoints = Checkpoints(tmp_path)
    for step in (1, 2):
        for trial in range(3):
            checkpoints.save(trial, step, lambda path: path.write_text("x"))
        if step == 1:
            checkpoints.take_notes()
    assert [len(list(checkpoints.folder(trial).iterdir())) for trial in range(3)] == [2, 2, 2]
    checkpoints.take_notes()
    checkpoints.save(3, 1, lambda path: path.write_text("x"))
    assert [len(list(checkpoints.folder(trial).iterdir())) for trial in range(3)] == [1, 1, 1]


def test_trials_that_are_saved_when_a_run_fails_are_sealed_too(tmp_path: Path) -> None:
    class Breaks(Exception):
        pass

    def break_off(ledger: Ledger, entry: Entry | None) -> None:
        if isinstance(entry, Receipt) and entry.step == 2:
            raise Breaks

    how: dict[str, Any] = {"max_steps": 4, "policy": OneTrial(), "seed": 0, "store": str(tmp_path / "s.db")}
    study = Study.begin(Space.from_configs([{"rate": 1}]), "4 epochs", **how)
    checkpoints = Checkpoints(study.checkpoints)
    checkpoints.decide_save = lambda *_, **__: False  # type: ignore[method-assign]  # nothing is saved before the end
    with pytest.raises(Breaks):
        run_study(study, LocalRunner(Descends, checkpoints), RunOptions(observe=break_off))
    assert checkpoint_of(study, 2).read_text() == "2"
    assert Checkpoints(study.checkpoints).start(Study.open(store=str(tmp_path / "s.db")).ledger) == {0: 2}


# the best model ------------------------------------------------------------------------------------------------------


def test_a_changed_checkpoint_is_not_the_best_model(tmp_path: Path) -> None:
    study = train(tmp_path, 4)
    assert study.best is not None
    assert study.best.load(Descends).done == 4
    assert study.best.checkpoint == checkpoint_of(study, 4)
    checkpoint_of(study, 4).write_text("5")
    with pytest.warns(UserWarning, match=r"of step 4 of trial 0 is not the one that was saved.*retrain_best"):
        assert study.best.checkpoint is None
    with pytest.raises(StudyError, match=r"of step 4 of trial 0 is not the one that was saved.*retrain_best"):
        study.best.load(Descends)


def test_a_program_in_a_checkpoint_of_scikit_learn_is_not_run(tmp_path: Path) -> None:
    """Our integration unpickles its own checkpoints."""
    from sklearn.ensemble import RandomForestClassifier

    rows, targets = np.arange(20.0)[:, None], np.arange(20) % 2

    def forest(config: Any, context: Any) -> Any:
        model = RandomForestClassifier(random_state=0)
        yield from warm_start_steps(model, rows, targets, lambda m: 1 - m.score(rows, targets), context, increment=1)

    def run(folder: Path, epochs: int) -> Study:
        return train(folder, epochs, lambda checkpoints: LocalRunner(forest, checkpoints))

    whole = run(tmp_path / "whole", 4)
    study = run(tmp_path, 2)
    for step in (1, 2):
        if (file := checkpoint_of(study, step) / "estimator.pickle").exists():
            file.write_bytes(pickle.dumps(_Program(f"touch {tmp_path / 'PWNED'}")))
    assert run(tmp_path, 4).trials[0].values == whole.trials[0].values
    assert not (tmp_path / "PWNED").exists()


class _Program:
    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, (self.command,)


# digests -------------------------------------------------------------------------------------------------------------


def write_tree(folder: Path) -> Path:
    (folder / "sub" / "empty").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(range(250)) * 4)
    (folder / "sub" / "state").write_text("state")
    (folder / "sub" / "nothing").touch()
    (folder / "link").symlink_to("weights")
    return folder


def replace_by_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def link_elsewhere(link: Path) -> None:
    link.unlink()
    link.symlink_to("/etc/passwd")


CHANGES: dict[str, Callable[[Path], object]] = {
    "the first bit": lambda folder: flip(folder / "weights", 0),
    "the last bit": lambda folder: flip(folder / "weights", -1),
    "a file is longer": lambda folder: (folder / "sub" / "nothing").write_text("x"),
    "a file is new": lambda folder: (folder / "new").touch(),
    "a folder is new": lambda folder: (folder / "sub" / "new").mkdir(),
    "a file is gone": lambda folder: (folder / "sub" / "nothing").unlink(),
    "a file has another name": lambda folder: (folder / "sub" / "state").rename(folder / "sub" / "states"),
    "a file is elsewhere": lambda folder: (folder / "sub" / "state").rename(folder / "state"),
    "a file is a folder": lambda folder: replace_by_folder(folder / "sub" / "nothing"),
    "a link leads elsewhere": lambda folder: link_elsewhere(folder / "link"),
}


def flip(file: Path, place: int) -> None:
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("part_bytes", [100, 1000, digest._PART_BYTES])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_changes_the_digest(
    change: str, part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest, "_PART_BYTES", part_bytes)
    before = compute_digest(write_tree(tmp_path / "a"))
    assert compute_digest(write_tree(tmp_path / "b")) == before, "its own name and times do not matter"
    CHANGES[change](tmp_path / "b")
    assert compute_digest(tmp_path / "b") != before


def test_the_digest_does_not_depend_on_the_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest, "_PART_BYTES", 100)
    tree = write_tree(tmp_path / "a")
    several = compute_digest(tree)
    monkeypatch.setattr(digest, "_MAX_THREADS", 1)
    assert compute_digest(tree) == several


def test_a_missing_checkpoint_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        compute_digest(tmp_path / "gone")


def test_a_snapshot_holds_the_digests(tmp_path: Path) -> None:
    state = train(tmp_path, 3).ledger.state
    assert set(state.trials[0].digests) == {1, 2, 3}

    def orders(count: int) -> Sequence[Any]:
        return list(state.orders)[:count]

    assert snapshot.read(snapshot.write(state), orders).trials[0].digests == state.trials[0].digests  # type: ignore[arg-type]
