"""CatBoost in steps of some rounds.

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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shoestring.integrations.needs import need
from shoestring.integrations.rounds import Parameters, grow_in_steps, parameters_at
from shoestring.runners.training import Context, Report


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
