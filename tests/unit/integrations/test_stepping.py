"""A blocking `fit()` as a generator: order, values, random generators, endings and errors; no framework is needed."""

from __future__ import annotations

import gc
import random
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoestring import Context, Report
from shoestring.integrations.stepping import Steps, stepwise
from shoestring.runners.training.code import EndOfTraining, LiveTrial
from shoestring.testing.resuming import check_resuming, train_in_one_piece, train_in_pieces


class Framework:
    """A framework with its own loop: it draws from the global generators, and calls back after each epoch."""

    def __init__(self, seed: int) -> None:
        random.seed(seed)
        np.random.seed(seed)
        self.weight, self.epoch = random.random() + np.random.normal(), 0

    def fit(self, epochs: int, on_start: Callable[[], Any], on_epoch_end: Callable[[float], Any]) -> None:
        random.random()  # frameworks draw random numbers during their setup
        on_start()
        while self.epoch < epochs:
            self.weight = 0.9 * self.weight + 0.1 * (random.gauss(0, 1) + np.random.normal())
            self.epoch += 1
            on_epoch_end(self.weight)


def train(config: dict[str, Any], context: Context, *, restore: bool = True) -> Iterator[Report]:
    def fit(steps: Steps) -> None:
        framework = Framework(config["seed"])
        if steps.checkpoint is not None:
            framework.weight = float((steps.checkpoint / "weight").read_text())
            framework.epoch = steps.done

        def save(folder: Path) -> None:
            (folder / "weight").write_text(repr(framework.weight))

        start = steps.restore_random if restore else lambda: None
        framework.fit(6, start, lambda weight: steps.report(weight, save))

    yield from stepwise(fit, context)


def train_without_restoring(config: dict[str, Any], context: Context) -> Iterator[Report]:
    yield from train(config, context, restore=False)


def whole_run(seed: int) -> list[float]:
    values: list[float] = []
    Framework(seed).fit(6, lambda: None, values.append)
    return values


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "shoestring-fit"]


def advance(live: LiveTrial) -> float | None:
    return live.advance(dict(live._context.config), 6, True).value


def test_the_steps_equal_those_of_the_whole_run() -> None:
    live = LiveTrial(train, {"seed": 1})
    assert [advance(live) for _ in range(6)] == whole_run(1)
    with pytest.raises(EndOfTraining):
        advance(live)
    assert threads() == []


def test_a_resumed_run_equals_the_whole_run(tmp_path: Path) -> None:
    values: list[float | None] = []
    checkpoint = None
    for step in (0, 2, 4):
        live = LiveTrial(train, {"seed": 1}, step, checkpoint)
        values += [advance(live), advance(live)]
        checkpoint = tmp_path / str(step)
        live.save(checkpoint)
        live.close()
        random.random()
    assert values == whole_run(1)


def test_the_saved_random_state_is_that_of_the_step(tmp_path: Path) -> None:
    live = LiveTrial(train, {"seed": 1})
    advance(live)
    random.seed(5)
    np.random.seed(5)
    live.save(tmp_path / "a")
    live.close()
    assert advance(LiveTrial(train, {"seed": 1}, 1, tmp_path / "a")) == whole_run(1)[1]
    gc.collect()


def test_trials_that_take_turns_do_not_disturb_each_other() -> None:
    lives = [LiveTrial(train, {"seed": seed}) for seed in (1, 2, 3)]
    rounds = [[advance(live) for live in lives] for _ in range(6)]
    assert [list(values) for values in zip(*rounds, strict=True)] == [whole_run(1), whole_run(2), whole_run(3)]
    for live in lives:
        live.close()


@pytest.mark.parametrize(("name", "same"), [("train", True), ("train_without_restoring", False)])
def test_the_resume_check_finds_a_run_without_its_random_state(name: str, same: bool, tmp_path: Path) -> None:
    assert check_resuming(f"{__file__}:{name}", {"seed": 1}, tmp_path).facts["same"] is same


def test_every_step_may_be_trained_in_its_own_process(tmp_path: Path) -> None:
    assert train_in_one_piece(f"{__file__}:train", {"seed": 1}, 6) == whole_run(1)
    assert train_in_pieces(f"{__file__}:train", {"seed": 1}, 6, 4, tmp_path) == whole_run(1)


