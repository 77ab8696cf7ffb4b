"""Tune a plain PyTorch loop on scikit-learn's images of digits; a paused trial continues exactly where it stopped."""

from __future__ import annotations

from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from shoestring import Choice, Float, tune
from shoestring.integrations.stepping import stepwise

IMAGES, LABELS = load_digits(return_X_y=True)
X, Y = torch.tensor(IMAGES / 16, dtype=torch.float32), torch.tensor(LABELS)
TRAIN, VALID_X, VALID_Y = TensorDataset(X[:1000], Y[:1000]), X[1000:], Y[1000:]


def train(config: dict[str, Any], context: Any) -> Any:
    def fit(steps: Any) -> None:
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Linear(64, config["units"]),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.2),
            torch.nn.Linear(config["units"], 10),
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps.max_steps)  # for a full training
        loader = DataLoader(TRAIN, batch_size=50, shuffle=True)
        parts = {"model": model, "optimizer": optimizer, "schedule": schedule}
        if steps.checkpoint is not None:
            saved = torch.load(steps.checkpoint / "parts.pt")
            for name, part in parts.items():
                part.load_state_dict(saved[name])
        steps.restore_random()  # after everything is built, before the first batch is drawn

        def save(folder: Any) -> None:
            torch.save({name: part.state_dict() for name, part in parts.items()}, folder / "parts.pt")

        for _ in range(steps.done, steps.max_steps):
            model.train()
            for images, labels in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(images), labels).backward()
                optimizer.step()
            schedule.step()
            model.eval()
            with torch.no_grad():
                loss = torch.nn.functional.cross_entropy(model(VALID_X), VALID_Y)
            steps.report(loss, save)

    yield from stepwise(fit, context)


if __name__ == "__main__":
    space = {"lr": Float(1e-4, 0.1, log=True), "units": Choice([16, 64])}
    study = tune(train, space, budget="36 epochs", max_steps=9, seed=1, store="pytorch.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
