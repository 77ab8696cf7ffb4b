"""Fashion-MNIST for the two real tasks of this folder: read once, split, and stored on the device.

The images are read from `--data DIR` with the four .gz files of the data set (by default /usr/share/datasets/fashion-mnist, the
folder of Debian's package dataset-fashion-mnist), or from an .npz with x_train, y_train, x_test, y_test. The last 10,000 of the
60,000 training images, in an order drawn once for all runs, are the validation set. `size=14` halves the size of the images and
`n_train` limits their number, for two-minute runs on one processor.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

DEBIAN = Path("/usr/share/datasets/fashion-mnist")
N_CLASSES, N_VALIDATION = 10, 10_000
MEAN, STD = 0.286, 0.353  # of all training pixels


@dataclass(frozen=True)
class Fashion:
    """Images (n, 1, size, size) in [0, 1] and labels (n,), on one device."""

    train_x: Tensor
    train_y: Tensor
    validation_x: Tensor
    validation_y: Tensor
    test_x: Tensor
    test_y: Tensor

    @property
    def device(self) -> torch.device:
        return self.train_x.device

    @property
    def size(self) -> int:
        return self.train_x.shape[-1]


@lru_cache(maxsize=1)  # shared by the runs of one process
def load(
    where: Path, device: str, size: int = 28, n_train: int | None = None, n_held_out: int | None = None
) -> Fashion:
    arrays = _from_npz(where) if where.suffix == ".npz" else _from_idx(where)
    order = np.random.default_rng(0).permutation(len(arrays["x_train"]))
    train, validation = order[:-N_VALIDATION][:n_train], order[-N_VALIDATION:][:n_held_out]

    def put(images: np.ndarray, labels: np.ndarray) -> tuple[Tensor, Tensor]:
        x = torch.from_numpy(np.array(images)).to(device).float().div_(255.0)[:, None]
        if size != x.shape[-1]:
            x = functional.adaptive_avg_pool2d(x, size)
        return x, torch.from_numpy(labels.astype(np.int64)).to(device)

    return Fashion(
        *put(arrays["x_train"][train], arrays["y_train"][train]),
        *put(arrays["x_train"][validation], arrays["y_train"][validation]),
        *put(arrays["x_test"][:n_held_out], arrays["y_test"][:n_held_out]),
    )


def pick_device(name: str) -> str:
    return ("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else name


def normalise(x: Tensor) -> Tensor:
    return (x - MEAN) / STD


def batches(n: int, size: int, generator: torch.Generator) -> Tensor:
    """Return row numbers (n // size, size) of one pass over n images in a new order."""
    order = torch.randperm(n, generator=generator, device=generator.device)
    return order[: n - n % size].view(-1, size)


def synchronise(device: torch.device) -> None:
    """Wait for the accelerator, so that measured times include its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _from_npz(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as arrays:
        return {name: arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")}


def _from_idx(folder: Path) -> dict[str, np.ndarray]:
    if not (folder / "train-images-idx3-ubyte.gz").exists():
        raise SystemExit(
            f"{folder} has no Fashion-MNIST files: give the folder of its four .gz files or an .npz with --data "
            "(Debian: apt install dataset-fashion-mnist)"
        )
    names = {"x_train": "train-images-idx3", "y_train": "train-labels-idx1", "x_test": "t10k-images-idx3"}
    names["y_test"] = "t10k-labels-idx1"
    return {name: _read_idx(folder / f"{file}-ubyte.gz") for name, file in names.items()}


def _read_idx(path: Path) -> np.ndarray:
    """Read a file of two zero bytes, the type (8: uint8), the number of axes, their lengths as big-endian int32, the numbers."""
    raw = gzip.decompress(path.read_bytes())
    axes = raw[3]
    shape = np.frombuffer(raw, ">i4", count=axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)
