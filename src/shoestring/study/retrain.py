"""Train the best trial once more, for code that cannot save its model: with the recorded configs, steps and validation passes.

The training is a small study in memory, so nothing is charged to the study that found the trial. The trained object is returned:
the instance of a class, or a generator that is paused after the best step and has the model among its variables. If the value
differs from the recorded one, the training depends on more than its config.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shoestring.core.deciding.decision import Decision, Finish, Train, Validate
from shoestring.core.ledger.entries import Entry, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Config
from shoestring.core.values import checks
from shoestring.errors import StudyError, warn
from shoestring.runners.make import count_steps, make_command_runner
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner
from shoestring.runners.training.code import shape_of
from shoestring.runners.training.targets import resolve
from shoestring.study.run_study import RunOptions, report_problems, run_study

if TYPE_CHECKING:
    from shoestring.study.study import Study

_END = object()
_RELATIVE_TOLERANCE = 1e-6  # rounding changes a value by less than this; the value of another model differs by more


@dataclass(frozen=True)
class RetrainResult:
    """The result of `Study.retrain_best`.

    Attributes
    ----------
    study : Study
        The small study in memory that trained the trial again.
    value : float
        The value of the best step, this time.
    recorded : float
        The value that the study recorded.
    is_same : bool
        Whether both are equal up to rounding.
    cost : float
        The cost of the training, in the unit of the budget.
    trainer : object
        The instance of the training class, or the paused generator; None for functions and for other processes.
    """

    study: Study
    value: float
    recorded: float
    is_same: bool
    cost: float
    trainer: Any = None

    @property
    def variables(self) -> dict[str, Any]:
        """The local variables of the paused generator, with the model among them; empty for other code."""
        frame = getattr(self.trainer, "gi_frame", None)
        return {} if frame is None else dict(frame.f_locals)


@dataclass(frozen=True)
class RepeatedTrial:
    """A policy that repeats the recorded orders of one trial up to its best step."""

    orders: tuple[tuple[Config, int, Validate], ...]
    name: ClassVar[str] = "repeated_trial"

    @classmethod
    def of(cls, ledger: Ledger, trial: Trial) -> RepeatedTrial:
        orders: list[tuple[Config, int, Validate]] = []
        for number, steps in groupby(range(trial.best_step), lambda step: trial.step_orders[step]):
            order, until = ledger.orders[number], 1 + max(steps)
            is_cut_short = order.validate == "last" and until < order.until
            orders.append((order.config, until, "none" if is_cut_short else order.validate))
        return cls(tuple(orders))

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.trials and not ledger.trials[0].can_continue:
            return Finish("the trial cannot continue")
        done = ledger.trials[0].steps if ledger.trials else 0
        for config, until, validate in self.orders:
            if until > done:
                return Train(trial=0, config=config, until=until, validate=validate)
        return Finish("the best step is reached")


def estimate_cost(study: Study) -> str:
    """Return the cost of training the best trial again, computed from its recorded steps."""
    best = _require_best(study)
    return study.ledger.budget.show(_cost_of(study.ledger, best.best_step, best.step_costs[: best.best_step]))


def retrain(
    study: Study,
    train: Any,
    *,
    runner: str | Runner | RayCluster | None,
    on_step: Callable[[int, float | None], Any] | None,
) -> RetrainResult:
    """Train the best trial again; see `Study.retrain_best`."""
    checks.check_function("on_step", on_step, "on_step(step, value)")
    ledger, best = study.ledger, _require_best(study)
    recorded, last = best.best_value, best.best_step
    again = type(study).begin(
        study.given_space,
        f"{last} epochs",
        name=f"{study.name}-best",
        max_steps=ledger.max_steps,
        direction=ledger.definition.direction,
        policy=RepeatedTrial.of(ledger, best),
        seed=ledger.definition.seed,
    )

    def watch(newest: Ledger, entry: Entry | None) -> None:
        if on_step is not None and isinstance(entry, Receipt) and entry.is_finished:
            on_step(entry.step, entry.value)

    code = _find_code(again, ledger.definition.target) if train is None else train
    objects: list[Any] = []  # the trained generator or instance
    if callable(code):
        if runner is None or (isinstance(runner, str) and runner == "local"):
            code = _keep_trained(code, objects)
        count_steps(code, again.ledger.max_steps)
        options = RunOptions(runner=runner, observe=watch, progress=False, stops_on_ctrl_c=False)
        run_study(again, code, options)
    else:
        report_problems(again, run_study(again, code, RunOptions(observe=watch, stops_on_ctrl_c=False)))
    value = again.trials[0].values[last - 1] if again.trials[0].steps >= last else None
    if value is None or recorded is None:
        raise StudyError(f"the training code ended before step {last}, where the study {study.name!r} was best")
    is_same = math.isclose(value, recorded, rel_tol=_RELATIVE_TOLERANCE, abs_tol=_RELATIVE_TOLERANCE**2)
    if not is_same:
        warn(
            f"trained again, step {last} of trial {best.number} has the value {value!r}, not the recorded {recorded!r}: "
            "the training depends on more than its config; set its random seeds to get the same model"
        )
    state = again.ledger.state
    trainer = objects[0] if objects else None
    return RetrainResult(again, value, recorded, is_same, _cost_of(ledger, state.steps, [state.seconds]), trainer)


def _require_best(study: Study) -> Trial:
    best = study.ledger.best
    if best is None:
        raise StudyError(f"the study {study.name!r} has no best trial: no step of it has a value")
    return best


def _cost_of(ledger: Ledger, steps: int, seconds: list[float]) -> float:
    """Return the cost of these steps in the unit of the budget."""
    rate = ledger.budget.per_second(ledger.workers)
    return float(steps) if ledger.budget.unit == "epochs" else rate * math.fsum(seconds)


def require_known_code(target: Mapping[str, Any]) -> None:
    """Raise StudyError if a study does not know what the command line can train again."""
    kind = target.get("kind")
    if kind == "table":
        raise StudyError("this study was simulated on a table, so there is no model to train: use its best.config")
    if kind not in ("python", "command"):
        raise StudyError("this study was begun from Python: pass the training code again, as study.retrain_best(train)")


def _find_code(study: Study, target: Mapping[str, Any]) -> Any:
    """Return what the command line trained: the Python code, or for a program a runner that trains it in `study`."""
    require_known_code(target)
    where: Any = target.get("where")
    if target["kind"] == "python":
        return resolve(str(where))
    return make_command_runner(where, study.ledger, study.checkpoints)


def _keep_trained(train: Any, objects: list[Any]) -> Any:
    """Return training code that does the same, and also puts its newest generator or instance into `objects`."""
    shape = shape_of(train)
    if shape == "function":
        return train
    if shape == "generator":

        @functools.wraps(train)
        def train_and_keep(*arguments: Any) -> Iterator[Any]:
            objects[:] = [generator := train(*arguments)]
            # `yield from` would close the inner generator together with this one, and the model would be lost.
            while (report := next(generator, _END)) is not _END:
                yield report

        return train_and_keep

    @functools.wraps(train.__init__)
    def begin(self: Any, *arguments: Any) -> None:
        self.__class__ = train
        self.__init__(*arguments)
        objects[:] = [self]

    return type(train)(train.__name__, (train,), {"__init__": begin, "__slots__": (), "__module__": train.__module__})
