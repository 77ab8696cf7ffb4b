"""Tune CatBoost on scikit-learn's breast cancer data, with ten rounds in each step."""

from __future__ import annotations

from typing import Any

import catboost
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from shoestring import Float, Int, tune
from shoestring.integrations.boosting import catboost_steps

X, Y = load_breast_cancer(return_X_y=True)
TRAIN_X, VALID_X, TRAIN_Y, VALID_Y = train_test_split(X, Y, test_size=0.4, random_state=0)


def loss(model: catboost.CatBoost) -> float:
    return float(log_loss(VALID_Y, model.predict(VALID_X, prediction_type="Probability")))


def train(config: dict[str, Any], context: Any) -> Any:
    parameters = {"loss_function": "Logloss", "bootstrap_type": "Bernoulli", "thread_count": 1, **config}
    yield from catboost_steps(parameters, catboost.Pool(TRAIN_X, TRAIN_Y), loss, context, rounds=10)


if __name__ == "__main__":
    space = {"learning_rate": Float(0.01, 0.5, log=True), "depth": Int(2, 6), "subsample": Float(0.4, 1.0)}
    study = tune(train, space, budget="30 epochs", max_steps=6, seed=1, store="catboost.db")
    print(f"loss {study.best.value:.4f} with {study.best.config}")
