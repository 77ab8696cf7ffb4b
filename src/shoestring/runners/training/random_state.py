"""Save and restore the states of the global random generators of Python, NumPy and PyTorch.

Frameworks draw from these generators (shuffling, dropout, augmentation). A training run that was paused continues as if it had
never stopped only if the generators have the same states again. Libraries that are not imported have no state to save.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RandomState:
    """The states of the generators at one moment."""

    python: tuple[Any, ...]
    numpy: tuple[Any, ...]
    torch: NDArray[np.uint8] | None = None
    cuda: tuple[NDArray[np.uint8], ...] = ()  # one for each device

    @classmethod
    def take(cls) -> RandomState:
        """Return the present states."""
        torch = sys.modules.get("torch")
        if torch is None:
            return cls(random.getstate(), _numpy_state())
        # Reading the state of a GPU would start CUDA in processes that do not use it.
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
        own = torch.get_rng_state().numpy().copy()
        return cls(random.getstate(), _numpy_state(), own, tuple(one.cpu().numpy().copy() for one in cuda))

    def restore(self) -> None:
        """Set the generators to these states."""
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if self.torch is None:
            return
        import torch

        torch.set_rng_state(torch.from_numpy(self.torch.copy()))
        for device, state in enumerate(self.cuda[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(torch.from_numpy(state.copy()), device)

    def save(self, path: Path) -> None:
        """Write the states as plain arrays, without pickles, which would run code when they are read."""
        version, words, gauss = self.python
        kind, keys, *rest = self.numpy
        assert (version, kind) == (3, "MT19937")
        arrays: dict[str, Any] = {
            "python": np.array(words, dtype=np.uint32),
            "python_gauss": np.array([] if gauss is None else [gauss]),
            "numpy": keys,
            # the position, whether a Gaussian number is cached, and that number
            "numpy_rest": np.array(rest, dtype=np.float64),
            **{f"cuda_{device}": state for device, state in enumerate(self.cuda)},
        }
        if self.torch is not None:
            arrays["torch"] = self.torch
        with path.open("wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> RandomState:
        with np.load(path, allow_pickle=False) as stored:
            gauss = stored["python_gauss"]
            position, has_gauss, cached = stored["numpy_rest"]
            devices = sum(name.startswith("cuda_") for name in stored.files)
            return cls(
                python=(3, tuple(map(int, stored["python"])), float(gauss[0]) if gauss.size else None),
                numpy=("MT19937", stored["numpy"], int(position), int(has_gauss), float(cached)),
                torch=stored["torch"] if "torch" in stored.files else None,
                cuda=tuple(stored[f"cuda_{device}"] for device in range(devices)),
            )


def _numpy_state() -> tuple[Any, ...]:
    state = np.random.get_state(legacy=True)
    assert isinstance(state, tuple)
    return state
