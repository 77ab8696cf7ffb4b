"""Boosting in steps: each step grows the model of the step before by some rounds, with a seed of its own.

A booster that is simply continued has forgotten where its random generators stood, so rows, columns and dropped trees are
sampled otherwise than in a run without a stop. A step whose seed is its number depends on nothing but the model before it:
frozen or not, it is the same step. That makes it another (equally good) run than one long `train`, but always the same one.

XGBoost in steps of some rounds.

    def train(config, context):
        data, valid = xgboost.DMatrix(X, y), xgboost.DMatrix(VALID_X)
        parameters = {"objective": "binary:logistic", "subsample": 0.7, **config}
        loss = lambda booster: log_loss(VALID_Y, booster.predict(valid))
        yield from xgboost_steps(parameters, data, loss, context, rounds=10)

Parameters may be a function of the step (from 1), for a learning rate that falls over the `max_steps` of the study, or for a
config that changes on the way.

LightGBM in steps of some rounds.

    def train(config, context):
        data = lightgbm.Dataset(X, y, free_raw_data=False)
        parameters = {"objective": "binary", "bagging_fraction": 0.7, "bagging_freq": 1, **config}
        loss = lambda booster: log_loss(VALID_Y, booster.predict(VALID_X))
        yield from lightgbm_steps(parameters, data, loss, context, rounds=10)

Parameters may be a function of the step (from 1), for a learning rate that falls over the `max_steps` of the study, or for a
config that changes on the way.

CatBoost in steps of some rounds.

    def train(config, context):
        data = catboost.Pool(X, y, cat_features=[0, 3])
        parameters = {"loss_function": "Logloss", "rsm": 0.7, **config}
        loss = lambda model: log_loss(VALID_Y, model.predict(VALID_X, prediction_type="Probability"))
        yield from catboost_steps(parameters, data, loss, context, rounds=10)

A model that has just been trained goes on otherwise than the same model read from a file: it keeps more than it saves. So
every step begins from the saved form, frozen or not, and both ways give the same run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from shoestring.integrations.optional import need
from shoestring.runners.training.code import Context, Report

M = TypeVar("M")
Parameters = Mapping[str, Any] | Callable[[int], Mapping[str, Any]]  # of a step, counted from 1


def grow_in_steps(
    grow: Callable[[M | None, int], M],
    loss: Callable[[M], float],
    write: Callable[[M, Path], Any],
    read: Callable[[Path], M],
    context: Context,
) -> Iterator[Report]:
    """Reports without end: `grow(model, step)` makes the next model, of which None is the first one's predecessor."""
    model = None if context.checkpoint is None else read(context.checkpoint)
    step = context.step
    while True:
        step += 1
        model = grow(model, step)
        yield Report(loss(model) if context.should_validate else None, save=partial(write, model))


def parameters_at(parameters: Parameters, step: int, **defaults: Any) -> dict[str, Any]:
    """What this step is trained with: the user's own words over ours."""
    given = parameters(step) if callable(parameters) else parameters
    return {**defaults, **given}


_FILE = "booster.ubj"  # the ending names the format


def xgboost_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Steps of `rounds` each; `data` is a DMatrix."""
    xgboost = need("xgboost_steps", "xgboost", "xgboost")

    def grow(booster: Any, step: int) -> Any:
        return xgboost.train(parameters_at(parameters, step, seed=step), data, rounds, xgb_model=booster)

    def write(booster: Any, path: Path) -> None:
        path.mkdir(parents=True)
        booster.save_model(path / _FILE)

    return grow_in_steps(grow, loss, write, lambda path: xgboost.Booster(model_file=path / _FILE), context)


def lightgbm_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Steps of `rounds` each. `data` is a Dataset made with `free_raw_data=False`: each step looks at its rows again."""
    lightgbm = need("lightgbm_steps", "lightgbm", "lightgbm")

    def grow(booster: Any, step: int) -> Any:
        # Left alone, LightGBM chooses between two ways to count by which is quicker just now, and they round differently.
        told = parameters_at(parameters, step, seed=step, deterministic=True, force_col_wise=True, verbose=-1)
        return lightgbm.train(told, data, rounds, init_model=booster)

    def write(booster: Any, path: Path) -> None:
        booster.save_model(str(path))

    return grow_in_steps(grow, loss, write, lambda path: lightgbm.Booster(model_file=str(path)), context)


def catboost_steps(
    parameters: Parameters, data: Any, loss: Callable[[Any], float], context: Context, *, rounds: int = 10
) -> Iterator[Report]:
    """Steps of `rounds` each; `data` is a Pool, or whatever `fit` takes first."""
    catboost = need("catboost_steps", "catboost", "catboost")

    def read(path: Path) -> Any:
        return catboost.CatBoost().load_model(str(path))

    def write(model: Any, path: Path) -> None:
        model.save_model(str(path))

    def grow(model: Any, step: int) -> Any:
        told = parameters_at(parameters, step, random_seed=step, verbose=False, allow_writing_files=False)
        grown = catboost.CatBoost({**told, "iterations": rounds})
        grown.fit(data, init_model=model)
        with tempfile.TemporaryDirectory() as folder:
            write(grown, Path(folder) / "model.cbm")
            return read(Path(folder) / "model.cbm")

    return grow_in_steps(grow, loss, write, read, context)
