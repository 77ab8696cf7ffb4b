"""A network with dropout, shuffled data, Adam and a cosine schedule, trained by Keras on PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ["KERAS_BACKEND"] = "torch"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import keras
import torch
from sklearn.datasets import load_digits

from shoestring import Context, Report
from shoestring.integrations.keras import KerasSteps, load_model
from shoestring.integrations.stepping import Steps, stepwise

torch.set_num_threads(1)
EPOCHS = 6
IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = (IMAGES / 16).astype("float32")
DATA: dict[str, Any] = {"x": IMAGES[:400], "y": LABELS[:400], "validation_data": (IMAGES[400:600], LABELS[400:600])}


def build() -> keras.Model:
    keras.utils.set_random_seed(1)
    layers = [keras.Input((64,)), keras.layers.Dense(32, "relu"), keras.layers.Dropout(0.3), keras.layers.Dense(10)]
    model = keras.Sequential(layers)
    schedule = keras.optimizers.schedules.CosineDecay(0.01, 8 * EPOCHS)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(schedule), loss)
    return model


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        model = load_model(steps) or build()
        options = {"epochs": EPOCHS, "initial_epoch": steps.done, "batch_size": 50, "verbose": 0}
        model.fit(**DATA, **options, callbacks=[KerasSteps(steps)])

    yield from stepwise(fit, context)


class Noisy(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """Images with noise, which is drawn in the process that loads them."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, i: int) -> Any:
        return torch.tensor(IMAGES[i]) + 0.1 * torch.randn(64), int(LABELS[i])


def train_from_a_loader(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        model = load_model(steps) or build()
        loader = torch.utils.data.DataLoader(Noisy(), 50, shuffle=True, num_workers=2)
        options = {"epochs": EPOCHS, "initial_epoch": steps.done, "verbose": 0}
        model.fit(loader, validation_data=DATA["validation_data"], **options, callbacks=[KerasSteps(steps)])

    yield from stepwise(fit, context)


class WithoutRandomState(KerasSteps):
    def on_train_begin(self, logs: Any = None) -> None:
        pass


def train_without_random(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        model = load_model(steps) or build()
        options = {"epochs": EPOCHS, "initial_epoch": steps.done, "batch_size": 50, "verbose": 0}
        model.fit(**DATA, **options, callbacks=[WithoutRandomState(steps)])

    yield from stepwise(fit, context)


def train_from_weights_only(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Load only the weights into a new model: the optimiser loses its moments."""

    def fit(steps: Steps) -> None:
        model = build()
        if steps.checkpoint is not None:
            model.set_weights(load_model(steps).get_weights())
        options = {"epochs": EPOCHS, "initial_epoch": steps.done, "batch_size": 50, "verbose": 0}
        model.fit(**DATA, **options, callbacks=[KerasSteps(steps)])

    yield from stepwise(fit, context)


def train_without_initial_epoch(config: dict[str, Any], context: Context) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        model = load_model(steps) or build()
        model.fit(**DATA, epochs=EPOCHS, batch_size=50, verbose=0, callbacks=[KerasSteps(steps)])

    yield from stepwise(fit, context)


def whole_run(config: dict[str, Any]) -> list[float]:
    """Train with Keras alone, without shoestring."""
    return list(build().fit(**DATA, epochs=EPOCHS, batch_size=50, verbose=0).history["val_loss"])
