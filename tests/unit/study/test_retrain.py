"""Training the best trial again, and loading the best checkpoint: both return the model."""

from __future__ import annotations

import itertools
import math
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from shoestring import Choice, Float, OnlineTuner, Report, Space, Study, tune
from shoestring.core.ledger.entries import Cost, Order, Receipt
from shoestring.errors import RunnerError, StudyError, TrainingFailed
from shoestring.runners.command.command_runner import CommandRunner
from shoestring.runners.training.targets import resolve
from shoestring.stores.in_memory import MemoryStore

SPACE = Space({"x": Float(0.0, 1.0)})


def descend(config: Any) -> Iterator[float]:
    weight = 5.0
    for step in range(9):
        weight -= config["x"] * weight
        yield (weight - 1.0) ** 2 + 0.01 * step


class Trainer:
    def __init__(self, config: Any, context: Any) -> None:
        self.x, self.weight, self.steps = config["x"], 5.0, 0

    def step(self) -> float:
        self.weight -= self.x * self.weight
        self.steps += 1
        return (self.weight - 1.0) ** 2


class Saving(Trainer):
    def save(self, path: Path) -> None:
        path.write_text(repr((self.weight, self.steps)))

    def load(self, path: Path) -> None:
        self.weight, self.steps = eval(path.read_text())


# training again ------------------------------------------------------------------------------------------------------


def test_a_generator_is_returned_paused_at_its_best_step() -> None:
    study = tune(descend, SPACE, "60 epochs", max_steps=9, seed=1)
    assert study.best is not None
    before = study.ledger.entries()
    reported: list[tuple[int, float | None]] = []
    again = study.retrain_best(descend, on_step=lambda step, value: reported.append((step, value)))
    assert again.is_same
    assert again.value == again.recorded == study.best.value
    assert again.cost == study.best.step == len(reported)
    assert reported[-1] == (study.best.step, study.best.value)
    weight = again.variables["weight"]
    assert (weight - 1.0) ** 2 + 0.01 * (study.best.step - 1) == study.best.value
    assert next(again.trainer) != again.value  # it is alive: one more step can be trained
    assert study.ledger.entries() == before  # nothing is charged
    assert again.study.name == "study-best"


def test_an_instance_of_the_class_is_returned() -> None:
    study = tune(Trainer, SPACE, "40 epochs", max_steps=9, seed=1)
    assert study.best is not None
    again = study.retrain_best(Trainer)
    assert type(again.trainer) is Trainer
    assert again.trainer.steps == study.best.step
    assert (again.trainer.weight - 1.0) ** 2 == study.best.value
    assert pickle.loads(pickle.dumps(again.trainer)).weight == again.trainer.weight
    assert again.variables == {}


def test_a_function_has_only_its_value() -> None:
    study = tune(lambda config: config["x"], SPACE, "9 epochs", seed=1)
    again = study.retrain_best(lambda config: config["x"])
    assert (again.is_same, again.trainer, again.cost) == (True, None, 1.0)


def test_a_different_value_gives_a_warning() -> None:
    values = itertools.count(1)  # another value at each step, as from random numbers without a seed

    def noisy(config: Any) -> Iterator[float]:
        while True:
            yield 1.0 / next(values)

    study = tune(noisy, SPACE, "9 epochs", max_steps=3, seed=1)
    with pytest.warns(
        UserWarning,
        match=r"trained again, step \d of trial \d has the value .*, not the recorded .*set its random seeds",
    ):
        again = study.retrain_best(noisy)
    assert not again.is_same


def test_code_that_fails_now_raises() -> None:
    def broken(config: Any) -> Iterator[float]:
        raise OSError("the data is gone")
        yield 1.0

    study = tune(descend, SPACE, "20 epochs", max_steps=9, seed=1)
    with pytest.raises(TrainingFailed, match=r"'study-best' .*OSError: the data is gone"):
        study.retrain_best(broken)


def test_code_that_ends_before_the_best_step_raises() -> None:
    def short(config: Any) -> Iterator[float]:
        yield 1.0

    study = tune(descend, Space({"x": Float(0.01, 0.02)}), "9 epochs", max_steps=9, policy="random_search")
    assert study.best is not None
    assert study.best.step == 9
    with pytest.warns(UserWarning, match="unspent"), pytest.raises(StudyError, match="ended before step 9"):
        study.retrain_best(short)


def test_a_study_without_a_best_trial_raises() -> None:
    study = Study.begin(SPACE, "9 epochs")
    for call in (study.retrain_best, study.retrain_cost):
        with pytest.raises(StudyError, match="'study' has no best trial"):
            call()


def test_a_config_that_changed_is_repeated_step_by_step() -> None:
    tuner = OnlineTuner(
        Space({"rate": Choice([0.1, 0.5, 0.9])}), 12, store=MemoryStore(), seed=1, policy="epsilon_greedy"
    )
    weight = 5.0
    while (config := tuner.next()) is not None:
        weight -= config["rate"] * weight
        if tuner.should_validate:
            tuner.tell(weight)
    assert len({config["rate"] for config in tuner.schedule().configs}) > 1

    def train(config: Any) -> Iterator[float]:
        weight = 5.0
        while True:
            weight -= config["rate"] * weight
            yield weight

    again = tuner.study.retrain_best(train)
    assert again.is_same
    assert math.isclose(again.value, weight, rel_tol=1e-12)


