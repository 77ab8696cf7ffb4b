"""XGBoost in steps of some rounds.

    def train(config, context):
        data, valid = xgboost.DMatrix(X, y), xgboost.DMatrix(VALID_X)
        parameters = {"objective": "binary:logistic", "subsample": 0.7, **config}
        loss = lambda booster: log_loss(VALID_Y, booster.predict(valid))
        yield from xgboost_steps(parameters, data, loss, context, rounds=10)

Parameters may be a function of the step (from 1), for a learning rate that falls over the `max_steps` of the study, or for a
config that changes on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoestring.integrations.needs import need
from shoestring.integrations.rounds import Parameters, grow_in_steps, parameters_at
from shoestring.runners.training import Context, Report

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
