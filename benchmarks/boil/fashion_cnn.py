"""A small convolutional network on Fashion-MNIST, with the six hyperparameters of the BOIL paper's image tasks.

    filter_size   edge of both convolutions' kernels                pixels
    pool_size     edge and stride of both max-poolings              pixels
    batch_size    images in an update                               images
    lr, momentum, decay    of RMSprop; decay is that of its mean of squared gradients

Two convolutions of 16 and 32 maps, a hidden layer of 64 units. It is trained on 10,000 of the 60,000 training images; a step is
an epoch. The score is the accuracy on 5,000 others. The images stay on the device all the time.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

TRAIN_IMAGES, VALID_IMAGES = 10_000, 5_000
HEADER_BYTES = {"images": 16, "labels": 8}


@cache
def images(data: Path, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the first training images, (n, 1, 28, 28) from 0 to 1, and their labels."""
    count = TRAIN_IMAGES + VALID_IMAGES
    if data.suffix == ".npz":
        with np.load(data) as arrays:
            pixels, labels = arrays["x_train"][:count], arrays["y_train"][:count]
    else:
        pixels = _idx(data / "train-images-idx3-ubyte.gz", "images").reshape(-1, 28, 28)[:count]
        labels = _idx(data / "train-labels-idx1-ubyte.gz", "labels")[:count]
    x = torch.from_numpy(pixels.copy()).to(device)[:, None].float() / 255.0
    return x, torch.from_numpy(labels.astype(np.int64)).to(device)


def _idx(path: Path, kind: str) -> np.ndarray:
    with gzip.open(path) as file:
        return np.frombuffer(file.read(), dtype=np.uint8, offset=HEADER_BYTES[kind])


def network(filter_size: int, pool_size: int) -> nn.Sequential:
    edge = 28 // pool_size // pool_size
    before, after = (filter_size - 1) // 2, filter_size // 2  # so that an image keeps its size
    margin = nn.ZeroPad2d((before, after, before, after))
    return nn.Sequential(
        margin,
        nn.Conv2d(1, 16, filter_size),
        nn.ReLU(),
        nn.MaxPool2d(pool_size),
        margin,
        nn.Conv2d(16, 32, filter_size),
        nn.ReLU(),
        nn.MaxPool2d(pool_size),
        nn.Flatten(),
        nn.Linear(32 * edge * edge, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def train(config: Mapping[str, Any], seed: int, data: Path, device: str) -> Iterator[float]:
    """Yield the accuracy on the validation images after each epoch, without end; 0.1 is chance."""
    torch.manual_seed(seed)
    x, y = images(data, device)
    x_valid, y_valid = x[TRAIN_IMAGES:], y[TRAIN_IMAGES:]
    model = network(config["filter_size"], config["pool_size"]).to(device)
    optimiser = torch.optim.RMSprop(
        model.parameters(), lr=config["lr"], alpha=config["decay"], momentum=config["momentum"], foreach=True
    )
    while True:
        order = torch.randperm(TRAIN_IMAGES).to(device)
        for batch in order.split(config["batch_size"]):
            optimiser.zero_grad()
            cross_entropy(model(x[batch]), y[batch]).backward()
            optimiser.step()
        with torch.inference_mode():
            right = sum(
                (model(images).argmax(dim=1) == labels).sum()
                for images, labels in zip(x_valid.split(1000), y_valid.split(1000), strict=True)
            )
        yield float(right) / VALID_IMAGES
