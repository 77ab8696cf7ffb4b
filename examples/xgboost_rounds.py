"""Tune gradient boosting where one step is ten rounds, resumed from a saved booster.

    pip install xgboost-cpu scikit-learn
    shoestring run examples/xgboost_rounds.py:train --space examples/xgboost_rounds.toml --budget "60 epochs" --max-steps 10

A generator that can be frozen to disk: it yields a Report with a `save` function, and loads `context.checkpoint` first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from shoestring import Context, Report

ROUNDS_A_STEP = 10
X, Y = load_breast_cancer(return_X_y=True)
X_TRAIN, X_VALID, Y_TRAIN, Y_VALID = train_test_split(X, Y, test_size=0.4, random_state=0)
TRAIN, VALID = xgboost.DMatrix(X_TRAIN, Y_TRAIN), xgboost.DMatrix(X_VALID, Y_VALID)


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    parameters = {"objective": "binary:logistic", "eval_metric": "logloss", "seed": 0, "nthread": 1, **config}
    booster = xgboost.Booster(parameters, [TRAIN])
    if context.checkpoint is not None:
        booster.load_model(str(context.checkpoint / "booster.json"))

    def save(path: Any) -> None:
        path.mkdir()
        booster.save_model(str(path / "booster.json"))

    while True:
        booster = xgboost.train(parameters, TRAIN, num_boost_round=ROUNDS_A_STEP, xgb_model=booster)
        loss = float(booster.eval(VALID).rpartition(":")[2])
        yield Report(loss, save=save)
