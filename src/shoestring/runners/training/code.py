"""Training code in its three Python shapes, behind one small interface: a live trial that advances step by step.

    def objective(config): return loss                     a trial of one step
    def train(config): … yield loss                        a generator: paused between steps, it *is* the frozen run
    class Trainer: step(), save(path), load(path)          can be frozen to disk and thawed in another process

A generator can be frozen to disk too: it yields `Report(loss, save=function_of_a_path)`, and when it is started again its
context names the checkpoint to load. Each shape may take a second argument, the `Context`. A class may have `validate()`
beside `step()`; it is then called only for steps whose validation was bought.

Code that cannot go on exactly where it stopped says so: `resume = "inexact"` in the class, `train.resume = "inexact"` on a
function, or the same on the `save` of a report. The resume check then notes the difference without an alarm.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shoestring.core.ledger.budget import MOST_SECONDS
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config
from shoestring.errors import RunnerError

Shape = Literal["function", "generator", "class"]
RAISED = (Exception, SystemExit, GeneratorExit)  # what training code may end with by itself; Ctrl-C is the user's
MOST_METRICS, LONGEST_NAME = 100, 100  # they are stored with every step


@dataclass(frozen=True, slots=True)
class Report:
    """What a step may give back when a bare number is not enough."""

    value: float | None = None
    cost: float | Mapping[str, float] | None = None  # seconds, or {"setup", "train", "validate"}; None: measured
    save: Callable[[Path], Any] | None = None  # writes this very state to a path that does not exist yet
    metrics: Mapping[str, float] | None = (
        None  # numbers by name to be kept beside the value; never charged or decided on
    )


@dataclass(slots=True)
class Context:
    """What training code may want to know. It is kept up to date while the trial goes on."""

    config: Config  # of the coming step; the same dict as the first argument, changed where a run is tuned as it goes
    step: int = 0  # steps done so far; above 0 at the start when the trial is thawed from `checkpoint`
    until: int = 1  # the last step that is paid for by now
    max_steps: int = 1  # of a full training: what a schedule is made for, whatever is paid for by now
    should_validate: bool = True  # whether the value of the coming step was bought; if not, None may be reported
    checkpoint: Path | None = None  # load from here first, when not None


@dataclass(frozen=True, slots=True)
class StepResult:
    value: float | None
    cost: Cost
    cost_reported: bool = False  # by the training code, not by a clock
    metrics: Mapping[str, float] = field(default_factory=dict)


class Ended(Exception):
    """The training code came to its own end before the step that was asked for."""


def shape_of(target: Any) -> Shape:
    """Which of the three shapes this is; an error that says what is missing if it is none."""
    if inspect.isclass(target):
        if not callable(getattr(target, "step", None)):
            raise RunnerError(f"the class {target.__name__} has no step(): give it one that trains one step")
        if callable(getattr(target, "save", None)) != callable(getattr(target, "load", None)):
            raise RunnerError(f"the class {target.__name__} has only one of save(path) and load(path): give it both")
    elif not callable(target):
        raise RunnerError(
            f"{target!r} is not training code: give a function, a generator function or a class with step()"
        )
    _arity(target)
    if inspect.isclass(target):
        return "class"
    return "generator" if inspect.isgeneratorfunction(target) else "function"


def can_save(target: Any) -> bool | None:
    """Whether trials of this code can be frozen to disk; a generator tells with its first report."""
    shape = shape_of(target)
    return None if shape == "generator" else shape == "class" and hasattr(target, "save")


def resumes_exactly(*declared: Any) -> bool:
    """Unless one of these, training code or a `save` of it, has `resume = "inexact"`."""
    return not any(getattr(one, "resume", None) == "inexact" for one in declared)


class Live:
    """One trial that is alive in this process, at `step`."""

    def __init__(
        self, target: Any, config: Config, step: int = 0, checkpoint: Path | None = None, max_steps: int = 1
    ) -> None:
        self.step = self.thawed_at = step
        self.is_between_steps = True  # not so after an exception: what is in memory is then the state of no step
        self.unsaved_s = 0.0  # spent on what would go with this process
        self.can_save: bool | None = can_save(target)
        self.is_exact = resumes_exactly(target)
        self._context = Context(config=dict(config), step=step, max_steps=max_steps, checkpoint=checkpoint)
        self._shape = shape_of(target)
        self._arguments = (self._context.config, self._context)[: _arity(target)]
        self._target = target
        self._iterator: Iterator[Any] | None = None
        self._trainer: Any = None
        self._save: Callable[[Path], Any] | None = None

    def advance(self, config: Config, until: int, validate: bool) -> StepResult:
        """Train one more step. Raises Ended, or whatever the training code raises."""
        context = self._context
        context.config.clear()  # type: ignore[attr-defined]
        context.config.update(config)  # type: ignore[attr-defined]  # the same dict that the code holds
        context.step, context.until, context.should_validate = self.step, until, validate
        self.is_between_steps = False
        began = time.perf_counter()
        if self._shape == "class":
            result = self._step_trainer(began, validate)
        else:
            raw = self._target(*self._arguments) if self._shape == "function" else self._next()
            result = self._read(raw, Cost(train=time.perf_counter() - began))
        self.step += 1
        self.is_between_steps = True
        self.unsaved_s += time.perf_counter() - began
        return result

    def save(self, path: Path) -> None:
        save = self._trainer.save if self._shape == "class" else self._save
        assert save is not None
        save(path)
        self.unsaved_s = 0.0

    def close(self) -> None:
        if self._iterator is not None:
            # What it does at its end is nobody's receipt.
            with contextlib.suppress(Exception, GeneratorExit, SystemExit):
                self._iterator.close()  # type: ignore[attr-defined]

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = self._target(*self._arguments)
        try:
            return next(self._iterator)
        except StopIteration:
            raise Ended from None

    def _step_trainer(self, began: float, validate: bool) -> StepResult:
        if self._trainer is None:
            self._trainer = self._target(*self._arguments)
            if self._context.checkpoint is not None:
                self._trainer.load(self._context.checkpoint)
        ready = time.perf_counter()
        raw = self._trainer.step()
        trained = time.perf_counter()
        if hasattr(self._trainer, "validate"):
            raw = self._trainer.validate() if validate else None
        cost = Cost(setup=ready - began, train=trained - ready, validate=time.perf_counter() - trained)
        return self._read(raw, cost)

    def _read(self, raw: Any, measured: Cost) -> StepResult:
        report = raw if isinstance(raw, Report) else Report(raw)
        if self._shape == "generator":
            self._save = report.save
            self.can_save = report.save is not None
            self.is_exact = resumes_exactly(self._target, report.save)
        value, metrics = number_of(report.value), read_metrics(report.metrics)
        if report.cost is None:
            return StepResult(value, measured, metrics=metrics)
        return StepResult(value, read_cost(report.cost), cost_reported=True, metrics=metrics)


def _arity(target: Any) -> int:
    """1 or 2: whether the code takes the context too."""
    try:
        parameters = list(inspect.signature(target).parameters.values())
    except ValueError:  # built-ins without a signature
        return 1
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    needed = [p for p in positional if p.default is p.empty]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    if not positional or len(needed) > 2:
        name = getattr(target, "__name__", repr(target))
        raise RunnerError(f"{name} takes {len(needed)} arguments: it must take (config) or (config, context)")
    return min(len(positional), 2)


def number_of(value: Any) -> float | None:
    """What was reported, as the ledger keeps it."""
    if value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise TypeError(f"the training code reported {value!r}: report a number, None or a Report") from None


def read_cost(cost: float | Mapping[str, float]) -> Cost:
    parts = dict(cost) if isinstance(cost, Mapping) else {"train": float(cost)}
    unknown = set(parts) - {"setup", "train", "validate"}
    if unknown or not all(0 <= seconds <= MOST_SECONDS for seconds in parts.values()):
        raise ValueError(
            f"the reported cost {cost!r} must be seconds >= 0, below {MOST_SECONDS:g}, alone or by setup, train and validate"
        )
    return Cost(**parts)


def read_metrics(metrics: Any) -> dict[str, float]:
    """Numbers by name, as the ledger keeps them; they may be nan or infinite."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"the reported metrics {_short(metrics)} must be numbers by name, as in {{'accuracy': 0.9}}")
    if len(metrics) > MOST_METRICS:
        raise ValueError(f"{len(metrics)} metrics were reported: at most {MOST_METRICS} are kept with a step")
    return {_metric_name(name): _metric(name, value) for name, value in metrics.items()}


def _metric_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise TypeError(f"the metric {_short(name)} must have a text of 1 to {LONGEST_NAME} characters for its name")
    return name


def _metric(name: str, value: Any) -> float:
    if not isinstance(value, str | bytes):  # float() would read these too
        with contextlib.suppress(TypeError, ValueError, OverflowError, RuntimeError):
            return float(value)
    raise TypeError(f"the metric {name!r} is {_short(value)}: report a number")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def load_trainer(kind: Any, config: Config, step: int, checkpoint: Path, max_steps: int) -> Any:
    """An instance of a training class as it was after `step`."""
    context = Context(config=dict(config), step=step, until=step, max_steps=max_steps, checkpoint=checkpoint)
    trainer = kind(*(context.config, context)[: _arity(kind)])
    trainer.load(checkpoint)
    return trainer