# endings -----------------------------------------------------------------------------------------------------------------


def endless(steps: Steps) -> None:
    while True:
        steps.report(0.5)


def test_no_thread_starts_before_the_first_step() -> None:
    steps = stepwise(endless)
    assert threads() == []
    steps.close()  # type: ignore[attr-defined]


def test_closing_the_generator_ends_the_thread() -> None:
    steps = stepwise(endless)
    assert next(steps) == Report(0.5)
    assert len(threads()) == 1
    steps.close()  # type: ignore[attr-defined]
    assert threads() == []


def test_an_unused_generator_ends_its_thread() -> None:
    steps = stepwise(endless)
    next(steps)
    del steps
    gc.collect()
    assert threads() == []


def test_finally_blocks_of_the_framework_run() -> None:
    cleanups = []

    def fit(steps: Steps) -> None:
        try:
            endless(steps)
        finally:
            cleanups.append("cleaned")

    steps = stepwise(fit)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert cleanups == ["cleaned"]


def test_code_that_catches_every_error_ends_too() -> None:
    def fit(steps: Steps) -> None:
        for _ in range(3):
            try:
                steps.report(1.0)
            except BaseException:
                continue

    steps = stepwise(fit)
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert threads() == []


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Handle Ctrl-C as in a terminal; a shell starts background processes with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_step() -> None:
    begun = threading.Event()

    def fit(steps: Steps) -> None:
        steps.report(1.0)
        begun.set()
        while True:
            begun.wait(0.001)

    steps = stepwise(fit)
    next(steps)

    def interrupt() -> None:
        begun.wait()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        next(steps)
    assert threads() == []


# errors ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_an_error_of_the_training_code_keeps_its_traceback(kind: type[BaseException]) -> None:
    def explode() -> None:
        raise kind("the learning rate is negative")

    def fit(steps: Steps) -> None:
        steps.report(1.0)
        explode()

    steps = stepwise(fit)
    next(steps)
    with pytest.raises(kind, match="the learning rate is negative") as caught:
        next(steps)
    assert "explode" in "".join(traceback.format_exception(caught.value))
    assert threads() == []


def test_a_generator_is_finished_after_an_error() -> None:
    def fit(steps: Steps) -> None:
        raise ValueError("no")

    steps = stepwise(fit)
    with pytest.raises(ValueError, match="no"):
        next(steps)
    assert next(steps, None) is None


def test_a_value_that_is_no_number_is_an_error() -> None:
    with pytest.raises(TypeError, match="reported 'bad': str is not a number"):
        next(stepwise(lambda steps: steps.report("bad")))


# the argument of fit -------------------------------------------------------------------------------------------------------


def test_a_value_that_is_not_needed_may_be_none_and_the_config_is_current() -> None:
    calls = []

    def code(config: dict[str, Any], context: Context) -> Iterator[Report]:
        def fit(steps: Steps) -> None:
            while True:
                calls.append((config["x"], steps.should_validate))
                steps.report(1.0 if steps.should_validate else None, cost=2.5)

        yield from stepwise(fit, context)

    live = LiveTrial(code, {"x": 1})
    assert live.advance({"x": 1}, 9, True).value == 1.0
    result = live.advance({"x": 2}, 9, False)
    assert (result.value, result.cost.train, result.cost_reported) == (None, 2.5, True)
    live.close()
    assert calls == [(1, True), (2, False)]


def test_metrics_and_max_steps_are_passed_on() -> None:
    def train(config: Any, context: Context) -> Iterator[Report]:
        def fit(steps: Steps) -> None:
            for step in range(steps.done, steps.max_steps):
                steps.report(1.0, metrics={"step": step})

        yield from stepwise(fit, context)

    live = LiveTrial(train, {}, max_steps=2)
    assert [live.advance({}, 1, True).metrics for _ in range(2)] == [{"step": 0.0}, {"step": 1.0}]
    with pytest.raises(EndOfTraining):
        live.advance({}, 3, True)


def test_context_variables_are_visible_in_the_thread() -> None:
    precision = ContextVar("precision", default=1)
    precision.set(7)
    steps = stepwise(lambda steps: steps.report(precision.get()))
    assert next(steps).value == 7
    steps.close()  # type: ignore[attr-defined]
