"""The winner trained once more, for code that cannot save: the same configs, steps and validation passes as recorded.

It is a small study of its own, in memory, so nothing is charged to the study that found the winner. What the training
leaves behind is handed back: the instance of a class, or the generator, paused after the best step with the model among
its variables. A value that differs from the recorded one says that training depends on more than its config.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Finish, Train, Validate
from shoestring.core.ledger.entries import Entry, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config
from shoestring.core.values import checks as arguments
from shoestring.errors import StudyError, warn
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner
from shoestring.runners.training.code import shape_of
from shoestring.study.run_code import conclude

if TYPE_CHECKING:
    from shoestring.study.study import Study

_END = object()
_SAME = 1e-6  # relative: more than the order of additions makes of a sum, less than another model


@dataclass(frozen=True)
class Retrained:
    """The winner once more: `study` is the small study that trained it, `cost` is in the unit of the first one's budget."""

    study: Study
    value: float
    recorded: float
    is_same: bool  # up to rounding
    cost: float
    trainer: Any = None  # the class's instance, or the paused generator; None for functions and other processes

    @property
    def variables(self) -> dict[str, Any]:
        """The local variables of the paused generator: the model is among them."""
        frame = getattr(self.trainer, "gi_frame", None)
        return {} if frame is None else dict(frame.f_locals)


@dataclass(frozen=True)
class Again:
    """Policy: the recorded purchases of one trial, up to its best step."""

    lines: tuple[tuple[Config, int, Validate], ...]
    name: ClassVar[str] = "again"

    @classmethod
    def of(cls, ledger: Ledger, trial: Trial) -> Again:
        lines: list[tuple[Config, int, Validate]] = []
        for number, steps in groupby(range(trial.best_step), lambda step: trial.step_orders[step]):
            order, until = ledger.orders[number], 1 + max(steps)
            is_cut_short = order.validate == "last" and until < order.until
            lines.append((order.config, until, "none" if is_cut_short else order.validate))
        return cls(tuple(lines))

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.trials and not ledger.trials[0].can_go_on:
            return Finish("the trial cannot go on")
        done = ledger.trials[0].steps if ledger.trials else 0
        for config, until, validate in self.lines:
            if until > done:
                return Train(trial=0, config=config, until=until, validate=validate)
        return Finish("the best step is reached")


def say_cost(study: Study) -> str:
    """What training the winner again costs, as far as its recorded steps tell."""
    winner = _winner(study)
    return study.ledger.budget.show(_price(study.ledger, winner.best_step, winner.step_costs[: winner.best_step]))


def retrain(
    study: Study,
    train: Any,
    *,
    runner: str | Runner | RayCluster | None,
    on_step: Callable[[int, float | None], Any] | None,
) -> Retrained:
    """See `Study.retrain_best`."""
    arguments.function("on_step", on_step, "on_step(step, value)")
    ledger, winner = study.ledger, _winner(study)
    recorded, last = winner.best_value, winner.best_step
    again = type(study).begin(
        ledger.space,
        f"{last} epochs",
        name=f"{study.name}-winner",
        max_steps=ledger.max_steps,
        direction=ledger.opened.direction,
        policy=Again.of(ledger, winner),
        seed=ledger.opened.seed,
    )

    def watch(newest: Ledger, entry: Entry | None) -> None:
        if on_step is not None and isinstance(entry, Receipt) and entry.is_finished:
            on_step(entry.step, entry.value)

    code = _find_code(ledger, Path(again.checkpoints)) if train is None else train
    kept: list[Any] = []
    if callable(code):
        if runner is None or (isinstance(runner, str) and runner == "local"):
            code = _keep_alive(code, kept)
        again.run(code, runner=runner, observe=watch, progress=False)
    else:
        conclude(again, again.run(code, observe=watch))
    value = again.trials[0].values[last - 1] if again.trials[0].steps >= last else None
    if value is None or recorded is None:
        raise StudyError(f"the training code ended before step {last}, where the study {study.name!r} was best")
    is_same = math.isclose(value, recorded, rel_tol=_SAME, abs_tol=_SAME**2)
    if not is_same:
        warn(
            f"trained again, step {last} of trial {winner.number} gave {value!r}, not the recorded {recorded!r}: "
            "training depends on more than its config; fix its seeds to have the same model again"
        )
    books = again.ledger.books
    trainer = kept[0] if kept else None
    return Retrained(again, value, recorded, is_same, _price(ledger, books.steps, [books.seconds]), trainer)


def _winner(study: Study) -> Trial:
    winner = study.ledger.best
    if winner is None:
        raise StudyError(f"the study {study.name!r} has no best trial to train again: no step of it has a value")
    return winner


def _price(ledger: Ledger, steps: int, seconds: list[float]) -> float:
    """In the unit of the budget."""
    rate = ledger.budget.per_second(ledger.workers)
    return float(steps) if ledger.budget.unit == "epochs" else rate * math.fsum(seconds)


def _find_code(ledger: Ledger, checkpoints: Path) -> Any:
    """What the command line trained: Python code, or a runner for its program."""
    target = ledger.opened.target
    kind, where = target.get("kind"), target.get("where")
    if kind == "python":
        from shoestring.runners.training.targets import resolve

        return resolve(str(where))
    if kind == "command" and isinstance(where, list):
        from shoestring.runners.command.command_runner import Commands

        return Commands(list(where), ledger.space, checkpoints, 1)
    if kind == "table":
        raise StudyError("this study was simulated on a table, so there is no model to train: train its best.config")
    raise StudyError("this study was begun from Python: pass the training code again, as study.retrain_best(train)")


def _keep_alive(train: Any, kept: list[Any]) -> Any:
    """The same code, whose newest generator or instance goes into `kept` and outlives its run."""
    shape = shape_of(train)
    if shape == "function":
        return train
    if shape == "generator":

        @functools.wraps(train)
        def paused(*arguments: Any) -> Iterator[Any]:
            kept[:] = [generator := train(*arguments)]
            while (report := next(generator, _END)) is not _END:  # `yield from` would close it with this one
                yield report

        return paused

    @functools.wraps(train.__init__)
    def begin(self: Any, *arguments: Any) -> None:
        self.__class__ = train
        self.__init__(*arguments)
        kept[:] = [self]

    return type(train)(train.__name__, (train,), {"__init__": begin, "__slots__": (), "__module__": train.__module__})
