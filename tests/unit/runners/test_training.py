"""Training code in its three shapes, as a live trial that advances step by step."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring.core.ledger.budget import MAX_SECONDS
from shoestring.errors import RunnerError
from shoestring.runners.training.code import Context, EndOfTraining, LiveTrial, Report, can_save, read_metrics, shape_of


def function(config: Any) -> float:
    return float(config["x"])


def generator(config: Any, context: Context) -> Iterator[Any]:
    for step in range(context.step, 3):
        yield Report(config["x"] + step, save=functools.partial(write, step))


def write(step: int, path: Path) -> None:
    path.write_text(str(step))


class Trainer:
    def __init__(self, config: Any) -> None:
        self.total = 0.0

    def step(self) -> float:
        self.total += 1.0
        return self.total

    def save(self, path: Path) -> None:
        path.write_text(str(self.total))

    def load(self, path: Path) -> None:
        self.total = float(path.read_text())


class Validating:
    validated = 0

    def __init__(self, config: Any, context: Context) -> None:
        self.context = context

    def step(self) -> str:
        return "not the value"

    def validate(self) -> float:
        Validating.validated += 1
        return 0.5


def test_the_shape_of_training_code_and_whether_it_can_save_are_recognised() -> None:
    assert [shape_of(t) for t in (function, generator, Trainer, functools.partial(generator, {}))] == [
        "function",
        "generator",
        "class",
        "generator",
    ]
    assert [can_save(t) for t in (function, generator, Trainer, Validating)] == [False, None, True, False]


class OnlySaves:
    def __init__(self, config: Any) -> None: ...
    def step(self) -> float:
        return 0.0

    def save(self, path: Path) -> None: ...


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (5, ["5 is not training code: give a function, a generator function or a class with step()"]),
        (object, ["object", "step()"]),
        (OnlySaves, ["OnlySaves", "only one of save(path) and load(path)", "add the other"]),
        (lambda: 1.0, ["takes 0 arguments: its arguments must be (config) or (config, context)"]),
        (lambda a, b, c: 1.0, ["takes 3 arguments"]),
    ],
)
def test_other_objects_are_not_training_code(target: Any, parts: list[str]) -> None:
    with pytest.raises(RunnerError) as caught:
        shape_of(target)
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize("target", [lambda *args: args[0]["x"], lambda c, scale=2: c["x"], lambda c, *, k=1: c["x"]])
def test_optional_arguments_are_not_filled(target: Any) -> None:
    assert LiveTrial(target, {"x": 1.5}).advance({"x": 1.5}, 1, True).value == 1.5


def test_a_function_is_one_step() -> None:
    live = LiveTrial(function, {"x": 2})
    result = live.advance({"x": 2}, 1, True)
    assert (result.value, live.step, live.can_save) == (2.0, 1, False)
    assert result.cost.train >= 0


def test_a_generator_is_suspended_between_steps_and_ends(tmp_path: Path) -> None:
    live = LiveTrial(generator, {"x": 1.0})
    assert live.can_save is None
    assert [live.advance({"x": 1.0}, 3, True).value for _ in range(3)] == [1.0, 2.0, 3.0]
    assert live.can_save
    live.save(tmp_path / "saved")
    assert (tmp_path / "saved").read_text() == "2"
    with pytest.raises(EndOfTraining):
        live.advance({"x": 1.0}, 4, True)
    assert live.step == 3
    assert not live.is_between_steps


def test_a_resumed_generator_gets_its_checkpoint_and_step(tmp_path: Path) -> None:
    live = LiveTrial(generator, {"x": 0.0}, step=2, checkpoint=tmp_path / "c")
    assert live.advance({"x": 0.0}, 3, True).value == 2.0
    assert (live.step, live.start_step) == (3, 2)


def test_the_context_is_kept_up_to_date() -> None:
    contexts = []

    def watching(config: Any, context: Context) -> Iterator[float]:
        while True:
            contexts.append((dict(config), context.step, context.until, context.should_validate, context.checkpoint))
            assert context.max_steps == 9
            yield 0.0

    live = LiveTrial(watching, {"x": 1}, max_steps=9)
    live.advance({"x": 1}, 2, False)
    live.advance({"x": 2}, 5, True)  # the config changes during training: the same dict has new values
    assert contexts == [({"x": 1}, 0, 2, False, None), ({"x": 2}, 1, 5, True, None)]


def test_a_class_saves_and_loads(tmp_path: Path) -> None:
    live = LiveTrial(Trainer, {})
    assert [live.advance({}, 2, True).value for _ in range(2)] == [1.0, 2.0]
    live.save(tmp_path / "t")
    again = LiveTrial(Trainer, {}, step=2, checkpoint=tmp_path / "t")
    result = again.advance({}, 3, True)
    assert result.value == 3.0
    assert result.cost.setup >= 0


def test_validate_is_called_only_for_steps_to_validate() -> None:
    Validating.validated = 0
    live = LiveTrial(Validating, {})
    assert [live.advance({}, 3, validate).value for validate in (True, False, True)] == [0.5, None, 0.5]
    assert Validating.validated == 2


@pytest.mark.parametrize(
    ("reported", "value"),
    [
        (1, 1.0),
        (None, None),
        (math.nan, math.nan),
        (np.float32(0.5), 0.5),
        (np.complex128(0.5), 0.5),
        (Report(3), 3.0),
    ],
)
def test_values_become_floats(reported: Any, value: float | None) -> None:
    result = LiveTrial(lambda config: reported, {}).advance({}, 1, True).value
    assert result == value or (value is not None and math.isnan(value) and result is not None and math.isnan(result))


@pytest.mark.parametrize(
    "reported",
    ["good", "0.25", b"0.25", np.str_("1"), True, np.complex128(1 + 2j), [1, 2], {"loss": 1}, 1j, 10**400, object()],
)
def test_values_that_are_not_numbers_are_refused(reported: Any) -> None:
    live = LiveTrial(lambda config: reported, {})
    with pytest.raises(TypeError, match="report a number, None or a Report"):
        live.advance({}, 1, True)
    assert (live.step, live.is_between_steps) == (0, False)


def test_costs_may_be_reported() -> None:
    result = LiveTrial(lambda config: Report(1.0, cost=2.5), {}).advance({}, 1, True).cost
    assert (result.setup, result.train, result.validate) == (0.0, 2.5, 0.0)
    result = LiveTrial(lambda config: Report(1.0, cost={"setup": 1, "validate": 3}), {}).advance({}, 1, True).cost
    assert (result.setup, result.train, result.validate) == (1, 0.0, 3)


@pytest.mark.parametrize("cost", [-1, math.nan, math.inf, {"train": -1}, {"gpu": 3}])
def test_wrong_costs_are_refused(cost: Any) -> None:
    rule = f"must be seconds from 0 to {MAX_SECONDS:g}, or such seconds for setup, train and validate"
    with pytest.raises(ValueError, match=re.escape(f"the reported cost {cost!r} {rule}")):
        LiveTrial(lambda config: Report(1.0, cost=cost), {}).advance({}, 1, True)


def test_closing_a_generator_that_raises_is_not_an_error() -> None:
    def refuse_to_end(config: Any) -> Iterator[float]:
        try:
            yield 1.0
        finally:
            raise RuntimeError("not like this")

    live = LiveTrial(refuse_to_end, {})
    live.advance({}, 1, True)
    live.close()


@pytest.mark.parametrize(
    ("metrics", "stored"),
    [
        (None, {}),
        ({}, {}),
        ({"acc": 1, "loss": np.float32(0.5), "gap": math.inf}, {"acc": 1.0, "loss": 0.5, "gap": math.inf}),
    ],
)
def test_metrics_become_floats(metrics: Any, stored: dict[str, float]) -> None:
    assert read_metrics(metrics) == stored


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ([0.9], "the reported metrics [0.9] must be a mapping of names to numbers"),
        ({1: 0.9}, "the metric 1 must have a name of 1 to 100 characters"),
        ({"": 0.9}, "must have a name"),
        ({"n" * 101: 0.9}, "must have a name"),
        ({"acc": "0.9"}, "the metric 'acc' is '0.9': report a number"),
        ({"acc": None}, "the metric 'acc' is None: report a number"),
        ({"acc": 10**400}, "report a number"),
        ({"acc": np.zeros(2)}, "report a number"),
        ({str(n): 0.0 for n in range(101)}, "101 metrics were reported: at most 100"),
    ],
)
def test_wrong_metrics_are_refused_in_one_line(metrics: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        read_metrics(metrics)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_metrics_are_in_the_result_of_a_step() -> None:
    def train(config: Any) -> Iterator[Report]:
        yield Report(1.0, metrics={"acc": 0.9})

    assert LiveTrial(train, {}).advance({}, 1, True).metrics == {"acc": 0.9}
