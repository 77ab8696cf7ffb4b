"""Lightning: a run that is paused every two epochs and resumed in a fresh process equals the run without a pause."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning_code as code
import pytest
import torch

from shoestring import Float, tune
from shoestring.errors import RunnerError
from shoestring.runners.training.code import LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/lightning_code.py"
CONFIGS: dict[str, dict[str, Any]] = {
    "schedule by step": {},
    "by epoch": {"interval": "epoch"},
    "plateau": {"interval": "plateau"},
    "weights in configure_model": {"late": True},
    "two loading processes": {"workers": 2},
}
if torch.cuda.is_available():
    CONFIGS |= {"on a GPU": {"accelerator": "gpu"}, "on a GPU, plateau": {"accelerator": "gpu", "interval": "plateau"}}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_resuming_changes_nothing(config: dict[str, Any], tmp_path: Path) -> None:
    steps = 4 if config else code.EPOCHS  # one pause or two; every process needs a while to import its framework
    whole = code.whole_run(config)[:steps]
    assert train_in_one_piece(f"{HERE}:train", config, steps) == whole
    assert train_in_pieces(f"{HERE}:train", config, steps, 2, tmp_path) == whole


def test_the_resume_check_accepts_correct_code(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train", {}, tmp_path).facts["same"]


def test_the_older_package_name_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytorch_lightning` has its own classes, which do not work together with those of `lightning`."""
    whole = train_in_one_piece(f"{HERE}:train", {}, 4)
    monkeypatch.setenv("LIGHTNING", "pytorch_lightning")  # read by the processes that train the pieces
    assert train_in_pieces(f"{HERE}:train", {}, 4, 2, tmp_path) == whole


@pytest.mark.parametrize("wrong", ["train_without_random", "train_from_weights_only"])
def test_the_resume_check_finds_wrong_code(wrong: str, tmp_path: Path) -> None:
    assert not check_resuming(f"{HERE}:{wrong}", {}, tmp_path).facts["same"]


def test_a_resumed_trial_that_would_start_from_nothing_is_an_error(tmp_path: Path) -> None:
    note = check_resuming(f"{HERE}:train_without_checkpoint", {}, tmp_path)
    assert (note.facts["resumed"], note.facts["same"]) == (None, False)
    live = LiveTrial(code.train_without_checkpoint, {}, 1, tmp_path / "checkpoints" / "trial-0000" / "step-000001")
    with pytest.raises(RunnerError, match="ckpt_path=checkpoint_of"):
        live.advance({}, 2, True)


def test_the_error_for_an_unknown_metric_names_the_known_ones() -> None:
    live = LiveTrial(code.train, {"monitor": "val_los"})
    with pytest.raises(
        RunnerError, match=r"no 'val_los' among the metrics that self.log has logged. Did you mean 'val_loss'"
    ):
        live.advance({"monitor": "val_los"}, 2, True)


# hyperparameters that change during the training ----------------------------------------------------------------------


def test_an_epoch_is_validated_only_if_it_needs_a_value() -> None:
    code.NETS.clear()
    live = LiveTrial(code.train, {"lr": 0.01})
    results = [live.advance({"lr": 0.01}, 4, validate) for validate in (True, False, False, True)]
    live.close()
    assert [result.value is None for result in results] == [False, True, True, False]
    assert [result.metrics for result in results] == [{"val_rows": 200.0}, {}, {}, {"val_rows": 200.0}]
    assert code.NETS[0].validated == 2 + 1  # plus one batch of Lightning's check before training


def test_an_online_study_changes_the_learning_rate_and_validates_some_epochs() -> None:
    code.NETS.clear()
    space = {"lr": Float(1e-3, 1e-1, log=True)}
    options: dict[str, Any] = {"policy": "ce_gp_ucb", "settings": {"n_starts": 2, "kappa": 0.3}, "seed": 1}
    study = tune(code.train_online, space, f"{code.EPOCHS} epochs", max_steps=code.EPOCHS, **options)
    (trial,) = study.trials
    validated = [value for value in trial.values if value is not None]
    assert trial.steps == code.EPOCHS
    assert 2 <= len(validated) < code.EPOCHS
    assert code.NETS[0].validated == len(validated) + 1  # plus one batch of Lightning's check before training
    configs = [order.config["lr"] for order in study.ledger.orders for _ in range(order.until)]
    assert set(code.NETS[0].applied) == set(configs) - {configs[0]}
    assert len(set(configs)) > 1


def test_a_new_config_is_applied_before_its_first_epoch(tmp_path: Path) -> None:
    code.NETS.clear()
    live = LiveTrial(code.train_online, {"lr": 0.01})
    for lr in (0.01, 0.01, 0.002):
        live.advance({"lr": lr}, 4, True)
    assert code.NETS[0].applied == [0.002]
    live.save(tmp_path / "saved")
    whole = live.advance({"lr": 0.002}, 4, True).value
    live.close()
    resumed = LiveTrial(code.train_online, {"lr": 0.002}, 3, tmp_path / "saved")
    assert resumed.advance({"lr": 0.002}, 4, True).value == whole
    resumed.close()
