"""Options that are objects in a study: training code and Python users have the objects, the ledger and reports the texts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shoestring import Choice, Float, Space, Study, Trial, tune
from shoestring.cli.main import cli
from shoestring.errors import SpaceError, StudyError


class Square:
    def __init__(self, centre: float) -> None:
        self.centre = centre

    def __repr__(self) -> str:
        return f"Square({self.centre})"

    def at(self, x: float) -> float:
        return (x - self.centre) ** 2


def identity(x: float) -> float:
    return x


def space(centre: float = 0.5) -> Space:
    return Space(
        {
            "x": Float(0.0, 1.0),
            "shape": Choice([(8,), (8, 8)]),
            "model": Choice([Square(0.1), Square(centre)]),
            "activation": Choice([identity, None]),
        }
    )


def train(config: Any) -> Iterator[float]:
    assert type(config["shape"]) is tuple
    assert config["activation"] in (identity, None)
    for step in range(3):
        yield config["model"].at(config["x"]) + len(config["shape"]) / (1 + step)


@pytest.mark.parametrize("workers", [1, 2])
def test_training_code_and_results_have_the_objects(tmp_path: Path, workers: int) -> None:
    seen: list[Any] = []

    def watch(study: Study, trial: Trial) -> None:
        seen.append(trial.config["shape"])

    wanted = space()
    models = wanted.parameters["model"].options  # type: ignore[union-attr]
    first = {"x": 0.2, "shape": (8, 8), "model": models[1], "activation": identity}
    study = tune(
        train,
        wanted,
        "12 epochs",
        max_steps=3,
        seed=1,
        workers=workers,
        store=f"sqlite:///{tmp_path}/s.db",
        initial=[first],
        callbacks=[watch],
    )
    assert study.spent == 12
    assert study.best is not None
    assert study.best.config["model"] in models
    assert study.trials[0].config == first
    assert study.explain(0).config == first
    assert {type(shape) for shape in seen} == {tuple}
    assert [trial.config["shape"] for trial in study.trials] == [trial.config["shape"] for trial in study.trials[:]]
    stored = study.ledger.trials[0].config
    assert stored == {"x": 0.2, "shape": "(8, 8)", "model": "Square(0.5)", "activation": "identity"}
    assert not any(trial.failure for trial in study.trials)

    shown = CliRunner().invoke(cli, ["status", "--store", f"{tmp_path}/s.db", "--json"], catch_exceptions=False)
    assert json.loads(shown.stdout)["best"]["config"] == dict(study.ledger.best.config)  # type: ignore[union-attr]
    page = tmp_path / "report.html"
    assert CliRunner().invoke(cli, ["report", "--store", f"{tmp_path}/s.db", "-o", str(page)]).exit_code == 0
    assert "Square(0.5)" in page.read_text()


def test_a_changed_object_is_an_error_that_names_it(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    begun = tune(train, space(), "6 epochs", max_steps=3, seed=1, store=store)
    again = tune(train, space(), "9 epochs", max_steps=3, store=store)
    assert (again.spent, len(again.trials)) >= (9, len(begun.trials))
    with pytest.raises(
        StudyError, match=r"option 1 of model was Square\(0.5\) \(Square\), not Square\(0.6\) \(Square\)"
    ):
        tune(train, space(0.6), "12 epochs", max_steps=3, store=store)


def test_an_opened_study_shows_texts_and_trains_only_what_it_has(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/s.db"
    study = tune(train, space(), "6 epochs", max_steps=3, seed=1, store=store, name="objects")
    opened = Study.open("objects", store)
    assert opened.best is not None
    assert study.best is not None
    assert opened.best.config["shape"] == study.best.config["shape"]
    assert opened.best.config["model"] == repr(study.best.config["model"])
    with pytest.raises(
        SpaceError, match=r"the option identity of activation is a Python object \(function\), .* give the space again"
    ):
        opened.run(train)

    shapes = Space({"shape": Choice([(8,), (8, 8)])})
    tune(len_of_shape, shapes, "1 epochs", seed=1, store=store, name="shapes")
    opened = Study.open("shapes", store)
    opened.amend(opened_budget())
    opened.run(len_of_shape)
    assert sorted(trial.config["shape"] for trial in opened.trials) == [(8,), (8, 8)]


def len_of_shape(config: Any) -> float:
    assert type(config["shape"]) is tuple
    return float(len(config["shape"]))


def opened_budget() -> Any:
    from shoestring import Amendment, Budget

    return Amendment(budget=Budget("2 epochs"))


def test_ask_and_retrain_give_objects() -> None:
    study = Study.begin(space(), "3 epochs", seed=2, max_steps=3)
    order = study.ask()
    assert order is not None
    assert isinstance(order.config["model"], Square)
    with contextlib.suppress(StopIteration):
        for value in train(order.config):
            study.tell(order, value)
            if order.number not in study.ledger.open_orders:
                break
    study.enqueue({"x": 0.1, "shape": [8], "model": study.trials[0].config["model"], "activation": None})
    assert study.ledger.queue[0]["shape"] == "(8,)"
    assert study.retrain_best(train).is_same
