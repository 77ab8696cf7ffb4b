"""The winner trained once more, for code that cannot save: in a small study of its own, so nothing is charged to the first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring.core.books import Trial
from shoestring.core.entries import Entry, Receipt
from shoestring.core.ledger import Ledger
from shoestring.errors import StudyError
from shoestring.runners.make import make_runner
from shoestring.runners.runner import Runner

if TYPE_CHECKING:
    from shoestring.study.study import Study

_SAME = 1e-6  # relative: more than the order of additions makes of a sum, less than another model


@dataclass(frozen=True)
class Retrained:
    """The winner once more: `study` is the small study that trained it, `cost` is in words."""

    study: Study
    value: float | None  # None: it did not get that far
    recorded: float
    is_same: bool  # up to rounding
    cost: str


def say_cost(study: Study) -> str:
    """What training the winner again costs, as far as its recorded steps tell."""
    winner = _winner(study)
    return _show_price(study.ledger, winner.best_step, math.fsum(winner.step_costs[: winner.best_step]))


def retrain(
    study: Study, train: Any, *, runner: str | Runner | None, on_step: Callable[[int, float | None], Any] | None
) -> Retrained:
    """See `Study.retrain_best`."""
    ledger, winner = study.ledger, _winner(study)
    recorded, last = winner.best_value, winner.best_step
    assert recorded is not None
    if winner.is_retuned:
        raise StudyError("the winner's config changed on the way: keep all of them with Schedule.of(study.ledger)")
    again = type(study).begin(
        ledger.space,
        f"{last} epochs",
        name=f"{study.name[:190]}-winner",
        max_steps=ledger.max_steps,
        direction=ledger.opened.direction,
        policy="replay_fixed",
        settings={"orders": [[0, dict(winner.config), last]]},
        seed=ledger.opened.seed,
    )

    def watch(newest: Ledger, entry: Entry | None) -> None:
        if on_step is not None and isinstance(entry, Receipt) and entry.is_finished:
            on_step(entry.step, entry.value)

    again.run(_runner(ledger, again.checkpoints, train, runner), observe=watch)
    trials, books = again.trials, again.ledger.books
    value = trials[0].values[last - 1] if trials and trials[0].steps >= last else None
    is_same = value is not None and math.isclose(value, recorded, rel_tol=_SAME, abs_tol=_SAME**2)
    return Retrained(again, value, recorded, is_same, _show_price(ledger, books.steps, books.seconds))


def _winner(study: Study) -> Trial:
    winner = study.ledger.best
    if winner is None:
        raise StudyError(f"the study {study.name!r} has no best trial to train again: no step of it has a value")
    return winner


def _show_price(ledger: Ledger, steps: int, seconds: float) -> str:
    budget = ledger.budget
    return budget.show(steps if budget.unit == "epochs" else seconds * budget.per_second(ledger.workers))


def _runner(ledger: Ledger, checkpoints: Path, train: Any, runner: str | Runner | None) -> Runner:
    """For the training code that is given, else for what the command line trained."""
    target = ledger.opened.target
    kind, where = target.get("kind"), target.get("where")
    if train is None and kind == "command" and isinstance(where, list):
        from shoestring.runners.command import Commands

        return Commands(list(where), ledger.space, checkpoints)
    if train is None and kind == "python":
        from shoestring.runners.targets import resolve

        train = resolve(str(where))
    if train is None:
        raise StudyError(
            "a table has no model to train: train its best config"
            if kind == "table"
            else "this study was begun from Python: pass the training code again, as study.retrain_best(train)"
        )
    return make_runner(runner, train, checkpoints, 1, None, None)
