"""Objectives without imports, so that a worker process starts quickly."""

from __future__ import annotations

from typing import Any


def build_layers(trial: Any) -> float:
    """The number of layers decides which parameters there are: minimize a score without training."""
    n_layers = trial.suggest_int("n_layers", 1, 3)
    units = [trial.suggest_int(f"n_units_l{i}", 4, 128, log=True) for i in range(n_layers)]
    dropouts = [trial.suggest_float(f"dropout_l{i}", 0.0, 0.6, step=0.1) for i in range(n_layers)]
    optimizer = trial.suggest_categorical("optimizer", ["adam", "sgd"])
    momentum = trial.suggest_float("momentum", 0.5, 0.99) if optimizer == "sgd" else 0.9
    return float(abs(sum(units) - 70) / 70 + sum(dropouts) + abs(momentum - 0.9))


def slow_start(trial: Any) -> float:
    """A curve that shows how often each step was trained."""
    x = trial.suggest_float("x", 0.0, 1.0)
    trial.set_user_attr("number", trial.number)
    value = 1.0
    for step in range(6):
        CALLS.append((trial.number, step))
        value = x + 1 / (1 + step)
        trial.report(value, step * 10)
    trial.set_user_attr("width", 3)
    return value


CALLS: list[tuple[int, int]] = []
