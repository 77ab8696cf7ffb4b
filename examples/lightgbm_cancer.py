"""Tune LightGBM on scikit-learn's breast cancer data, with ten rounds in each step."""

from __future__ import annotations

from typing import Any

import lightgbm
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from shoestring import Float, Int, tune
from shoestring.integrations.boosting import lightgbm_steps

X, Y = load_breast_cancer(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(X, Y, test_size=0.4, random_state=0)


def loss(booster: lightgbm.Booster) -> float:
    return float(log_loss(VALID_Y, booster.predict(VALID_X)))


def train(config: dict[str, Any], context: Any) -> Any:
    data = lightgbm.Dataset(TRAIN_X, TRAIN_Y, free_raw_data=False)
    parameters = {"objective": "binary", "bagging_freq": 1, "num_threads": 1, **config}
    yield from lightgbm_steps(parameters, data, loss, context, rounds=10)


if __name__ == "__main__":
    space = {
        "learning_rate": Float(0.01, 0.5, log=True),
        "num_leaves": Int(2, 32, log=True),
        "bagging_fraction": Float(0.4, 1.0),
        "feature_fraction": Float(0.4, 1.0),
    }
    study = tune(train, space, budget="60 epochs", max_steps=10, seed=1, store="lightgbm.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
