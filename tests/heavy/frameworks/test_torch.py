"""Plain PyTorch loops: steps of an epoch, with loading processes, and steps within an epoch."""

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
    "steps of an epoch": (f"{HERE}:train", {}),
    "two loading processes": (f"{HERE}:train", {"workers": 2}),
    "steps within an epoch": (f"{HERE}:train_by_batches", {}),
}
if torch.cuda.is_available():
    CASES |= {
        "steps of an epoch, on a GPU": (f"{HERE}:train", {"device": "cuda"}),
        "steps within an epoch, on a GPU": (f"{HERE}:train_by_batches", {"device": "cuda"}),
    }


@pytest.mark.parametrize("name", CASES)
def test_resuming_changes_nothing(name: str, tmp_path: Path) -> None:
    target, config = CASES[name]
    whole = train_in_one_piece(target, config, 6)
    assert len(set(whole)) == 6
    assert train_in_pieces(target, config, 6, 2, tmp_path) == whole


def test_the_resume_check_finds_a_missing_position(tmp_path: Path) -> None:
    assert check_resuming(f"{HERE}:train_by_batches", {}, tmp_path / "right").facts["same"]
    assert not check_resuming(f"{HERE}:train_without_position", {}, tmp_path / "wrong").facts["same"]


def test_the_state_of_the_torch_generator_is_saved(tmp_path: Path) -> None:
    torch.manual_seed(3)
    state = RandomState.take()
    drawn = torch.rand(4)
    state.save(tmp_path / "random.npz")
    RandomState.load(tmp_path / "random.npz").restore()
    assert torch.equal(torch.rand(4), drawn)


def test_the_states_of_gpu_generators_are_saved_by_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This machine may have no GPU, so functions of PyTorch are replaced."""
    states = [torch.full((16,), device, dtype=torch.uint8) for device in (1, 2, 3)]
    restored: dict[int, torch.Tensor] = {}
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: states)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: restored.update({device: state}))
    RandomState.take().save(tmp_path / "random.npz")
    RandomState.load(tmp_path / "random.npz").restore()
    assert sorted(restored) == [0, 1], "a machine with fewer devices restores as many states as it has"
    assert all(torch.equal(restored[device], states[device]) for device in restored)
