"""Tune gradient boosting: a step is ten rounds, and a trial resumes from a saved booster.

pip install xgboost-cpu scikit-learn
shoestring run examples/xgboost_rounds.py:train --space examples/xgboost_rounds.toml --budget "60 epochs" --max-steps 10
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

from shoestring import Context, Report
from shoestring.integrations.boosting import xgboost_steps

X, Y = load_breast_cancer(return_X_y=True)
X_TRAIN, X_VALID, Y_TRAIN, Y_VALID = train_test_split(X, Y, test_size=0.4, random_state=0)
TRAIN, VALID = xgboost.DMatrix(X_TRAIN, Y_TRAIN), xgboost.DMatrix(X_VALID)


def loss(booster: xgboost.Booster) -> float:
    return float(log_loss(Y_VALID, booster.predict(VALID)))


def train(config: dict[str, Any], context: Context) -> Iterator[Report]:
    parameters = {"objective": "binary:logistic", "nthread": 1, **config}
    yield from xgboost_steps(parameters, TRAIN, loss, context, rounds=10)