def test_only_recorded_validation_passes_are_repeated() -> None:
    class Counting:
        validated: ClassVar[list[int]] = []

        def __init__(self, config: Any) -> None:
            self.steps = 0

        def step(self) -> None:
            self.steps += 1

        def validate(self) -> float:
            self.validated.append(self.steps)
            return 10.0 - self.steps

    study = Study.begin(SPACE, "9 epochs", max_steps=5, policy="random_search")
    study.journal.append(
        Order(number=0, trial=0, config={"x": 0.5}, until=2, validate="none"),
        Receipt(order=0, trial=0, step=1),
        Receipt(order=0, trial=0, step=2),
        Order(number=1, trial=0, config={"x": 0.7}, until=4, validate="last"),
        Receipt(order=1, trial=0, step=3),
        Receipt(order=1, trial=0, step=4, value=6.0),
    )
    assert study.retrain_best(Counting).is_same
    assert Counting.validated == [4]


def test_the_cost_is_in_the_unit_of_the_budget() -> None:
    for budget, cost in (("9 epochs", "2 epochs"), ("90s", "7.5 s"), ("$9 at 3600/h", "$7.50")):
        study = Study.begin(SPACE, budget, max_steps=3, policy="random_search")
        study.journal.append(
            Order(number=0, trial=0, config={"x": 0.5}, until=3),
            Receipt(order=0, trial=0, step=1, value=2.0, cost=Cost(setup=2.0, train=3.0)),
            Receipt(order=0, trial=0, step=2, value=1.0, cost=Cost(train=2.5)),
            Receipt(order=0, trial=0, step=3, value=1.5, cost=Cost(train=50.0)),  # beyond the best
        )
        assert study.retrain_cost() == cost


# without naming the code ---------------------------------------------------------------------------------------------


def test_a_study_of_the_command_line_needs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("again.py").write_text("def train(config):\n    while True:\n        yield config['x']\n")
    target = {"kind": "python", "where": "again.py:train"}
    study = Study.begin(SPACE, "9 epochs", max_steps=3, seed=1, target=target)
    study.run(resolve("again.py:train"))
    assert study.retrain_best().is_same
    sys.modules.pop("again", None)


def test_a_program_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["sh", "-c", "echo '{\"value\": {x}}'"]
    study = Study.begin(SPACE, "4 epochs", seed=1, target={"kind": "command", "where": words})
    study.run(CommandRunner(words, study.ledger.space, Path(study.checkpoints), 1))
    again = study.retrain_best()
    assert again.is_same
    assert again.trainer is None


def test_a_study_of_python_needs_its_code_and_a_table_has_none() -> None:
    study = tune(descend, SPACE, "9 epochs", max_steps=9)
    with pytest.raises(
        StudyError, match=r"begun from Python: pass the training code again, as study.retrain_best\(train\)"
    ):
        study.retrain_best()
    table = Study.begin(SPACE, "9 epochs", target={"kind": "table", "where": "t.npz"})
    table.journal.append(
        Order(number=0, trial=0, config={"x": 0.5}, until=1), Receipt(order=0, trial=0, step=1, value=2.0)
    )
    with pytest.raises(StudyError, match="simulated on a table"):
        table.retrain_best()


# loading -------------------------------------------------------------------------------------------------------------


def test_a_class_that_can_save_is_loaded(tmp_path: Path) -> None:
    study = tune(Saving, SPACE, "40 epochs", max_steps=9, seed=1, store=tmp_path / "s.db")  # type: ignore[arg-type]
    assert study.best is not None
    model = study.best.load(Saving)
    assert type(model) is Saving
    assert (model.steps, (model.weight - 1.0) ** 2) == (study.best.step, study.best.value)
    assert study.best.load() == study.best.checkpoint
    with pytest.raises(RunnerError, match=r"Trainer has no load\(path\): give the class that saved"):
        study.best.load(Trainer)


def test_a_generator_loads_its_checkpoint_itself(tmp_path: Path) -> None:
    def saving(config: Any) -> Iterator[Report]:
        for step in range(3):
            yield Report(config["x"] + step, save=lambda path, step=step: path.write_text(str(step)))  # type: ignore[misc]

    study = tune(saving, SPACE, "9 epochs", max_steps=3, store=f"sqlite:///{tmp_path}/s.db")
    assert study.best is not None
    assert study.best.load(saving).read_text() == "0"


def test_a_missing_checkpoint_raises_with_a_remedy() -> None:
    study = tune(descend, SPACE, "9 epochs", max_steps=9)
    assert study.best is not None
    with pytest.raises(StudyError, match=r"has no checkpoint: study.retrain_best\(train\) trains it again"):
        study.best.load(descend)
