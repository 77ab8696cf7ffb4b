"""What a worker does in one call: several steps where they are quick, and no more checkpoints than are needed."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoestring.runners.checkpoints.checkpoint_store import FolderStore
from shoestring.runners.ray import remote_worker
from shoestring.runners.ray.remote_worker import Answer, RemoteWorker, StartPoint, StepCall
from shoestring.runners.training.targets import pack_code


class ListedValues:
    """The values of its steps are its config."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.values, self.done = config["values"], 0

    def step(self) -> float | None:
        self.done += 1
        value = self.values[self.done - 1]
        return None if value is None else float(value)

    def save(self, path: Path) -> None:
        path.write_text(str(self.done))

    def load(self, path: Path) -> None:
        self.done = int(path.read_text())


def train(
    folder: Path, values: Sequence[float | None], attempt: str = "a", best_loss: float = math.inf, sign: float = 1.0
) -> list[Answer]:
    store = FolderStore(folder)
    store.add_marker("m")
    worker = RemoteWorker(pack_code(ListedValues, has_our_main=False), sys.path, store, "m")
    config = {"values": list(values)}
    message = {"config": config, "until": len(values), "validate": True, "sign": sign}
    return worker.train(StartPoint(0, config, 9), StepCall([message] * len(values), attempt, best_loss))


def find_saved_steps(answers: Sequence[Answer]) -> list[int]:
    return [step for step, answer in enumerate(answers, 1) if "checkpoint" in answer]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "trial-0000").glob("step-*"))


def test_one_call_trains_an_order_to_its_end(tmp_path: Path) -> None:
    answers = train(tmp_path, [5, 6, 7, 8], best_loss=1.0)
    assert [answer["value"] for answer in answers] == [5, 6, 7, 8]
    assert find_saved_steps(answers) == [4], "the last step of an order is kept"
    assert all(answer["took_s"] > 0 for answer in answers)


def test_a_call_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_worker, "CALL_S", 0.0)
    assert [answer["value"] for answer in train(tmp_path, [5, 6, 7])] == [5]


def test_only_the_best_and_the_last_step_of_a_call_are_saved(tmp_path: Path) -> None:
    answers = train(tmp_path, [5, 4, 3, 6, 7])
    assert find_saved_steps(answers) == [3, 5]
    assert files(tmp_path) == ["step-000003.a.partial", "step-000005.a.partial"]
    assert (tmp_path / "trial-0000" / "step-000003.a.partial").read_text() == "3"


def test_the_largest_value_is_saved_when_maximising(tmp_path: Path) -> None:
    assert find_saved_steps(train(tmp_path, [5, 6, 4, 3], best_loss=-4.5, sign=-1.0)) == [2, 4]


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_no_step_is_trained_after_one_that_diverged(value: float | None, tmp_path: Path) -> None:
    assert len(train(tmp_path, [5, value, 3])) == 2


def test_slow_checkpoints_are_left_to_the_driver(tmp_path: Path) -> None:
    answers = train(tmp_path, [5, 4, 3, 6], attempt="", best_loss=4.5)
    assert [answer["value"] for answer in answers] == [5, 4]
    assert not find_saved_steps(answers)


def test_a_failure_ends_the_call_after_the_finished_steps(tmp_path: Path) -> None:
    answers = train(tmp_path, [5, "no number", 3])  # type: ignore[list-item]
    assert [answer["is"] for answer in answers] == ["stepped", "failed"]
    assert "ValueError" in answers[1]["text"]
