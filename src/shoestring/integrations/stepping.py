"""Turn a blocking `fit()` with callbacks into a generator of steps.

A framework runs its own training loop and calls callbacks, but shoestring needs to order one step at a time. So `fit` runs in a
thread that waits inside its own callback until the next step is ordered:

    def train(config, context):
        def fit(steps):
            model = build(config, weights=steps.checkpoint / "weights" if steps.checkpoint else None)
            model.fit(epochs=steps.max_steps, first_epoch=steps.done, callback=lambda loss: steps.report(loss, save=write))

        yield from stepwise(fit, context)

`save(folder)` writes into a folder that exists. The state of the random generators is stored beside it. Every trial has its own
random state: it is saved when a trial pauses and restored when it continues, so trials that take turns in one process do not
disturb each other. A resumed trial calls `steps.restore_random()` at the point of training at which its checkpoint was written,
after the framework has built everything.
"""

from __future__ import annotations

import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shoestring.core.values.checks import to_number
from shoestring.errors import RunnerError, did_you_mean
from shoestring.runners.training.code import MAX_METRICS, MAX_NAME_CHARS, Context, Report, number_of
from shoestring.runners.training.random_state import RandomState

__all__ = ["Steps", "stepwise"]
Save = Callable[[Path], Any]  # writes into a folder that exists
_RANDOM_FILE = "random.npz"
_END_TIMEOUT_S = 5.0  # a thread that has not ended after this time is interrupted wherever it is


class _EndOfTraining(BaseException):
    """Raised inside `fit` when its next step is not needed. Not an Exception, so that training code does not catch it."""


class Steps:
    """The argument of `fit`: where to start, and how to report a finished step.

    Parameters
    ----------
    context : Context or None
        The second argument of the training code.

    Attributes
    ----------
    checkpoint : Path or None
        The folder to continue from; None at the start of a trial.
    done : int
        The number of steps that the checkpoint contains.
    max_steps : int
        The steps of a full training, for schedules that depend on its length.
    context : Context or None
        The second argument of the training code.
    """

    def __init__(self, context: Context | None) -> None:
        self.context = context
        self.checkpoint = None if context is None else context.checkpoint
        self.done = 0 if context is None else context.step
        self.max_steps = 1 if context is None else context.max_steps
        # From the thread of `fit`: the report of a step, an error, or None at the end of `fit`.
        self._events: queue.SimpleQueue[Report | BaseException | None] = queue.SimpleQueue()
        self._may_continue: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_over = False

    @property
    def should_validate(self) -> bool:
        """Whether the next step needs a value; if not, None may be reported."""
        return self.context is None or self.context.should_validate

    def report(
        self, value: Any, save: Save | None = None, cost: Any = None, metrics: Mapping[str, Any] | None = None
    ) -> None:
        """Report a finished step, and wait until the next one is ordered. Call it from the thread that runs `fit`.

        Parameters
        ----------
        value : float or None
            The value of the step; None if it was not validated.
        save : callable, optional
            `save(folder)` writes a checkpoint into a folder that exists.
        cost : float or mapping, optional
            The cost of the step, as in `Report`.
        metrics : mapping, optional
            More numbers to store with the step, as in `Report`.
        """
        if self._is_over:
            raise _EndOfTraining
        random_state = RandomState.take()
        number = number_of(value)
        self._events.put(Report(number, cost, None if save is None else _save_with(save, random_state), metrics))
        if not self._may_continue.get():
            self._is_over = True
            raise _EndOfTraining
        random_state.restore()

    def restore_random(self) -> None:
        """Set the random generators to their state at the checkpoint; without a checkpoint, do nothing."""
        if self.checkpoint is not None:
            RandomState.load(self.checkpoint / _RANDOM_FILE).restore()


def stepwise(fit: Callable[[Steps], Any], context: Context | None = None) -> Iterator[Report]:
    """Run `fit` in a thread and yield its reports one at a time.

    `fit` waits between its steps, and ends when the generator is closed.

    Parameters
    ----------
    fit : callable
        `fit(steps)` trains and calls `steps.report` after each step.
    context : Context, optional
        The second argument of the training code.

    Yields
    ------
    Report
        One report for each step.
    """
    steps = Steps(context)
    thread = threading.Thread(  # it runs in a copy of the present context variables
        target=contextvars.copy_context().run, args=(_run, fit, steps), name="shoestring-fit", daemon=True
    )
    is_in_a_step = True
    try:
        thread.start()
        while isinstance(event := steps._events.get(), Report):
            is_in_a_step = False
            yield event
            is_in_a_step = True
            steps._may_continue.put(True)
        is_in_a_step = False
        if event is not None:
            raise event
    finally:
        event = None  # the error's traceback holds this frame; together they would be a reference cycle
        _end(thread, steps, is_in_a_step)


def _run(fit: Callable[[Steps], Any], steps: Steps) -> None:
    outcome: BaseException | None = None
    try:
        fit(steps)
    except _EndOfTraining:
        return
    except BaseException as error:
        outcome = error
    steps._events.put(outcome)


def _end(thread: threading.Thread, steps: Steps, is_in_a_step: bool) -> None:
    """End the thread: in its callback if it waits there; after Ctrl-C in the middle of a step, wherever it is."""
    steps._is_over = True
    steps._may_continue.put(False)
    if not is_in_a_step and thread.ident is not None:
        thread.join(_END_TIMEOUT_S)
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_EndOfTraining))
        thread.join(_END_TIMEOUT_S)


def _save_with(save: Save, random_state: RandomState) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.mkdir(parents=True)
        save(path)
        random_state.save(path / _RANDOM_FILE)

    if hasattr(save, "resume"):  # declares whether resuming is exact
        write.resume = save.resume  # type: ignore[attr-defined]
    return write


# the metrics that a framework has logged -----------------------------------------------------------------------------


def read_metric(name: str, logged: Mapping[str, Any], source: str) -> float:
    """Return the metric with this name, or raise an error that suggests another; `source` completes "the metrics that …"."""
    if name not in logged:
        raise RunnerError(f"there is no {name!r} among the metrics that {source}. {did_you_mean(name, logged)}")
    return to_number(logged[name])


def read_other_metrics(name: str, logged: Mapping[str, Any]) -> dict[str, float]:
    """Return all numbers except the metric `name`, at most as many as a step can store."""
    numbers = [
        other for other, value in logged.items() if other != name and _is_number(value) and len(other) <= MAX_NAME_CHARS
    ]
    return {other: to_number(logged[other]) for other in numbers[:MAX_METRICS]}


def _is_number(value: Any) -> bool:
    try:
        to_number(value)
    except TypeError:
        return False
    return True
