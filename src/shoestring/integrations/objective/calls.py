"""One call of an objective, as steps of training: each new report is a step, and what the objective returns is the last value.

An objective with reports runs in a thread that waits in `trial.report` until its next step is ordered (see
`integrations/stepping.py`), so a paused trial continues where it waits. Its state cannot be saved: where the thread is gone, in
another process or when too many trials are live, the objective is called again and repeats its steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from shoestring.core.space.parameters import Parameter
from shoestring.core.space.space import Config, Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import RunnerError, SpaceError
from shoestring.integrations.objective.trial import ObjectiveTrial, raise_changed
from shoestring.integrations.stepping import Steps, read_other_metrics, stepwise
from shoestring.runners.training.code import Context, Report

Objective = Callable[[Any], Any]
REMEDY = "give the whole space with its conditions, as in tune_objective(…, space=Space({…}))"


def make_training_code(objective: Objective, space: Space, max_steps: int) -> Any:
    """Return training code that calls the objective with a trial; it gets options as the ledger stores them."""
    code: Any = partial(train_stepwise if max_steps > 1 else train_once, objective=objective, space=space)
    code.reads_stored_options = True
    return code


def train_once(config: Config, context: Context, *, objective: Objective, space: Space) -> Report:
    """Call an objective that reports at most one value, and return its value."""
    reported: list[float] = []

    def take(value: float) -> None:
        reported.append(value)
        if len(reported) > 1:
            raise RunnerError(
                "the objective has reported twice, but a full training has one step: pass max_steps, the number of its reports"
            )

    trial = ObjectiveTrial(context.trial, partial(answer_from, config, space), take)
    value = call_objective(objective, trial)
    return Report(last_value(reported) if value is None else value, metrics=read_other_metrics("", trial.user_attrs))


def train_stepwise(config: Config, context: Context, *, objective: Objective, space: Space) -> Iterator[Report]:
    """Call an objective with reports, and yield a report for each step."""
    answers = partial(answer_from, dict(config), space)
    number, max_steps = context.trial, context.max_steps

    def fit(steps: Steps) -> None:
        run_objective(objective, number, answers, steps, max_steps)

    yield from stepwise(fit, context)


def run_objective(objective: Objective, number: int, answers: Any, steps: Steps, max_steps: int) -> None:
    """Call the objective. Each report is a step; step `max_steps` has the returned value.

    If the objective returns earlier, the returned value is a step of its own, unless it is one of the reported values.
    """
    values: list[float] = []

    def hand_over(value: float) -> None:
        steps.report(value, metrics=read_other_metrics("", trial.user_attrs))

    def take(value: float) -> None:
        values.append(value)
        if len(values) < max_steps:
            hand_over(value)
        elif len(values) > max_steps:  # it trains longer than `max_steps`
            hand_over(values[max_steps - 1])

    trial = ObjectiveTrial(number, answers, take)
    returned = call_objective(objective, trial)
    if returned is None:
        returned = last_value(values)
    if len(values) == max_steps or returned not in values:
        hand_over(returned)


def call_objective(objective: Objective, trial: ObjectiveTrial) -> float | None:
    """Return what the objective returns; None if it raises Optuna's `TrialPruned`."""
    try:
        return read_returned(objective(trial))
    except Exception as error:
        if is_pruned(error):
            return None
        raise


def last_value(values: Sequence[float]) -> float:
    """Return the value of a trial that pruned itself: the last that it reported, or nan, which counts as diverged."""
    return values[-1] if values else math.nan


def answer_from(config: Config, space: Space, name: str, parameter: Parameter, where: str) -> Any:
    """Return the value that the config has for a parameter, as the option that the objective itself has listed."""
    known = space.parameters.get(name)
    if known is None:
        found = ", ".join(space.parameters)
        raise SpaceError(f"the objective asks for {name!r} ({where}), but the space has only {found}: {REMEDY}")
    require_same(name, known, parameter, where)
    if name not in config:
        raise SpaceError(
            f"the objective asks for {name!r} ({where}) although {space.describe_conditions(name)} does not hold: {REMEDY}"
        )
    return parameter.with_object(config[name])


def require_same(name: str, before: Parameter, now: Parameter, where: str) -> None:
    """Raise an error if a parameter is not what it was before; a mark of its cost does not matter."""
    was, is_now = ({k: v for k, v in one.describe().items() if k != "cost"} for one in (before, now))
    if dumps(was) != dumps(is_now):
        raise_changed(name, dumps(was), dumps(is_now), where)


def read_returned(value: Any) -> float:
    """Return what an objective returned as a number; raise an error if it is none."""
    if not isinstance(value, str | bytes | bool):
        try:
            return float(value)
        except (TypeError, ValueError):
            pass
    raise TypeError(f"the objective returned {value!r}: it must return one number")


def is_pruned(error: BaseException) -> bool:
    """Return whether this is Optuna's `TrialPruned`. Optuna is not imported for that."""
    return any(c.__name__ == "TrialPruned" and c.__module__.split(".")[0] == "optuna" for c in type(error).__mro__)
