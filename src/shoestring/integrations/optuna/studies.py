"""Studies to and from Optuna.

    to_optuna(study.ledger, "study.journal", name="digits")      then: optuna-dashboard study.journal
    study = from_optuna(optuna.load_study(…), budget="2h", store="mine.db")

Optuna has no word for a trial that rests and may go on: it is shown as pruned, and its attributes say `frozen` and at which step.
A journal is the default: writing 556 trials took 5 s, against 43 s into SQLite.
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
from shoestring.errors import SpaceError, StudyError
from shoestring.integrations.optional import need
from shoestring.integrations.optuna.spaces import to_distributions, to_parameter, to_params
from shoestring.reports.reasons import say_reason
from shoestring.stores.store import Store
from shoestring.study.study import Study

_optuna = need("the exchange with Optuna", "optuna", "optuna")
_State = _optuna.trial.TrialState
_MOST_WHYS = 5  # reasons of a trial's last orders that go along


def to_optuna(ledger: Ledger, where: str, name: str) -> Any:
    """Write a study into Optuna's storage, a journal file or a `sqlite:///…`; returns Optuna's study."""
    direction = "minimize" if ledger.opened.direction == "min" else "maximize"
    with _quiet():
        try:
            study = _optuna.create_study(storage=_storage(where), study_name=name, direction=direction)
        except _optuna.exceptions.DuplicatedStudyError:
            raise StudyError(
                f"{where!r} holds a study {name!r} already: give another file with -o, or remove it"
            ) from None
    books = ledger.books
    study.set_user_attr("policy", books.policy)
    study.set_user_attr("budget", str(ledger.budget))
    study.set_user_attr("spent", ledger.budget.show(ledger.spent))
    study.add_trials(list(_frozen_trials(ledger)))
    return study


def _frozen_trials(ledger: Ledger) -> Iterator[Any]:
    distributions = to_distributions(ledger.space)
    zero = datetime.datetime.now() - datetime.timedelta(seconds=ledger.books.clock)  # the ledger counts from its start
    pasts = _pasts(ledger)
    for trial in ledger.trials:
        state, word = _state(trial)
        shown = _optuna.trial.create_trial(
            state=state,
            value=trial.best_value if state in (_State.COMPLETE, _State.PRUNED) else None,
            params=to_params(trial.config, distributions),
            distributions={param: distributions[param] for param in trial.config},
            intermediate_values={step: value for step, value in enumerate(trial.values, 1) if value is not None},
            user_attrs=_attributes(ledger, trial, word, pasts[trial.number]),
        )
        shown.datetime_start = zero + datetime.timedelta(seconds=pasts[trial.number].orders[0].at)
        if state.is_finished():
            shown.datetime_complete = zero + datetime.timedelta(seconds=pasts[trial.number].ended_at)
        yield shown


def _state(trial: Trial) -> tuple[Any, str]:
    """As near as Optuna's states come, and our own word for it."""
    if trial.open_order is not None:
        return _State.RUNNING, "running"
    if trial.failure:
        return _State.FAIL, "failed"
    if trial.best_step == 0:
        return _State.FAIL, "diverged" if trial.diverged else "not validated"
    return (_State.COMPLETE, "complete") if trial.steps >= trial.limit else (_State.PRUNED, "frozen")


def _attributes(ledger: Ledger, trial: Trial, word: str, past: _Past) -> dict[str, Any]:
    whys = [f"to step {order.until}: {say_reason(order, ledger)}" for order in past.orders[-_MOST_WHYS:]]
    failure = {"failure": trial.failure[-2000:]} if trial.failure else {}
    numbers = past.metrics.get(trial.best_step)
    metrics = {"metrics": {name: value for name, value in numbers.items() if math.isfinite(value)}} if numbers else {}
    facts = {"state": word, "step": trial.steps, "best_step": trial.best_step, "seconds": trial.seconds}
    return {**facts, **metrics, "why": whys, **failure}


@dataclass
class _Past:
    """What the entries tell about a trial."""

    orders: list[Order]
    ended_at: float  # when the newest receipt came
    metrics: dict[int, Mapping[str, float]] = field(default_factory=dict)  # by step, the first that was recorded


