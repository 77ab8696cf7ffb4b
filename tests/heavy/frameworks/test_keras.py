"""Keras: frozen and thawed every two epochs in a fresh process, the run is the whole run."""

from __future__ import annotations

from pathlib import Path

import keras_code as code
import pytest

from shoestring.errors import RunnerError
from shoestring.runners.training.code import Live
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/keras_code.py"


def test_freezing_and_thawing_changes_nothing(tmp_path: Path) -> None:
    whole = code.whole_run({})
    assert train_in_one_piece(f"{HERE}:train", {}, code.EPOCHS) == whole
    assert train_in_pieces(f"{HERE}:train", {}, code.EPOCHS, 2, tmp_path) == whole


def test_nor_with_two_loading_processes(tmp_path: Path) -> None:
    whole = train_in_one_piece(f"{HERE}:train_from_a_loader", {}, 4)
    assert len(set(whole)) == 4
    assert train_in_pieces(f"{HERE}:train_from_a_loader", {}, 4, 2, tmp_path) == whole


def test_the_check_accepts_the_right_recipe(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


@pytest.mark.parametrize("wrong", ["train_without_random", "train_from_weights_alone"])
def test_the_check_catches_the_wrong_recipe(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{wrong}", {}, tmp_path).facts["same"]


def test_what_else_fit_logs_is_kept_beside_the_value() -> None:
    live = Live(code.train, {})
    result = live.advance({}, 6, True)
    live.close()
    assert set(result.metrics) == {"loss"}
    assert result.metrics["loss"] != result.value


def test_a_thawed_trial_that_would_start_anew_says_so(tmp_path: Path) -> None:
    live = Live(code.train, {})
    live.advance({}, 6, True)
    live.save(tmp_path / "saved")
    live.close()
    thawed = Live(code.train_that_forgets_the_epoch, {}, 1, tmp_path / "saved")
    with pytest.raises(RunnerError, match="goes on after epoch 1, not 0"):
        thawed.advance({}, 6, True)
