"""`tune_objective`: tune a function of a `trial`, as it was written for Optuna."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.budget import Budget, Prices, read_duration_s
from shoestring.core.ledger.entries import Cost, Entry, Order
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.core.values import checks
from shoestring.core.values.randomness import stream
from shoestring.core.values.text import count
from shoestring.errors import BudgetError, RunnerError, ShoestringError, SpaceError, warn
from shoestring.integrations.objective.calls import REMEDY, call_objective, last_value, make_training_code
from shoestring.integrations.objective.finding import (
    Call,
    complete_config,
    count_reports,
    list_parameters,
    list_seen,
    list_untried,
    make_space,
    plan_next,
)
from shoestring.integrations.objective.trial import ObjectiveTrial
from shoestring.integrations.stepping import Steps, read_other_metrics, stepwise
from shoestring.reports.progress import is_notebook, print_line
from shoestring.runners.checkpoints.checkpoint_store import make_location_entry
from shoestring.runners.make import describe_code
from shoestring.runners.ray.cluster import RayCluster
from shoestring.runners.runner import Runner, write_incomplete_receipt, write_receipt
from shoestring.runners.training.code import RAISED, Context
from shoestring.stores.addresses import open_store
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.begin import GivenDirection, StudyRequest
from shoestring.study.run_study import Callback, RunOptions
from shoestring.study.study import Study
from shoestring.study.tune import begin_and_run

_MAX_SHARE = 0.5  # of the budget, for finding the parameters
_MAX_FAILURES = 3  # calls that fail before one works
_MAX_UNFINISHED = (
    10  # calls that end themselves, or fail, before one returns a value and shows how long a full training is
)
_ANY_SPACE = Space({"x": Float(0.0, 1.0)})  # in place of the one that is not known yet


def tune_objective(
    objective: Callable[[Any], Any],
    budget: str | Budget,
    *,
    max_steps: int | None = None,
    space: Space | Mapping[str, Any] | None = None,
    direction: GivenDirection = "min",
    policy: str | Policy | None = None,
    settings: Mapping[str, Any] | None = None,
    workers: int | None = None,
    runner: str | Runner | RayCluster | None = None,
    devices: str | Sequence[int] | None = None,
    live: int | None = None,
    checkpoints: str | Path | None = None,
    deadline: str | float | None = None,
    name: str = "study",
    store: str | LedgerStore | None = None,
    seed: int | None = None,
    prices: Prices | None = None,
    initial: Sequence[Config] = (),
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    metric: str | None = None,
    like: Any = (),
    like_rename: Mapping[str, str] | None = None,
) -> Study:
    """Tune an objective written for Optuna, a function of a `trial`, until the budget is spent, and return the study.

    The objective needs no change: `trial` has `suggest_float`, `suggest_int`, `suggest_categorical`, `report`, `should_prune`,
    `set_user_attr`, `number`, `params` and `user_attrs`. Optuna is not needed.

    **Steps.** Each `trial.report` is a step of training. There the objective waits while other trials are trained. So
    `should_prune` is always False. The returned value is that of the last step. An objective without reports has one step.
    Its state cannot be saved: if a trial that is not in memory any more is continued, the objective is called again, and the
    steps that it repeats cost time and money (but no epochs).

    **Parameters.** A new study first calls the objective to find its parameters: once, and again until each option of each
    choice (of at most 16 options) and each value of each integer (of at most 8) was tried. These calls stop at their first
    report; without `max_steps`, the first call is trained to its end. They are the first trials of the study and paid from its
    budget; no such call begins when half of it is used. A parameter that is there only sometimes gets a condition on the choices
    and integers asked for before it.

    Parameters
    ----------
    objective : callable
        A function of a `trial` that returns one number.
    budget : str or Budget
        As for `tune`. Each report counts as one epoch; without reports, each call does.
    max_steps : int, optional
        The number of values that a full training reports. None: the number that the first call reports.
    space : Space or mapping, optional
        The parameters with their conditions. Then the objective is not called to find them, and its ranges must be the same.
    direction : {"min", "max", "minimize", "maximize"}, optional
        Whether smaller or larger values are better.
    policy, settings, workers, runner, devices, live, checkpoints, deadline
        As for `tune`. The calls that find the parameters run in this process, one after the other.
    name, store, seed, prices, initial, progress, callbacks, metric, like, like_rename
        As for `tune`. A stored study continues with its own space: the objective is not called to find it again. Callbacks are
        not called after the calls that find the parameters.

    Returns
    -------
    Study
        The study; `study.best.config` has the parameters of the best trial.

    Raises
    ------
    SpaceError
        If the range of a parameter changes between calls, or no condition tells when a parameter is there. The message names the
        parameter and the line of the objective.
    RunnerError
        If `max_steps` does not fit the objective.
    BudgetError
        If the budget ends before the first call does; `max_steps` avoids this.
    Exception
        What the objective raises, if its first three calls fail.
    TrainingFailed, PolicyError, StudyError, StudyInUse, KeyboardInterrupt
        As for `tune`.

    Warns
    -----
    UserWarning
        If half of the budget was used before each option was tried, or as for `tune`.

    Examples
    --------
    >>> from shoestring import tune_objective
    >>> def objective(trial):
    ...     x = trial.suggest_float("x", -10, 10)
    ...     return (x - 2) ** 2
    >>> study = tune_objective(objective, "30 epochs", seed=0)
    >>> len(study.trials), abs(study.best.config["x"] - 2) < 1
    (30, True)
    """
    began, deadline_s = time.monotonic(), read_duration_s(deadline, "deadline")
    if max_steps is not None:
        max_steps = checks.check_whole("max_steps", max_steps, 1, "the values that a full training reports")
    checks.check_configs("initial", initial)
    options = RunOptions(
        workers=workers, runner=runner, devices=devices, live=live, callbacks=callbacks, progress=progress
    )
    stored = None if store is None else open_store(store).load(checks.check_study_name(name))
    wanted_study: dict[str, Any] = {
        "budget": budget,
        "direction": direction,
        "policy": policy,
        "settings": settings,
        "seed": seed,
        "workers": options.device_count if workers is None else workers,
        "prices": prices,
        "metric": metric,
        "like": like,
        "like_rename": like_rename,
        "target": describe_code(objective) | make_location_entry(checkpoints),
    }
    request = StudyRequest(space=_ANY_SPACE, **wanted_study)
    request.complete(stored)  # raises an error for a wrong argument, before anything is trained
    calls: list[Call] = []
    if stored is not None:
        wanted, steps = stored.space if space is None else space, max_steps or stored.max_steps
    elif space is not None:
        wanted, steps = space, max_steps or 1
    else:
        wanted_study["seed"] = seed = request.new_study.seed
        calls = _Finder(objective, Budget(budget), options, max_steps, seed).find(initial, deadline_s)
        wanted, steps = make_space(calls), max_steps or count_reports(calls)
    space = wanted if isinstance(wanted, Space) else Space.from_dict(wanted)
    begin = partial(Study.begin, space, name=name, max_steps=steps, initial=initial, **wanted_study)

    def begin_with_calls(**where: Any) -> Study:
        study = begin(**where)
        if calls and not study.trials:
            entries = list(_entries_of(calls, space, steps))
            study.journal.append_newest(lambda ledger: entries)
        return study

    if deadline_s is not None:
        options = replace(options, deadline=max(0.0, deadline_s - (time.monotonic() - began)))
    code = make_training_code(objective, space, steps)
    study = begin_and_run(begin_with_calls, name, store, code, options)
    study.adapt_code = lambda again: make_training_code(again, space, steps)  # for `retrain_best(objective)`
    _warn_of_wrong_space(study)
    return study


class _Finder:
    """Calls the objective until its parameters are known, or half of the budget is used."""

    def __init__(
        self, objective: Callable[[Any], Any], budget: Budget, options: RunOptions, max_steps: int | None, seed: int
    ) -> None:
        self.objective, self.budget, self.options, self.max_steps = objective, budget, options, max_steps
        self.seed, self.calls = seed, list[Call]()

    def find(self, initial: Sequence[Config], deadline_s: float | None) -> list[Call]:
        """Return the calls. The first tries the first of the initial configs."""
        began, tried = time.monotonic(), set[str]()
        while (plan := self._plan(tried)) is not None:
            is_late = deadline_s is not None and time.monotonic() - began >= deadline_s
            if self.calls and (is_late or self._spent() + self._price_of_call() > _MAX_SHARE * self.budget.total):
                self._warn_of_untried()
                break
            self._announce()
            self._make_call(plan if self.calls or not initial else initial[0])
            if len(self.calls) >= _MAX_FAILURES:
                self._require_success()
        self._require_success()
        if self.max_steps is not None and self.max_steps > 1 and not any(call.has_reports for call in self.calls):
            raise RunnerError(
                f"max_steps={self.max_steps}, but the objective never calls trial.report, so it has one step: leave max_steps out"
            )
        return self.calls

    def _plan(self, tried: set[str]) -> Mapping[str, Any] | None:
        """Return the values of switches that the next call tries; None if no more calls are needed."""
        if (plan := plan_next(self.calls, tried)) is not None:
            return plan
        is_length_unknown = self.max_steps is None and not any(call.has_returned for call in self.calls)
        is_unknown = is_length_unknown or all(call.failure for call in self.calls)
        return {} if is_unknown and len(self.calls) < _MAX_UNFINISHED else None

    def _make_call(self, plan: Mapping[str, Any]) -> None:
        number = len(self.calls)
        call = Call(
            number, plan, list_seen(self.calls), stream(self.seed, "objective", number), list_parameters(self.calls)
        )
        is_length_known = self.max_steps is not None or any(other.has_returned for other in self.calls)
        self.calls.append(call)
        _run_call(self.objective, call, (lambda: False) if is_length_known else self._require_rest)

    def _require_success(self) -> None:
        """Raise what the objective has raised, if all calls failed."""
        if (failure := self.calls[-1].failure) is not None and all(call.failure for call in self.calls):
            raise failure

    def _require_rest(self) -> bool:
        """Return True; raise an error if the budget is used up before the length of a full training is known."""
        if self._spent() < self.budget.total:
            return True
        steps, total = len(self.calls[-1].values), self.budget.show(self.budget.total)
        raise BudgetError(
            f"the budget {total} was used by the first {steps} steps of the first trial, whose end shows how long a training "
            "is: raise the budget, or pass max_steps, the number of values that a full training reports"
        )

    def _spent(self) -> float:
        """Return what the calls have cost so far, in the unit of the budget."""
        if self.budget.unit == "epochs":
            return float(sum(max(1, len(call.values)) for call in self.calls))
        rate = self.budget.per_second(self.options.workers or 1)
        return rate * math.fsum(seconds for call in self.calls for seconds in call.seconds)

    def _price_of_call(self) -> float:
        """Return what one more call will probably cost."""
        if self.budget.unit == "epochs":
            return 1.0
        return self._spent() / len(self.calls)

    def _announce(self) -> None:
        wanted = self.options.progress
        if wanted or (wanted is None and (is_notebook() or (sys.stderr is not None and sys.stderr.isatty()))):
            found = count(len(list_parameters(self.calls)), "parameter")
            print_line(f"calling the objective to find its parameters: call {len(self.calls) + 1}, {found} so far")

    def _warn_of_untried(self) -> None:
        untried = [f"{name}={value!r}" for name, value in list_untried(self.calls)]
        if untried:
            shown = ", ".join(untried[:5]) + (f" and {len(untried) - 5} more" if len(untried) > 5 else "")
            warn(
                f"half of the budget was used by {count(len(self.calls), 'call')} of the objective that find its parameters, and "
                f"{shown} was not tried: a parameter that is there only then makes its trial fail; raise the budget, or {REMEDY}"
            )


def _warn_of_wrong_space(study: Study) -> None:
    """Warn if trials failed because the objective asked for something else than the space has."""
    failures = [describe_failure(trial.failure) for trial in study.trials if trial.failure]
    wrong = [failure for failure in failures if f"{SpaceError.__name__}: " in failure]
    if wrong:
        warn(f"{count(len(wrong), 'trial')} of {len(study.trials)} failed: {wrong[-1]}")


def _run_call(objective: Callable[[Any], Any], call: Call, may_go_on: Callable[[], bool]) -> None:
    """Call the objective, and write what it reports into `call`; after each report ask whether it may go on."""
    reports = stepwise(lambda steps: _call(objective, call, steps), Context(config={}, trial=call.number))
    began = time.perf_counter()
    try:
        for report in reports:
            call.seconds.append(time.perf_counter() - began)
            call.metrics.append(report.metrics or {})
            if not may_go_on():
                return
            began = time.perf_counter()
    except ShoestringError:
        raise  # what is wrong with the parameters is wrong in every call
    except RAISED as error:
        call.failure = error
    finally:
        reports.close()  # type: ignore[attr-defined]
    rest_s = time.perf_counter() - began
    if call.failure is None and call.has_reports:
        call.seconds[-1] += rest_s  # from its last report to its end
    else:
        call.seconds.append(rest_s)


def _call(objective: Callable[[Any], Any], call: Call, steps: Steps) -> None:
    def take(value: float) -> None:
        call.values.append(value)
        call.has_reports = True
        steps.report(value, metrics=read_other_metrics("", trial.user_attrs))

    trial = ObjectiveTrial(call.number, call.answer, take)
    returned = call_objective(objective, trial)
    call.has_returned = returned is not None
    # The last step, or the only one, has the returned value.
    call.values[-1:] = [last_value(call.values) if returned is None else returned]
    call.metrics[len(call.values) - 1 :] = [read_other_metrics("", trial.user_attrs)]


def _entries_of(calls: Sequence[Call], space: Space, max_steps: int) -> Iterator[Entry]:
    """Yield an order and its receipts for each call."""
    clock = 0.0
    for call in calls:
        values = call.values[:max_steps] if call.failure is None else call.values[: max_steps - 1]
        until = len(values) + (call.failure is not None)
        why: Why = {"phase": "finding the parameters", "compared": 0}
        order = Order(
            number=call.number,
            trial=call.number,
            config=complete_config(space, call),
            until=until,
            why=why,
            at=clock,
        )
        yield order
        for step, value in enumerate(values, 1):
            cost = Cost(train=call.seconds[step - 1])
            clock += cost.total
            yield write_receipt(order, step, value, cost, at=clock, metrics=call.metrics[step - 1])
            if not math.isfinite(value):
                break
        else:
            if call.failure is not None:
                cost, text = Cost(train=call.seconds[-1]), f"{type(call.failure).__name__}: {call.failure}"
                clock += cost.total
                yield write_incomplete_receipt(order, until, "failed", text, cost, at=clock, saved_step=0)
