"""Tune a Keras model on scikit-learn's images of digits: one callback, one `initial_epoch`."""

from __future__ import annotations

import os
from typing import Any

os.environ.setdefault("KERAS_BACKEND", "torch")

import keras
from sklearn.datasets import load_digits

from shoestring import Float, tune
from shoestring.integrations.keras import KerasSteps, load_model
from shoestring.integrations.stepping import stepwise

IMAGES, LABELS = load_digits(return_X_y=True)
X = (IMAGES / 16).astype("float32")


def build(config: dict[str, Any], epochs: int) -> keras.Model:
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((64,)),
            keras.layers.Dense(32, "relu"),
            keras.layers.Dropout(config["dropout"]),
            keras.layers.Dense(10),
        ]
    )
    schedule = keras.optimizers.schedules.CosineDecay(config["lr"], 20 * epochs)  # batches of the full training
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(schedule), loss)
    return model


def train(config: dict[str, Any], context: Any) -> Any:
    def fit(steps: Any) -> None:
        model = load_model(steps) or build(config, steps.max_steps)
        model.fit(
            X[:1000],
            LABELS[:1000],
            batch_size=50,
            validation_data=(X[1000:], LABELS[1000:]),
            epochs=steps.max_steps,  # epochs of a full training
            initial_epoch=steps.done,
            callbacks=[KerasSteps(steps, monitor="val_loss")],
            verbose=0,
        )

    yield from stepwise(fit, context)


if __name__ == "__main__":
    space = {"lr": Float(1e-4, 0.1, log=True), "dropout": Float(0.0, 0.5)}
    study = tune(train, space, budget="36 epochs", max_steps=9, seed=1, store="keras.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
