"""Training code in its three Python shapes, behind one small interface: a live trial that advances step by step.

    def objective(config): return loss                     a trial of one step
    def train(config): … yield loss                        a generator; suspended between two steps, it is a paused trial
    class Trainer: step(), save(path), load(path)          can be saved to disk and resumed in another process

A generator can be saved to disk too: it yields `Report(loss, save=function_of_a_path)`, and when it is started again its context
names the checkpoint to load. Each shape may take a second argument, the `Context`. A class may have `validate()` beside
`step()`; it is called only for the steps that are to be validated.

Code that cannot continue exactly where it stopped declares it: `resume = "inexact"` in the class, `train.resume = "inexact"` on
a function, or the same on the `save` of a report. The resume check then records a difference without a warning.
"""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from shoestring.core.ledger.budget import MAX_SECONDS
from shoestring.core.ledger.entries import Cost
from shoestring.core.space.space import Config, Space
from shoestring.core.values.checks import to_number
from shoestring.core.values.text import show_value
from shoestring.errors import RunnerError

Shape = Literal["function", "generator", "class"]
RAISED = (Exception, SystemExit, GeneratorExit)  # what training code may raise; KeyboardInterrupt comes from the user
MAX_METRICS, MAX_NAME_CHARS = 100, 100  # metrics per step, and characters of a name: they are stored with every step


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a step, for training code that reports more than a number. Yield or return it instead of the loss.

    Parameters
    ----------
    value : float or None
        The value of the step; None if it was not validated.
    cost : float or mapping or None
        Seconds, or a mapping with the keys "setup", "train" and "validate". None: the time is measured.
    save : callable or None
        Called as `save(path)`; writes the present state to a path that does not exist yet.
    metrics : mapping or None
        More numbers by name, stored with the step. They are neither charged nor used for decisions.

    Examples
    --------
    >>> def train(config, context):
    ...     weight = float(context.checkpoint.read_text()) if context.checkpoint else 1.0
    ...     for step in range(context.step, context.max_steps):
    ...         weight -= config["lr"] * weight
    ...         yield Report(weight**2, save=lambda path: path.write_text(repr(weight)))
    """

    value: float | None = None
    cost: float | Mapping[str, float] | None = None
    save: Callable[[Path], Any] | None = None
    metrics: Mapping[str, float] | None = None


@dataclass(slots=True)
class Context:
    """The second argument of training code: the state of its trial. It is updated before each step.

    Attributes
    ----------
    config : dict
        The configuration of the next step. It is the same dict as the first argument; online policies change it.
    step : int
        The number of steps done; above 0 at the start if the trial resumes from `checkpoint`.
    until : int
        The last step that is ordered so far.
    max_steps : int
        The number of steps of a full training, for learning-rate schedules.
    should_validate : bool
        Whether the next step is to be validated; if not, None may be reported.
    checkpoint : Path or None
        The checkpoint to load at the start, if any.
    trial : int
        The number of the trial, from 0.
    """

    config: Config
    step: int = 0
    until: int = 1
    max_steps: int = 1
    should_validate: bool = True
    checkpoint: Path | None = None
    trial: int = 0


@dataclass(frozen=True, slots=True)
class StepResult:
    """The checked result of one step."""

    value: float | None
    cost: Cost
    cost_reported: bool = False  # the training code reported the cost; otherwise it was measured
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CodeWithObjects:
    """Training code with the space whose options it gets as objects; configs of the ledger have their texts."""

    code: Any
    space: Space


class EndOfTraining(Exception):
    """The training code ended before the ordered step."""


def shape_of(target: Any) -> Shape:
    """Return the shape of training code; raise an error that says what is missing if it has none of the three."""
    target = plain_code(target)
    if inspect.isclass(target):
        if not callable(getattr(target, "step", None)):
            raise RunnerError(f"the class {target.__name__} has no step(): add one that trains one step")
        if callable(getattr(target, "save", None)) != callable(getattr(target, "load", None)):
            raise RunnerError(f"the class {target.__name__} has only one of save(path) and load(path): add the other")
    elif not callable(target):
        raise RunnerError(
            f"{target!r} is not training code: give a function, a generator function or a class with step()"
        )
    _arity(target)
    if inspect.isclass(target):
        return "class"
    return "generator" if inspect.isgeneratorfunction(target) else "function"


def plain_code(target: Any) -> Any:
    """Return the training code as the user wrote it."""
    return target.code if isinstance(target, CodeWithObjects) else target


def can_save(target: Any) -> bool | None:
    """Return whether this code can save its trials to disk; None for a generator, whose first report shows it."""
    shape = shape_of(target)
    return None if shape == "generator" else shape == "class" and hasattr(plain_code(target), "save")


def resumes_exactly(*declared: Any) -> bool:
    """Return False if one of these, training code or its `save`, declares `resume = "inexact"`."""
    return not any(getattr(one, "resume", None) == "inexact" for one in declared)


class LiveTrial:
    """One trial in the memory of this process, after `step` steps."""

    def __init__(
        self,
        target: Any,
        config: Config,
        step: int = 0,
        checkpoint: Path | None = None,
        max_steps: int = 1,
        trial: int = 0,
    ) -> None:
        self._space = target.space if isinstance(target, CodeWithObjects) else None
        target = plain_code(target)
        self.step = self.start_step = step
        self.is_between_steps = True  # False after an exception: the state in memory then belongs to no step
        self.unsaved_s = 0.0  # training time that would be lost with this process
        self.can_save: bool | None = can_save(target)
        self.is_exact = resumes_exactly(target)
        self._context = Context(
            self._with_objects(config), step=step, max_steps=max_steps, checkpoint=checkpoint, trial=trial
        )
        self._shape = shape_of(target)
        self._arguments = (self._context.config, self._context)[: _arity(target)]
        self._target = target
        self._iterator: Iterator[Any] | None = None
        self._trainer: Any = None
        self._save: Callable[[Path], Any] | None = None

    def advance(self, config: Config, until: int, validate: bool) -> StepResult:
        """Train one more step and return its result; raise EndOfTraining, or whatever the training code raises."""
        context = self._context
        context.config.clear()  # type: ignore[attr-defined]
        context.config.update(self._with_objects(config))  # type: ignore[attr-defined]  # the same dict that the training code has
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
            # An exception at its end belongs to no step.
            with contextlib.suppress(Exception, GeneratorExit, SystemExit):
                self._iterator.close()  # type: ignore[attr-defined]

    def _with_objects(self, config: Config) -> dict[str, Any]:
        return dict(config) if self._space is None else self._space.with_objects(config)

    def _next(self) -> Any:
        if self._iterator is None:
            self._iterator = self._target(*self._arguments)
        try:
            return next(self._iterator)
        except StopIteration:
            raise EndOfTraining from None

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
    """Return the number of arguments to call the code with: 2 if it takes the context, else 1."""
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
        raise RunnerError(f"{name} takes {len(needed)} arguments: its arguments must be (config) or (config, context)")
    return min(len(positional), 2)


def number_of(value: Any) -> float | None:
    """Return a reported value as the ledger stores it."""
    if value is None:
        return None
    try:
        return to_number(value)
    except TypeError as error:
        raise TypeError(
            f"the training code reported {show_value(value)}: {error}; report a number, None or a Report"
        ) from None


def read_cost(cost: float | Mapping[str, float]) -> Cost:
    """Return a reported cost as a `Cost`; raise a ValueError if it is not valid."""
    parts = dict(cost) if isinstance(cost, Mapping) else {"train": float(cost)}
    unknown = set(parts) - {"setup", "train", "validate"}
    if unknown or not all(0 <= seconds <= MAX_SECONDS for seconds in parts.values()):
        raise ValueError(
            f"the reported cost {cost!r} must be seconds from 0 to {MAX_SECONDS:g}, or such seconds for setup, train and validate"
        )
    return Cost(**parts)


def read_metrics(metrics: Any) -> dict[str, float]:
    """Return reported metrics as the ledger stores them; they may be nan or infinite."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"the reported metrics {show_value(metrics)} must be a mapping of names to numbers, as in {{'accuracy': 0.9}}"
        )
    if len(metrics) > MAX_METRICS:
        raise ValueError(f"{len(metrics)} metrics were reported: at most {MAX_METRICS} are stored with a step")
    return {_metric_name(name): _metric(name, value) for name, value in metrics.items()}


def _metric_name(name: Any) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS:
        raise TypeError(f"the metric {show_value(name)} must have a name of 1 to {MAX_NAME_CHARS} characters")
    return name


def _metric(name: str, value: Any) -> float:
    with contextlib.suppress(TypeError):
        return float(value) if isinstance(value, bool) else to_number(value)
    raise TypeError(f"the metric {name!r} is {show_value(value)}: report a number")


def load_trainer(kind: Any, config: Config, step: int, checkpoint: Path, max_steps: int) -> Any:
    """Return an instance of a training class that has loaded the checkpoint of `step`."""
    context = Context(config=dict(config), step=step, until=step, max_steps=max_steps, checkpoint=checkpoint)
    trainer = kind(*(context.config, context)[: _arity(kind)])
    trainer.load(checkpoint)
    return trainer
