"""Ctrl-C and `study.stop` from Python: the run ends in order, and no configuration is blamed for them."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoestring import Float, Space, Study, tune
from shoestring.core.ledger.entries import Receipt, StateLoss
from shoestring.core.space.space import Config
from shoestring.runners.simulated.simulated_runner import SimulatedRunner, StepOutcome
from shoestring.testing.curves import DecayingCurves

SPACE = Space({"x": Float(0.1, 1.0)})
BAD = 1e6


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Handle Ctrl-C as in a terminal, and check that every test leaves the handler as it was."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


class Code:
    """Training code of five steps; `at_step` is called within the step that is the `count`-th of all."""

    def __init__(self, count: int, at_step: Any) -> None:
        self.left, self.at_step = count, at_step

    def __call__(self, config: Any) -> Iterator[float]:
        for step in range(5):
            self.left -= 1
            value = config["x"] / (step + 1)
            yield value if self.left else self.at_step(value)

    def train(self, config: Any) -> Iterator[float]:
        yield from self(config)


def press(value: float) -> float:
    signal.raise_signal(signal.SIGINT)
    return value


def run(at_step: Any, count: int = 7, **options: Any) -> Study:
    return tune(
        Code(count, at_step).train, SPACE, "30 epochs", max_steps=5, seed=1, **{"policy": "random_search", **options}
    )


def finish(study: Study) -> list[list[float | None]]:
    """Continue the study to its end and return all values."""
    assert study.run(Code(0, None).train).reason == "budget"
    return [trial.values for trial in study.trials]


def whole() -> list[list[float | None]]:
    return [trial.values for trial in run(None, count=0).trials]


def test_the_first_ctrl_c_finishes_the_step_and_returns_the_study(capfd: pytest.CaptureFixture[str]) -> None:
    study = run(press, store=None)
    assert study.ending is not None
    assert study.ending.reason == "stopped"
    assert study.spent == 7  # with the step during which it was pressed
    said = capfd.readouterr().err
    assert "stopping after this step; press Ctrl-C again to stop at once" in said
    assert "was stopped by Ctrl-C: spent 7 epochs of 30 epochs; " in said
    assert finish(study) == whole()


def test_the_last_line_says_how_a_stored_study_continues(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = run(press, store=f"{tmp_path}/mine.db", name="n", progress=False)
    assert f"the same call with store='{tmp_path}/mine.db' and name='n' continues it" in capfd.readouterr().err
    again = tune(Code(0, None).train, SPACE, "30 epochs", max_steps=5, store=f"{tmp_path}/mine.db", name="n")
    assert again.spent == 30
    assert study.spent == 7


def test_the_last_line_says_that_a_study_is_only_in_memory(capfd: pytest.CaptureFixture[str]) -> None:
    study = Study.begin(SPACE, "30 epochs", max_steps=5)
    assert study.run(Code(7, press).train).reason == "stopped"
    assert "it is only in memory: pass store='file.db' to keep it" in capfd.readouterr().err


def test_code_that_catches_ctrl_c_is_not_interrupted_by_the_first() -> None:
    """As scikit-learn's MLP, which then ends its training early and returns as if it were trained."""

    def swallow(value: float) -> float:
        try:
            return press(value)
        except KeyboardInterrupt:
            return BAD

    study = run(swallow)
    assert study.spent == 7
    assert finish(study) == whole()


def test_a_second_ctrl_c_raises_and_the_study_continues_later(tmp_path: Path) -> None:
    def press_twice(value: float) -> float:
        return press(press(value))

    with pytest.raises(KeyboardInterrupt):
        run(press_twice, store=f"{tmp_path}/s.db")
    study = Study.open(store=f"{tmp_path}/s.db")
    assert study.spent == 6
    assert finish(study) == whole()


def test_a_second_ctrl_c_that_the_code_catches_raises_after_the_step(tmp_path: Path) -> None:
    def press_and_swallow(value: float) -> float:
        press(value)
        try:
            return press(value)
        except KeyboardInterrupt:
            return BAD

    with pytest.raises(KeyboardInterrupt):
        run(press_and_swallow, store=f"{tmp_path}/s.db")
    study = Study.open(store=f"{tmp_path}/s.db")
    assert study.spent == 6  # what the code reported after it had caught Ctrl-C is not recorded
    assert finish(study) == whole()


