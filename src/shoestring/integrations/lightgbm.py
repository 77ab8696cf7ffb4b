"""LightGBM in steps of some rounds.

    def train(config, context):
        data = lightgbm.Dataset(X, y, free_raw_data=False)
        parameters = {"objective": "binary", "bagging_fraction": 0.7, "bagging_freq": 1, **config}
        loss = lambda booster: log_loss(VALID_Y, booster.predict(VALID_X))
        yield from lightgbm_steps(parameters, data, loss, context, rounds=10)

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
