"""Boosting with sampled rows, columns and dropped trees: in steps, and by plain continuation, which resumes wrongly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import catboost
import lightgbm
import xgboost
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss

from shoestring import Context, Report
from shoestring.integrations.boosting import catboost_steps, lightgbm_steps, xgboost_steps

STEPS = 6
X, Y = load_breast_cancer(return_X_y=True)
WORDS = [[f"{a:.0f}", f"{b:.0f}", c] for a, b, c in X[:, :3]]
TRAIN_X, TRAIN_Y, VALID_X, VALID_Y = X[:300], Y[:300], X[300:], Y[300:]
LIGHT = {"objective": "binary", "num_leaves": 15, "num_threads": 1, "bagging_fraction": 0.7, "bagging_freq": 1}
LIGHT |= {"feature_fraction": 0.7, "feature_fraction_bynode": 0.7}
EXTREME = {"objective": "binary:logistic", "max_depth": 4, "nthread": 1, "subsample": 0.7}
EXTREME |= {"colsample_bytree": 0.7, "colsample_bynode": 0.7}
CAT = {"loss_function": "Logloss", "depth": 4, "thread_count": 1, "rsm": 0.7, "subsample": 0.7}
CAT |= {"bootstrap_type": "Bernoulli"}


def light(config: dict[str, Any], context: Context) -> Iterator[Report]:
    data = lightgbm.Dataset(TRAIN_X, TRAIN_Y, free_raw_data=False)
    yield from lightgbm_steps({**LIGHT, **config}, data, _light_loss, context, rounds=5)


def light_continued(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Continue the same booster in memory, with one seed for all steps."""
    data = lightgbm.Dataset(TRAIN_X, TRAIN_Y, free_raw_data=False)
    parameters = {**LIGHT, **config, "seed": 1, "verbose": -1}
    if context.checkpoint is not None:
        data = lightgbm.Dataset(TRAIN_X, TRAIN_Y, free_raw_data=False)
        before = lightgbm.Booster(model_file=str(context.checkpoint))
        booster = lightgbm.train(parameters, data, 0, init_model=before, keep_training_booster=True)
    else:
        booster = lightgbm.Booster(parameters, data)
    while True:
        for _ in range(5):
            booster.update()
        yield Report(_light_loss(booster), save=lambda path: booster.save_model(str(path)))


def _light_loss(booster: Any) -> float:
    return float(log_loss(VALID_Y, booster.predict(VALID_X)))


def extreme(config: dict[str, Any], context: Context) -> Iterator[Report]:
    data = xgboost.DMatrix(TRAIN_X, TRAIN_Y)
    yield from xgboost_steps({**EXTREME, **config}, data, _extreme_loss, context, rounds=5)


def extreme_continued(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Continue the same booster in memory; after it is read from a file, its rounds are counted from 0 again."""
    data = xgboost.DMatrix(TRAIN_X, TRAIN_Y)
    booster = xgboost.Booster({**EXTREME, **config, "seed": 1}, [data])
    if context.checkpoint is not None:
        booster.load_model(context.checkpoint / "b.ubj")

    def save(path: Path) -> None:
        path.mkdir()
        booster.save_model(path / "b.ubj")

    rounds = 0
    while True:
        for _ in range(5):
            booster.update(data, rounds)
            rounds += 1
        yield Report(_extreme_loss(booster), save=save)


def _extreme_loss(booster: Any) -> float:
    return float(log_loss(VALID_Y, booster.predict(xgboost.DMatrix(VALID_X))))


def cat(config: dict[str, Any], context: Context) -> Iterator[Report]:
    yield from catboost_steps({**CAT, **config}, catboost.Pool(TRAIN_X, TRAIN_Y), _cat_loss, context, rounds=5)


def cat_words(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Train with categorical columns, which CatBoost encodes itself."""
    pool = catboost.Pool(WORDS[:300], TRAIN_Y, cat_features=[0, 1])

    def loss(model: Any) -> float:
        return float(log_loss(VALID_Y, model.predict(WORDS[300:], prediction_type="Probability")))

    yield from catboost_steps({**CAT, **config}, pool, loss, context, rounds=5)


def cat_continued(config: dict[str, Any], context: Context) -> Iterator[Report]:
    """Continue from the model in memory, which keeps more than it saves."""
    model = None if context.checkpoint is None else catboost.CatBoost().load_model(str(context.checkpoint))
    step = context.step
    while True:
        step += 1
        parameters = {
            **CAT,
            **config,
            "iterations": 5,
            "random_seed": step,
            "verbose": False,
            "allow_writing_files": False,
        }
        grown = catboost.CatBoost(parameters)
        grown.fit(catboost.Pool(TRAIN_X, TRAIN_Y), init_model=model)
        model = grown
        yield Report(_cat_loss(grown), save=lambda path, model=grown: model.save_model(str(path)))


def _cat_loss(model: Any) -> float:
    return float(log_loss(VALID_Y, model.predict(VALID_X, prediction_type="Probability")))
