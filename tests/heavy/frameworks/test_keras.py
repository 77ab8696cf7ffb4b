"""Keras: a run that is paused every two epochs and resumed in a fresh process equals the run without a pause."""

from __future__ import annotations

from pathlib import Path

import keras_code as code
import pytest

from shoestring.errors import RunnerError
from shoestring.runners.training.code import LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/keras_code.py"


def test_resuming_changes_nothing(tmp_path: Path) -> None:
    whole = code.whole_run({})
    assert train_in_one_piece(f"{HERE}:train", {}, code.EPOCHS) == whole
    assert train_in_pieces(f"{HERE}:train", {}, code.EPOCHS, 2, tmp_path) == whole


def test_resuming_changes_nothing_with_two_loading_processes(tmp_path: Path) -> None:
    whole = train_in_one_piece(f"{HERE}:train_from_a_loader", {}, 4)
    assert len(set(whole)) == 4
    assert train_in_pieces(f"{HERE}:train_from_a_loader", {}, 4, 2, tmp_path) == whole


def test_the_resume_check_accepts_correct_code(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


@pytest.mark.parametrize("wrong", ["train_without_random", "train_from_weights_only"])
def test_the_resume_check_finds_wrong_code(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{wrong}", {}, tmp_path).facts["same"]


def test_other_logged_metrics_are_stored_with_the_value() -> None:
    live = LiveTrial(code.train, {})
    result = live.advance({}, 6, True)
    live.close()
    assert set(result.metrics) == {"loss"}
    assert result.metrics["loss"] != result.value


def test_a_resumed_trial_that_would_start_from_nothing_is_an_error(tmp_path: Path) -> None:
    live = LiveTrial(code.train, {})
    live.advance({}, 6, True)
    live.save(tmp_path / "saved")
    live.close()
    resumed = LiveTrial(code.train_without_initial_epoch, {}, 1, tmp_path / "saved")
    with pytest.raises(RunnerError, match="continues after epoch 1, not 0"):
        resumed.advance({}, 6, True)