def _pasts(ledger: Ledger) -> dict[int, _Past]:
    """By trial, in one pass over the entries."""
    pasts: dict[int, _Past] = {}
    for entry in ledger.entries():
        if isinstance(entry, Order):
            pasts.setdefault(entry.trial, _Past([], entry.at)).orders.append(entry)
        elif isinstance(entry, Receipt):
            pasts[entry.trial].ended_at = entry.at
            pasts[entry.trial].metrics.setdefault(entry.step, entry.metrics)
    return pasts


# the other way -------------------------------------------------------------------------------------------------------


def from_optuna(
    theirs: Any,
    budget: str,
    *,
    name: str | None = None,
    store: str | Store | None = None,
    max_steps: int | None = None,
    policy: str | Policy = policies.DEFAULT,
    seed: int | None = None,
) -> Study:
    """A study that begins with what an Optuna study found: its trials are receipts, its waiting trials are tried first.

    `budget` is the total, with what Optuna has spent. Their models are not here: a policy that goes on with one of these
    trials trains it again from the start. Trials that lack a parameter of the newest one, or are still running, are left out.
    """
    if len(theirs.directions) != 1:
        raise StudyError(
            f"the Optuna study {theirs.study_name!r} has {len(theirs.directions)} objectives: one is needed"
        )
    trials = [trial for trial in theirs.trials if trial.state != _State.RUNNING]
    space = _space_of(theirs.study_name, trials)
    known = [trial for trial in trials if trial.state != _State.WAITING and _fits(trial.params, space)]
    curves = {trial.number: _curve(trial) for trial in known}
    direction: Direction = "min" if theirs.direction.name == "MINIMIZE" else "max"
    study = Study.begin(
        space,
        budget,
        name=name or theirs.study_name,
        store=store,
        max_steps=max_steps or max((len(curve) for curve in curves.values()), default=1),
        direction=direction,
        policy=policy,
        seed=seed,
        initial=[p for t in trials if _fits(p := t.system_attrs.get("fixed_params", {}), space) and t.params == {}],
    )
    if study.trials:
        raise StudyError(f"the store holds a study {study.name!r} with trials already: give another name")
    entries = list(_entries_of(known, curves))
    study.journal.append_newest(lambda ledger: entries)
    return study


def _entries_of(trials: Sequence[Any], curves: Mapping[int, Sequence[float]]) -> Iterator[Entry]:
    clock = 0.0
    for number, trial in enumerate(trials):
        curve = curves[trial.number]
        steps = max(1, len(curve))
        took_s = trial.duration.total_seconds() if trial.duration is not None else 0.0
        why = {"phase": "from Optuna", "their_trial": trial.number}
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


def _curve(trial: Any) -> list[float]:
    """By step from 1: what was reported on the way, the final value last."""
    values = [float(trial.intermediate_values[step]) for step in sorted(trial.intermediate_values)]
    if trial.state == _State.COMPLETE:
        return [*values[:-1], float(trial.value)]
    return values if trial.state == _State.PRUNED else []


def _space_of(name: str, trials: Sequence[Any]) -> Space:
    """By the newest trial that names its parameters: ranges may have changed on the way."""
    newest = next((trial for trial in reversed(trials) if trial.distributions), None)
    if newest is None:
        raise StudyError(f"the Optuna study {name!r} has no trial with parameters: there is nothing to begin with")
    return Space({param: to_parameter(told) for param, told in newest.distributions.items()})


def _fits(params: Mapping[str, Any], space: Space) -> bool:
    try:
        space.validate(params)
    except SpaceError:
        return False
    return True


def _storage(where: str) -> Any:
    if "://" in where:
        return where
    journal = _optuna.storages.journal
    return _optuna.storages.JournalStorage(journal.JournalFileBackend(where))


class _quiet:
    """Optuna's narration is not ours."""

    def __enter__(self) -> None:
        self._before = _optuna.logging.get_verbosity()
        _optuna.logging.set_verbosity(_optuna.logging.WARNING)

    def __exit__(self, *raised: object) -> None:
        _optuna.logging.set_verbosity(self._before)
