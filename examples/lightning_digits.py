"""Tune a Lightning module on scikit-learn's images of digits: one callback, one `ckpt_path`."""

from __future__ import annotations

import logging
from typing import Any

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from shoestring import Float, tune
from shoestring.integrations.lightning import LightningSteps, checkpoint_of
from shoestring.integrations.stepping import stepwise

IMAGES, LABELS = load_digits(return_X_y=True)
X, Y = torch.tensor(IMAGES / 16, dtype=torch.float32), torch.tensor(LABELS)
TRAIN, VALID = TensorDataset(X[:1000], Y[:1000]), TensorDataset(X[1000:], Y[1000:])
QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Net(L.LightningModule):
    def __init__(self, lr: float, dropout: float) -> None:
        super().__init__()
        self.lr = lr
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(32, 10)
        )

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def validation_step(self, batch: Any, index: int) -> None:
        self.log("val_loss", torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, int(self.trainer.estimated_stepping_batches))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(config: dict[str, Any], context: Any) -> Any:
    def fit(steps: Any) -> None:
        L.seed_everything(0, verbose=False)
        callback = LightningSteps(steps, monitor="val_loss")
        trainer = L.Trainer(max_epochs=steps.max_steps, callbacks=[callback], **QUIET)  # epochs of a full training
        loaders = DataLoader(TRAIN, batch_size=50, shuffle=True), DataLoader(VALID, batch_size=800)
        trainer.fit(Net(**config), *loaders, ckpt_path=checkpoint_of(steps))

    yield from stepwise(fit, context)


if __name__ == "__main__":
    space = {"lr": Float(1e-4, 0.1, log=True), "dropout": Float(0.0, 0.5)}
    study = tune(train, space, budget="36 epochs", max_steps=9, seed=1, store="lightning.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
