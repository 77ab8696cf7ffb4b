"""A network with dropout, shuffled data, Adam and a schedule, trained by Lightning; correct and wrong ways to resume it."""

from __future__ import annotations

import importlib
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

from shoestring import Context, Report
from shoestring.integrations.stepping import Steps, stepwise

L: Any = importlib.import_module(os.environ.get("LIGHTNING", "lightning"))  # or its older name, pytorch_lightning
from shoestring.integrations.lightning import LightningSteps, checkpoint_of  # noqa: E402

torch.set_num_threads(1)
logging.getLogger(L.Trainer.__module__.rpartition(".trainer.")[0]).setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module=L.__name__)
EPOCHS = 6
IMAGES, LABELS = (torch.tensor(array) for array in load_digits(return_X_y=True))
IMAGES = IMAGES.float() / 16
TRAIN, VALID = TensorDataset(IMAGES[:400], LABELS[:400]), TensorDataset(IMAGES[400:600], LABELS[400:600])


NETS: list[Any] = []


class Net(L.LightningModule):
    def __init__(self, lr: float = 0.01, interval: str = "step") -> None:
        super().__init__()
        self.lr, self.interval = lr, interval
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(32, 10)
        )
        self.validated, self.applied = 0, []
        NETS.append(self)

    def _loss(self, batch: Any) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        return self._loss(batch)

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated += 1
        self.log("val_loss", self._loss(batch))
        self.log("val_rows", float(len(batch[0])))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.parameters(), lr=self.lr)
        if self.interval == "plateau":
            schedule: Any = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.5)
            return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "monitor": "val_loss"}}
        length = self.trainer.estimated_stepping_batches if self.interval == "step" else self.trainer.max_epochs
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, int(length))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": self.interval}}


class LateNet(Net):
    """A network whose weights are created in `configure_model`."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = None

    def configure_model(self) -> None:
        if self.layers is None:
            self.layers = Net().layers


def make_net(config: dict[str, Any]) -> Net:
    return LateNet() if config.get("late") else Net(config.get("lr", 0.01), config.get("interval", "step"))


def loaders(workers: int = 0) -> tuple[DataLoader[Any], DataLoader[Any]]:
    return DataLoader(TRAIN, 50, shuffle=True, num_workers=workers), DataLoader(VALID, 200)


def make_trainer(*callbacks: Any, accelerator: str = "cpu", **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": accelerator}
    place = {"default_root_dir": tempfile.mkdtemp(), "devices": 1}
    return L.Trainer(**quiet, **place, max_epochs=EPOCHS, callbacks=list(callbacks), **options)


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        L.seed_everything(1, verbose=False)
        callback = LightningSteps(steps, config.get("monitor", "val_loss"))
        trainer = make_trainer(callback, accelerator=config.get("accelerator", "cpu"))
        trainer.fit(make_net(config), *loaders(config.get("workers", 0)), ckpt_path=checkpoint_of(steps))

    yield from stepwise(fit, context)


class WithoutRandomState(LightningSteps):
    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        pass

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        pass


def train_without_random(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        L.seed_everything(1, verbose=False)
        make_trainer(WithoutRandomState(steps, "val_loss")).fit(Net(), *loaders(), ckpt_path=checkpoint_of(steps))

    yield from stepwise(fit, context)


def train_from_weights_only(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Load only the weights and fit again: optimiser and schedule start again."""

    def fit(steps: Steps) -> None:
        L.seed_everything(1, verbose=False)
        net = Net()
        if (path := checkpoint_of(steps)) is not None:
            net.load_state_dict(torch.load(path, weights_only=False)["state_dict"])
        make_trainer(WithoutRandomState(steps, "val_loss")).fit(net, *loaders())

    yield from stepwise(fit, context)


def train_without_checkpoint(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        L.seed_everything(1, verbose=False)
        make_trainer(LightningSteps(steps, "val_loss")).fit(Net(), *loaders())

    yield from stepwise(fit, context)


def train_online(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Train with the learning rate that the study chooses for each epoch."""

    def apply(trainer: Any, module: Any, new_config: Any) -> None:
        module.applied.append(new_config["lr"])
        for group in trainer.optimizers[0].param_groups:
            group["lr"] = new_config["lr"]

    def fit(steps: Steps) -> None:
        L.seed_everything(1, verbose=False)
        trainer = make_trainer(LightningSteps(steps, "val_loss", apply))
        trainer.fit(Net(config["lr"], "plateau"), *loaders(), ckpt_path=checkpoint_of(steps))

    yield from stepwise(fit, context)


def whole_run(config: dict[str, Any]) -> list[float]:
    """Train with Lightning alone, without shoestring."""
    values = []

    class Record(L.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            values.append(float(trainer.callback_metrics["val_loss"]))

    L.seed_everything(1, verbose=False)
    trainer = make_trainer(Record(), accelerator=config.get("accelerator", "cpu"), enable_checkpointing=False)
    trainer.fit(make_net(config), *loaders(config.get("workers", 0)))
    return values
