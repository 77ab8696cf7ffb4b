"""Plain PyTorch loops, by epochs and by batches, on a CPU or (`device`) a GPU; with complete and incomplete checkpoints."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

from shoestring import Context, Report
from shoestring.integrations.stepping import Steps, stepwise
from shoestring.runners.training.random_state import RandomState

torch.set_num_threads(1)
BATCHES_PER_EPOCH, BATCHES_PER_STEP = 8, 5
IMAGES, LABELS = load_digits(return_X_y=True)
X, Y = torch.tensor(IMAGES / 16, dtype=torch.float32), torch.tensor(LABELS)


class Noisy(Dataset[Any]):
    """Images with noise, which is drawn in the process that loads them."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> Any:
        return X[i] + 0.1 * torch.randn(64), Y[i]


class Model:
    """The network that all loops train; a checkpoint must contain its `parts`."""

    def __init__(self, steps: Steps, device: str = "cpu") -> None:
        torch.manual_seed(1)
        self.device = device
        self.net = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(32, 10)
        ).to(device)
        optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 50)
        self.parts: dict[str, Any] = {"net": self.net, "optimizer": optimizer, "schedule": schedule}
        if steps.checkpoint is not None:
            saved = torch.load(steps.checkpoint / "parts.pt")
            for name, part in self.parts.items():
                part.load_state_dict(saved[name])

    def save(self, folder: Path) -> None:
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, folder / "parts.pt")

    def learn(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        self.net.train()
        self.parts["optimizer"].zero_grad()
        torch.nn.functional.cross_entropy(self.net(images.to(self.device)), labels.to(self.device)).backward()
        self.parts["optimizer"].step()
        self.parts["schedule"].step()

    def loss(self) -> float:
        self.net.eval()
        with torch.no_grad():
            logits = self.net(X[400:600].to(self.device)).cpu()
            return float(torch.nn.functional.cross_entropy(logits, Y[400:600]))


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Train an epoch in each step, with loading processes that draw noise."""

    def fit(steps: Steps) -> None:
        model = Model(steps, config.get("device", "cpu"))
        loader = DataLoader(Noisy(), 50, shuffle=True, num_workers=config.get("workers", 0))
        steps.restore_random()
        while True:
            for images, labels in loader:
                model.learn(images, labels)
            steps.report(model.loss(), model.save)

    yield from stepwise(fit, context)


def train_by_batches(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Train five batches in each step. The order of an epoch depends on its number, so the position is a number of batches."""

    def fit(steps: Steps) -> None:
        model = Model(steps, config.get("device", "cpu"))
        batch = steps.done * BATCHES_PER_STEP
        steps.restore_random()
        while True:
            epoch, place = divmod(batch, BATCHES_PER_EPOCH)
            order = torch.randperm(400, generator=torch.Generator().manual_seed(epoch))
            rows = order[place * 50 : (place + 1) * 50]
            model.learn(X[rows], Y[rows])
            batch += 1
            if batch % BATCHES_PER_STEP == 0:
                steps.report(model.loss(), model.save)

    yield from stepwise(fit, context)


def train_without_position(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Do the same with a shuffling loader, which starts a new epoch when the trial resumes within one."""

    def fit(steps: Steps) -> None:
        model = Model(steps, config.get("device", "cpu"))
        loader = DataLoader(Noisy(), 50, shuffle=True)
        steps.restore_random()
        batch = steps.done * BATCHES_PER_STEP
        while True:
            for images, labels in loader:
                model.learn(images, labels)
                batch += 1
                if batch % BATCHES_PER_STEP == 0:
                    steps.report(model.loss(), model.save)

    yield from stepwise(fit, context)


def train_without_the_gpus_generator(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Train as `train` does, but restore only the CPU's generators: dropout on the GPU starts again."""

    def fit(steps: Steps) -> None:
        model = Model(steps, config["device"])
        loader = DataLoader(Noisy(), 50, shuffle=True)
        if steps.checkpoint is not None:
            replace(RandomState.load(steps.checkpoint / "random.npz"), cuda=()).restore()
        while True:
            for images, labels in loader:
                model.learn(images, labels)
            steps.report(model.loss(), model.save)

    yield from stepwise(fit, context)
