"""The shortest study: a training loop that yields its validation loss, a space, a budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from shoestring import Float, Space, tune

X, Y = load_digits(return_X_y=True)
X_TRAIN, X_VALID, Y_TRAIN, Y_VALID = train_test_split(X / 16, Y, random_state=0)


def train(config: dict[str, Any]) -> Iterator[float]:
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=config["lr"], alpha=config["l2"], random_state=0
    )
    while True:
        model.partial_fit(X_TRAIN, Y_TRAIN, classes=range(10))
        yield 1.0 - model.score(X_VALID, Y_VALID)


if __name__ == "__main__":
    space = Space({"lr": Float(1e-4, 10.0, log=True), "l2": Float(1e-7, 1e-1, log=True)})
    study = tune(train, space, budget="200 epochs", max_steps=20, seed=1)
    print(f"error {study.best.value:.4f} with {study.best.config}, for {study.spent:.0f} epochs")