@pytest.mark.parametrize("error", [RuntimeError("a child process was killed"), KeyboardInterrupt()])
def test_a_step_that_fails_after_ctrl_c_is_trained_again(error: BaseException) -> None:
    """Ctrl-C also reaches the processes that training code has started."""

    def fail(value: float) -> float:
        press(value)
        raise error

    study = run(fail)
    assert study.ending is not None
    assert study.ending.reason == "stopped"
    assert not any(trial.failure for trial in study.trials)
    assert not any(entry.status == "failed" for entry in study.ledger.entries() if isinstance(entry, Receipt))
    assert finish(study) == whole()


def test_the_time_of_a_step_that_failed_after_ctrl_c_is_charged() -> None:
    def fail(value: float) -> float:
        press(value)
        time.sleep(0.05)
        raise RuntimeError("a child process was killed")

    study = tune(Code(7, fail).train, SPACE, "1h", max_steps=5, seed=1, policy="random_search")
    (lost,) = [entry for entry in study.ledger.entries() if isinstance(entry, StateLoss)]
    assert lost.seconds >= 0.05
    assert study.spent >= 0.05


def test_worker_processes_are_interrupted() -> None:
    study = Study.begin(SPACE, "10m", workers=2, policy="random_search")
    caller = threading.main_thread().ident or 0

    def press_when_training() -> None:
        while len(study.ledger.open_orders) < 2:
            time.sleep(0.01)
        signal.pthread_kill(caller, signal.SIGINT)

    thread = threading.Thread(target=press_when_training)
    thread.start()
    began = time.monotonic()
    assert study.run(sleep_long).reason == "stopped"
    assert time.monotonic() - began < 60
    thread.join()
    assert len(study.ledger.open_orders) == 2


def sleep_long(config: Any) -> float:
    time.sleep(100)
    return 1.0


# stop ----------------------------------------------------------------------------------------------------------------


def test_stop_ends_the_present_run(capfd: pytest.CaptureFixture[str]) -> None:
    study = Study.begin(SPACE, "30 epochs", max_steps=5, seed=1, policy="random_search")
    study.stop()  # without a run it does nothing

    def stop(value: float) -> float:
        thread = threading.Thread(target=study.stop)
        thread.start()
        thread.join()
        return value

    assert study.run(Code(7, stop).train).reason == "stopped"
    assert study.spent == 7
    assert capfd.readouterr() == ("", "")
    assert finish(study) == whole()


# hosts that handle signals themselves ------------------------------------------------------------------------------------


def test_a_handler_of_the_host_stays_in_place() -> None:
    pressed: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: pressed.append(number))
    try:
        study = run(press)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert pressed == [signal.SIGINT]
    assert study.spent == 30


def test_the_handler_of_an_event_loop_stays_in_place() -> None:
    handlers: list[Any] = []

    def look(value: float) -> float:
        handlers.append(signal.getsignal(signal.SIGINT))
        return value

    async def main() -> None:
        handlers.append(signal.getsignal(signal.SIGINT))
        run(look)

    asyncio.run(main())
    assert handlers[0] == handlers[1] != signal.default_int_handler


def test_a_run_in_another_thread_handles_no_signals() -> None:
    handlers: list[Any] = []

    def look(value: float) -> float:
        handlers.append(signal.getsignal(signal.SIGINT))
        return value

    studies: list[Study] = []
    thread = threading.Thread(target=lambda: studies.append(run(look)))
    thread.start()
    thread.join()
    assert studies[0].spent == 30
    assert handlers == [signal.default_int_handler]


def test_ctrl_c_ends_a_simulation_at_once() -> None:
    """Programs simulate hundreds of studies, and Ctrl-C should end the program."""

    class Pressed(DecayingCurves):
        def step(self, config: Config, step: int) -> StepOutcome | None:
            signal.raise_signal(signal.SIGINT)
            return super().step(config, step)

    study = Study.begin(SPACE, "4 epochs", policy="random_search")
    with pytest.raises(KeyboardInterrupt):
        study.run(SimulatedRunner(Pressed()))
