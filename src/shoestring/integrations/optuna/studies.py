"""Export studies to Optuna, and import studies from Optuna.

    to_optuna(study.ledger, "study.journal", name="digits")      then: optuna-dashboard study.journal
    study = from_optuna(optuna.load_study(…), budget="2h", store="mine.db")

Optuna has no state for a trial that is paused and may continue: it is shown as pruned, and its attributes are `state` ("paused")
and `step`. A journal file is written faster than SQLite: 556 trials took 5 s instead of 43 s.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from shoestring import policies
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.entries import Cost, Direction, Entry, Order, Receipt, Status
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.space import Space
from shoestring.core.values.credentials import hide_credentials
from shoestring.errors import SpaceError, StudyError
from shoestring.integrations.optional import import_optional
from shoestring.integrations.optuna.spaces import to_distributions, to_parameter, to_params
from shoestring.reports.reasons import describe_reason
from shoestring.stores.ledger_store import LedgerStore
from shoestring.study.earlier_optuna import make_storage, read_curve, require_one_objective
from shoestring.study.study import Study

_optuna = import_optional("shoestring.integrations.optuna", "optuna", "optuna")
_State = _optuna.trial.TrialState
_MAX_REASONS = 5  # orders of a trial whose reasons are written, the newest ones


def to_optuna(ledger: Ledger, where: str, name: str) -> Any:
    """Write a study into a storage of Optuna.

    Parameters
    ----------
    ledger : Ledger
        The ledger of the study, `study.ledger`.
    where : str
        A journal file, or a database such as `sqlite:///file.db`.
    name : str
        The name of the study in Optuna.

    Returns
    -------
    optuna.Study
        The study in Optuna.

    Raises
    ------
    StudyError
        If the storage already holds a study of this name.
    MissingExtra
        If Optuna is not installed.

    Examples
    --------
    Then `optuna-dashboard study.journal` shows it:

        to_optuna(study.ledger, "study.journal", name="digits")
    """
    direction = "minimize" if ledger.definition.direction == "min" else "maximize"
    with _QuietOptuna():
        try:
            study = _optuna.create_study(storage=make_storage(where), study_name=name, direction=direction)
        except _optuna.exceptions.DuplicatedStudyError:
            raise StudyError(
                f"{hide_credentials(where)!r} already holds a study {name!r}: give another file or database, or delete that study"
            ) from None
    state = ledger.state
    study.set_user_attr("policy", state.policy)
    study.set_user_attr("budget", str(ledger.budget))
    study.set_user_attr("spent", ledger.budget.show(ledger.spent))
    study.add_trials(list(_optuna_trials(ledger)))
    return study


def _optuna_trials(ledger: Ledger) -> Iterator[Any]:
    distributions = to_distributions(ledger.space)
    # Times in the ledger are seconds from its start.
    start = datetime.datetime.now() - datetime.timedelta(seconds=ledger.state.clock)
    histories = _read_histories(ledger)
    for trial in ledger.trials:
        state, state_name = _state(trial)
        exported = _optuna.trial.create_trial(
            state=state,
            value=trial.best_value if state in (_State.COMPLETE, _State.PRUNED) else None,
            params=to_params(trial.config, distributions),
            distributions={param: distributions[param] for param in trial.config},
            intermediate_values={step: value for step, value in enumerate(trial.values, 1) if value is not None},
            user_attrs=_attributes(ledger, trial, state_name, histories[trial.number]),
        )
        exported.datetime_start = start + datetime.timedelta(seconds=histories[trial.number].orders[0].at)
        if state.is_finished():
            exported.datetime_complete = start + datetime.timedelta(seconds=histories[trial.number].ended_at)
        yield exported


def _state(trial: Trial) -> tuple[Any, str]:
    """Return the nearest state of Optuna, and the exact one as text."""
    if trial.open_order is not None:
        return _State.RUNNING, "running"
    if trial.failure:
        return _State.FAIL, "failed"
    if trial.best_step == 0:
        return _State.FAIL, "diverged" if trial.diverged else "not validated"
    return (_State.COMPLETE, "complete") if trial.steps >= trial.limit else (_State.PRUNED, "paused")


def _attributes(ledger: Ledger, trial: Trial, state_name: str, history: _History) -> dict[str, Any]:
    reasons = [f"to step {order.until}: {describe_reason(order, ledger)}" for order in history.orders[-_MAX_REASONS:]]
    failure = {"failure": trial.failure[-2000:]} if trial.failure else {}
    numbers = history.metrics.get(trial.best_step)
    metrics = {"metrics": {name: value for name, value in numbers.items() if math.isfinite(value)}} if numbers else {}
    facts = {"state": state_name, "step": trial.steps, "best_step": trial.best_step, "seconds": trial.seconds}
    return {**facts, **metrics, "why": reasons, **failure}


@dataclass
class _History:
    """The orders and metrics of a trial."""

    orders: list[Order]
    ended_at: float  # time of the newest receipt
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)  # by step, as first recorded


def _read_histories(ledger: Ledger) -> dict[int, _History]:
    """Return the history of each trial, in one pass over the entries."""
    histories: dict[int, _History] = {}
    for entry in ledger.entries():
        if isinstance(entry, Order):
            histories.setdefault(entry.trial, _History([], entry.at)).orders.append(entry)
        elif isinstance(entry, Receipt):
            histories[entry.trial].ended_at = entry.at
            histories[entry.trial].metrics.setdefault(entry.step, entry.metrics)
    return histories


# from Optuna --------------------------------------------------------------------------------------------------------


def from_optuna(
    study: Any,
    budget: str,
    *,
    name: str | None = None,
    store: str | LedgerStore | None = None,
    max_steps: int | None = None,
    policy: str | Policy = policies.DEFAULT,
    seed: int | None = None,
) -> Study:
    """Begin a study with the trials of an Optuna study.

    Finished trials become receipts, and waiting trials are trained first. The search space is that of the newest trial. Trials
    that do not fit into it, or are still running, are left out. The models are not imported: a policy that continues one of
    these trials trains it again from the start.

    Parameters
    ----------
    study : optuna.Study
        The study in Optuna.
    budget : str
        The total budget, which includes what Optuna has spent.
    name : str, optional
        The name of the new study; the name in Optuna by default.
    store : str or LedgerStore, optional
        Where the study is stored; in memory by default.
    max_steps : int, optional
        The steps of a full training; by default the longest curve in Optuna.
    policy : str or Policy, optional
        The policy that decides what to train.
    seed : int, optional
        The seed of the study.

    Returns
    -------
    Study
        The new study.

    Raises
    ------
    StudyError
        If the study has several objectives or no trials with parameters, or if the store already holds trials of this name.
    MissingExtra
        If Optuna is not installed.

    Examples
    --------
    Continue an Optuna study under a budget:

        study = from_optuna(optuna.load_study(study_name="mine", storage=storage), budget="2h", store="mine.db")
    """
    require_one_objective(study)
    trials = [trial for trial in study.trials if trial.state != _State.RUNNING]
    space = _space_of(study.study_name, trials)
    finished = [trial for trial in trials if trial.state != _State.WAITING and _fits(trial.params, space)]
    curves = {trial.number: read_curve(trial) for trial in finished}
    direction: Direction = "min" if study.direction.name == "MINIMIZE" else "max"
    imported = Study.begin(
        space,
        budget,
        name=name or study.study_name,
        store=store,
        max_steps=max_steps or max((len(curve) for curve in curves.values()), default=1),
        direction=direction,
        policy=policy,
        seed=seed,
        initial=[p for t in trials if _fits(p := t.system_attrs.get("fixed_params", {}), space) and t.params == {}],
    )
    if imported.trials:
        raise StudyError(f"the store already holds a study {imported.name!r} with trials: give another name")
    entries = list(_entries_of(finished, curves))
    imported.journal.append_newest(lambda ledger: entries)
    return imported


def _entries_of(trials: Sequence[Any], curves: Mapping[int, Sequence[float]]) -> Iterator[Entry]:
    clock = 0.0
    for number, trial in enumerate(trials):
        curve = curves[trial.number]
        steps = max(1, len(curve))
        took_s = trial.duration.total_seconds() if trial.duration is not None else 0.0
        why = {"phase": "from Optuna", "optuna_trial": trial.number}
        yield Order(number=number, trial=number, config=dict(trial.params), until=steps, why=why, at=clock)
        for step, value in enumerate(curve, 1):
            clock += took_s / steps
            yield _receipt(number, step, value, Cost(train=took_s / steps), clock)
            if not math.isfinite(value):
                break
        if not curve:
            cost, text = Cost(train=took_s), f"failed in Optuna, as trial {trial.number}"
            clock += took_s
            yield Receipt(order=number, trial=number, step=1, cost=cost, status="failed", text=text, at=clock)


def _receipt(number: int, step: int, value: float, cost: Cost, at: float) -> Receipt:
    status, text = ("ok", "") if math.isfinite(value) else ("diverged", f"the value is {value}")
    return Receipt(
        order=number, trial=number, step=step, value=value, cost=cost, status=cast(Status, status), text=text, at=at
    )


def _space_of(name: str, trials: Sequence[Any]) -> Space:
    """Return the space of the newest trial with parameters: ranges may have changed between trials."""
    newest = next((trial for trial in reversed(trials) if trial.distributions), None)
    if newest is None:
        raise StudyError(f"the Optuna study {name!r} has no trial with parameters, so its search space is unknown")
    return Space({param: to_parameter(distribution) for param, distribution in newest.distributions.items()})


def _fits(params: Mapping[str, Any], space: Space) -> bool:
    try:
        space.validate(params)
    except SpaceError:
        return False
    return True


class _QuietOptuna:
    """A context in which Optuna shows no informational messages."""

    def __enter__(self) -> None:
        self._before = _optuna.logging.get_verbosity()
        _optuna.logging.set_verbosity(_optuna.logging.WARNING)

    def __exit__(self, *raised: object) -> None:
        _optuna.logging.set_verbosity(self._before)
