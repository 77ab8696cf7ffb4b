"""Tune a small neural network on scikit-learn's bundled images of digits, one epoch at a time.

    shoestring run examples/digits.py:Digits --space examples/digits.toml --budget 30s --max-steps 40

The class can save and load its state, so a paused trial can resume in another process, and a killed study can continue.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

IMAGES, LABELS = load_digits(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(IMAGES / 16.0, LABELS, test_size=0.4, random_state=0)


class Digits:
    def __init__(self, config: dict[str, Any]) -> None:
        self.model = MLPClassifier(
            hidden_layer_sizes=(config["units"],) * config["layers"],
            activation=config["activation"],
            solver=config["solver"],
            learning_rate_init=config["lr"],
            momentum=config.get("momentum", 0.9),
            alpha=config["weight_decay"],
            batch_size=config["batch_size"],
            random_state=0,
        )

    def step(self) -> None:
        """Make one pass over the training images."""
        self.model.partial_fit(TRAIN_X, TRAIN_Y, classes=np.arange(10))

    def validate(self) -> float:
        """Return the share of wrong answers on the validation images; inf if the weights have diverged."""
        if not np.isfinite(self.model.loss_):
            return float("inf")
        return 1.0 - self.model.score(VALID_X, VALID_Y)

    def save(self, path: Path) -> None:
        joblib.dump(self.model, path)

    def load(self, path: Path) -> None:
        self.model = joblib.load(path)
