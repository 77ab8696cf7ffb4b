"""Ray's population-based training as the race drives it: Ray's own scheduler decides, on made-up losses."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks" / "race" / "peers"))
import drive_ray  # type: ignore[import-not-found]
import drive_ray_population as population  # type: ignore[import-not-found]

PARAMETERS = [
    {"name": "lr", "kind": "float", "low": 0.0, "high": 1.0, "log": False, "fixed": False},
    {"name": "penalty", "kind": "choice", "options": ["l1", "l2"], "fixed": False},
    {"name": "width", "kind": "int", "low": 1, "high": 64, "log": False, "fixed": True},
]


class Stopped(BaseException):
    pass


class Study:
    """Each step lowers the loss by the learning rate; a copy continues from the loss of its source."""

    method, max_steps, parameters, rows = "pbt", 20, PARAMETERS, None

    def __init__(self, steps: int) -> None:
        self.left = steps
        self.asked: list[SimpleNamespace] = []
        self.steps: dict[str, int] = {}
        self.losses: dict[str, float] = {}
        self.configs: dict[str, dict[str, Any]] = {}

    def train(self, trial: str, config: dict[str, Any], until: int, copy_of: str | None = None) -> list[float]:
        if self.left == 0:
            raise Stopped
        self.left -= 1
        assert until == self.steps.get(trial, 0) + 1
        if trial not in self.steps:
            self.losses[trial] = 100.0 if copy_of is None else self.losses[copy_of]
            self.configs[trial] = dict(config)
        assert self.configs[trial] == config  # a config does not change during training
        source_steps = self.steps.get(copy_of, 0) if copy_of else None
        self.asked.append(SimpleNamespace(trial=trial, copy_of=copy_of, config=dict(config), source_steps=source_steps))
        self.steps[trial] = until
        self.losses[trial] -= config["lr"]
        return [self.losses[trial]]


@pytest.fixture
def study() -> Study:
    random.seed(3)
    np.random.seed(3)  # Ray's generator
    found = Study(150)
    with pytest.raises(Stopped):
        drive_ray.run(found)
    return found


def test_the_worst_trials_become_copies_of_the_best_with_other_hyperparameters(study: Study) -> None:
    copies = [one for one in study.asked if one.copy_of is not None]
    assert len(copies) >= 3
    for one in copies:
        source = study.configs[one.copy_of]
        assert one.config["width"] == source["width"]  # parameters that shape the model are copied
        assert one.config != source
        rates = [config["lr"] for trial, config in study.configs.items() if "copy" not in trial]
        assert source["lr"] > min(rates)  # the trial with the lowest rate is never copied
        assert one.source_steps % population.INTERVAL == 0  # the copy starts at a checkpoint


def test_a_trial_and_its_copies_train_at_most_a_full_curve_and_then_a_new_population_begins(study: Study) -> None:
    copies = {one.trial: one for one in study.asked if one.copy_of is not None and study.steps[one.trial] >= 1}
    first = {one.trial: one for one in reversed(study.asked)}

    def length(trial: str) -> int:
        one = first[trial]
        before = length(one.copy_of) - (study.steps[one.copy_of] - one.source_steps) if one.copy_of else 0
        return before + study.steps[trial]

    assert copies
    assert max(length(trial) for trial in study.steps) <= study.max_steps
    assert {str(number) for number in range(2 * population.POPULATION)} <= set(study.steps)


def test_a_diverged_trial_costs_nothing_until_it_is_replaced() -> None:
    class Diverging(Study):
        def train(self, trial: str, config: dict[str, Any], until: int, copy_of: str | None = None) -> list[float]:
            if trial == "1" and until > 2:
                return []  # no step is trained
            losses = super().train(trial, config, until, copy_of)
            return [float("inf")] if trial == "1" and until == 2 else losses

    random.seed(0)
    np.random.seed(0)
    study = Diverging(40)
    with pytest.raises(Stopped):
        drive_ray.run(study)
    assert study.steps["1"] == 2
    assert any(one.trial.startswith("1 copy") for one in study.asked)
