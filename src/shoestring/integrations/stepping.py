"""A blocking `fit()` with callbacks becomes a generator of steps.

A framework owns its loop and calls you back; shoestring wants to hold the loop and ask for one step at a time. So `fit`
runs in a thread that rests inside its own callback until the next step is bought:

    def train(config, context):
        def fit(steps):
            model = build(config, weights=steps.checkpoint / "weights" if steps.checkpoint else None)
            told = {"epochs": steps.max_steps, "first_epoch": steps.done}
            model.fit(**told, callback=lambda loss: steps.report(loss, save=write))

        yield from stepwise(fit, context)

`save(folder)` writes into a folder that exists. The random generators are kept beside it, and every trial has its own: they are
taken when a trial rests and put back when it goes on, so that trials which take turns in one process do not disturb each
other. A thawed trial calls `steps.restore_random()` where its checkpoint was taken, after the framework has built everything.
"""

from __future__ import annotations

import contextvars
import ctypes
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shoestring.runners.training.code import Context, Report
from shoestring.runners.training.random_state import RandomState

Save = Callable[[Path], Any]  # writes into a folder that exists
_RANDOM = "random.npz"
_PATIENCE_S = 5.0  # for a thread that was told to end in its callback, before it is cut off wherever it is


class _EndOfTraining(BaseException):
    """Raised inside `fit` when nobody wants its next step. Not an Exception: training code must not take it for one."""


class Steps:
    """What `fit` is given: where to begin, and whom to tell about a finished step."""

    def __init__(self, context: Context | None) -> None:
        self.context = context
        self.checkpoint = None if context is None else context.checkpoint  # a folder, None: start from nothing
        self.done = 0 if context is None else context.step  # steps that the checkpoint holds
        self.max_steps = 1 if context is None else context.max_steps  # of a full training: what schedules go by
        # What `fit` says: a step is done, it failed, or (None) it came to its end.
        self._news: queue.SimpleQueue[Report | BaseException | None] = queue.SimpleQueue()
        self._may_go_on: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._is_over = False

    @property
    def should_validate(self) -> bool:
        """Whether the value of the coming step was bought; if not, None may be reported."""
        return self.context is None or self.context.should_validate

    def report(
        self, value: Any, save: Save | None = None, cost: Any = None, metrics: Mapping[str, Any] | None = None
    ) -> None:
        """A step is done. Comes back when the next one is wanted; called from the thread that `fit` runs in.

        `cost` and `metrics` are those of a `Report`.
        """
        if self._is_over:
            raise _EndOfTraining
        random_state = RandomState.take()
        number = None if value is None else float(value)
        self._news.put(Report(number, cost, None if save is None else _save_with(save, random_state), metrics))
        if not self._may_go_on.get():
            self._is_over = True
            raise _EndOfTraining
        random_state.put_back()

    def restore_random(self) -> None:
        """Put the random generators where they stood when the checkpoint was taken; without one, nothing happens."""
        if self.checkpoint is not None:
            RandomState.load(self.checkpoint / _RANDOM).put_back()


def stepwise(fit: Callable[[Steps], Any], context: Context | None = None) -> Iterator[Report]:
    """The reports of `fit(steps)`, one at a time; `fit` rests in between, and ends when the generator is closed."""
    steps = Steps(context)
    thread = threading.Thread(  # it sees the context variables that are set here
        target=contextvars.copy_context().run, args=(_run, fit, steps), name="shoestring-fit", daemon=True
    )
    is_in_a_step = True
    try:
        thread.start()
        while isinstance(news := steps._news.get(), Report):
            is_in_a_step = False
            yield news
            is_in_a_step = True
            steps._may_go_on.put(True)
        is_in_a_step = False
        if news is not None:
            raise news
    finally:
        news = None  # an error holds this frame, which must not hold the error
        _end(thread, steps, is_in_a_step)


def _run(fit: Callable[[Steps], Any], steps: Steps) -> None:
    """What the thread does."""
    end: BaseException | None = None
    try:
        fit(steps)
    except _EndOfTraining:
        return
    except BaseException as error:
        end = error
    steps._news.put(end)


def _end(thread: threading.Thread, steps: Steps, is_in_a_step: bool) -> None:
    """Let the thread end: from its callback where it rests there; wherever it is when Ctrl-C came in a step."""
    steps._is_over = True
    steps._may_go_on.put(False)
    if not is_in_a_step and thread.ident is not None:
        thread.join(_PATIENCE_S)
    if thread.is_alive() and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(_EndOfTraining))
        thread.join(_PATIENCE_S)


def _save_with(save: Save, random_state: RandomState) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.mkdir(parents=True)
        save(path)
        random_state.save(path / _RANDOM)

    if hasattr(save, "resume"):  # what it declares about resuming
        write.resume = save.resume  # type: ignore[attr-defined]
    return write
