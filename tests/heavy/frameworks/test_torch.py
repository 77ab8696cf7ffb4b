"""A plain PyTorch loop: by epochs, with loading processes, and with steps that end within an epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from shoestring.runners.training.random_state import RandomState
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces

HERE = f"{Path(__file__).parent}/torch_code.py"
EXAMPLE = f"{Path(__file__).parents[3]}/examples/pytorch_digits.py:train"
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "the example": (EXAMPLE, {"lr": 0.01, "units": 16}),
    "an epoch a step": (f"{HERE}:train", {}),
    "two loading processes": (f"{HERE}:train", {"workers": 2}),
    "within an epoch": (f"{HERE}:train_by_batches", {}),
}
if torch.cuda.is_available():
    CASES |= {
        "an epoch a step, on a GPU": (f"{HERE}:train", {"device": "cuda"}),
        "within an epoch, on a GPU": (f"{HERE}:train_by_batches", {"device": "cuda"}),
    }


@pytest.mark.parametrize("name", CASES)
def test_freezing_and_thawing_changes_nothing(name: str, tmp_path: Path) -> None:
    target, config = CASES[name]
    whole = train_in_one_piece(target, config, 6)
    assert len(set(whole)) == 6
    assert train_in_pieces(target, config, 6, 2, tmp_path) == whole


def test_the_check_catches_a_position_that_is_forgotten(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train_by_batches", {}, tmp_path / "right").facts["same"]
    assert not check_resuming(f"{HERE}:train_without_position", {}, tmp_path / "wrong").facts["same"]


def test_the_generator_of_torch_is_kept_in_the_file(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state = RandomState.take()
    drawn = torch.rand(4)
    state.save(tmp_path / "random.npz")
    RandomState.load(tmp_path / "random.npz").put_back()
    assert torch.equal(torch.rand(4), drawn)


def test_the_generators_of_gpus_are_kept_by_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no GPU here: what is asked of PyTorch stands in for one."""
    states = [torch.full((16,), device, dtype=torch.uint8) for device in (1, 2, 3)]
    put: dict[int, torch.Tensor] = {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: put.update({device: state}))
    RandomState.take().save(tmp_path / "random.npz")
    RandomState.load(tmp_path / "random.npz").put_back()
    assert sorted(put) == [0, 1], "a machine with fewer devices takes what it has"
    assert all(torch.equal(put[device], states[device]) for device in put)
