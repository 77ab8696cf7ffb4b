"""The contract of a policy, and helpers for its author.

A policy is an object with a `name` and a method `decide`. It has settings but no memory: everything that it knows is in the
ledger, so an interrupted study continues as if it had not been interrupted. `decide` must not change the ledger, and must return
the same decision for the same ledger.

If the policy is a dataclass, its fields are its settings and are stored in the ledger. If it is not a dataclass, no settings are
stored. Whoever continues the study must then pass a policy with the same settings, because nothing checks that they are the same.

The helpers are functions of the ledger: they make a decision (`start_trial`, `continue_trial`, …), find trials and configs to
choose from, and return whether the initial design of a policy with a model is complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np

from shoestring.core.deciding.comparison import BestIs, compare
from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Decision, Finish, Memo, Train, Wait, Why
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.ledger.views import BetweenStops
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import point, stream

_PROBES = 100  # points that are tried before all configs of the space are listed
ALL_TRIED = "every config of the space was tried"  # a reason to finish
_STRIDE = 1_000_003  # from one of these points to the next, in the sequence; prime, so that every coordinate changes


@runtime_checkable
class Policy(Protocol):
    """Decides what to train next."""

    @property
    def name(self) -> str:
        """The name of the policy in the ledger and in reports."""
        ...

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        """Return what to do next.

        Parameters
        ----------
        ledger : Ledger
            The study so far. Read it, never change it.
        rng : numpy.random.Generator
            Depends only on the study's seed and the number of orders so far.

        Returns
        -------
        Train, Wait or Finish
            The decision.
        """
        ...


# decisions -----------------------------------------------------------------------------------------------------------


_NOTHING_COMPARED = {"compared": 0}  # in `why`, unless the policy adds a comparison; see `comparison.py`


def start_trial(ledger: Ledger, config: Config, until: int, *, why: Why = NO_WHY, memo: Memo = NO_MEMO) -> Train:
    """Return the decision to start a new trial.

    Parameters
    ----------
    ledger : Ledger
        The study.
    config : Config
        The configuration of the trial.
    until : int
        The last step to train.
    why, memo
        As for `Train`.

    Returns
    -------
    Train
        The decision.
    """
    return Train(trial=len(ledger.trials), config=config, until=until, why={**_NOTHING_COMPARED, **why}, memo=memo)


def continue_trial(trial: Trial, until: int, *, why: Why = NO_WHY, memo: Memo = NO_MEMO) -> Train:
    """Return the decision to train a trial further, but not beyond its limit.

    Parameters
    ----------
    trial : Trial
        The trial.
    until : int
        The last step to train.
    why, memo
        As for `Train`.

    Returns
    -------
    Train
        The decision.
    """
    why = {**_NOTHING_COMPARED, **why}
    return Train(trial=trial.number, config=trial.config, until=min(until, trial.limit), why=why, memo=memo)


# Labels of the keys in `why` of the orders that `train_queued_or_interrupted` makes.
QUEUED_OR_INTERRUPTED_LABELS = {"phase": "phase", "at": "steps trained before (steps)"}


def train_queued_or_interrupted(ledger: Ledger) -> Train | None:
    """Return the decision to train a queued or interrupted trial first; None if there is none.

    A policy that trains every trial in full calls it before it chooses a config. Configs that the user queued come first, then
    trials that this policy began and that were interrupted.

    Parameters
    ----------
    ledger : Ledger
        The study.

    Returns
    -------
    Train or None
        The decision; None if no config is queued and no trial is interrupted.
    """
    if ledger.queue:
        return start_trial(ledger, ledger.queue[0], ledger.max_steps, why={"phase": "queued"}, memo=ledger.memo)
    mine = ledger.state.first_own_order
    trial = next((trial for trial in ledger.trials if trial.can_continue and trial.last_order >= mine), None)
    if trial is None:
        return None
    return continue_trial(trial, trial.limit, why={"phase": "interrupted", "at": trial.steps}, memo=ledger.memo)


def train_best_unfinished(
    ledger: Ledger, stage: str, *, stops: tuple[int, ...] = (), memo: Memo = NO_MEMO, after: int = 0
) -> Train | None:
    """Return the decision to train the trial with the best newest loss, among the trials that can continue.

    If several trials have this loss, the one with the smallest number is chosen.

    Parameters
    ----------
    ledger : Ledger
        The study.
    stage : str
        Name of the policy's stage, for `why`.
    stops : tuple of int
        Steps at which to stop; the trial is trained to the next one, or to its limit.
    memo : Memo
        As for `Train`.
    after : int
        Skip this many of the best trials.

    Returns
    -------
    Train or None
        The decision; None if no trial can continue.
    """
    idle = ledger.state.idle
    if len(idle) <= after:
        return None
    best, why = ledger.trials[idle[after][1]], compare_newest(ledger, idle[after : after + 2], len(idle) - after)
    until = next((stop for stop in stops if stop > best.steps), best.limit)
    return continue_trial(best, until, why={"stage": stage, **why}, memo=memo)


def compare_newest(ledger: Ledger, ranked: Sequence[tuple[float, int]], count: int) -> Why:
    """Return the entries of `why` for a choice among trials by their newest losses.

    Parameters
    ----------
    ledger : Ledger
        The study.
    ranked : sequence of (float, int)
        Pairs (newest loss, number of the trial): the chosen trial, then the second best if there is one.
    count : int
        Number of trials that were compared.

    Returns
    -------
    Why
        The entries for the `why` of the decision.
    """
    sign = ledger.definition.sign
    (loss, _), *competitors = ranked
    runner_up = [(trial, sign * competitor) for competitor, trial in competitors[:1]]
    best_is: BestIs = "lowest" if sign > 0.0 else "highest"
    return compare("newest value", best_is, count, sign * loss, *(runner_up[0] if runner_up else ()))


def nothing_to_train(
    ledger: Ledger, why: str = "every config was tried and every trial is at its end"
) -> Wait | Finish:
    """Return the decision for a study in which no config is left and no trial can continue.

    Parameters
    ----------
    ledger : Ledger
        The study.
    why : str
        The reason, for the user.

    Returns
    -------
    Wait or Finish
        Wait while orders are open, since their results may change that.
    """
    return Wait() if ledger.open_orders else Finish(why)


# trials to choose from -----------------------------------------------------------------------------------------------


def find_finished_trials(ledger: Ledger) -> list[Trial]:
    """Return the trials without an open order that have a result: a loss or a failure.

    The loss of a trial that diverged before its first loss is infinite. A trial that was stopped early counts too: its best loss
    is too high, but better than no result.

    Parameters
    ----------
    ledger : Ledger
        The study.

    Returns
    -------
    list of Trial
        The trials, by number.
    """
    done = [trial for trial in ledger.trials if trial.open_order is None]
    return [trial for trial in done if math.isfinite(trial.best_loss) or trial.diverged or trial.failure]


def find_interrupted(ledger: Ledger, stops: tuple[int, ...]) -> Trial | None:
    """Return a trial that is idle between two stops, because its order was shortened, interrupted or cancelled.

    If there are several, it is the one that left its last stop first.

    Parameters
    ----------
    ledger : Ledger
        The study.
    stops : tuple of int
        The steps at which the policy stops trials.

    Returns
    -------
    Trial or None
        The trial; None if there is none.
    """
    between_stops = ledger.view(BetweenStops(stops))
    idle = [number for number in between_stops.idle if ledger.trials[number].can_continue]
    return ledger.trials[min(idle, key=between_stops.since.__getitem__)] if idle else None


# configs to choose from ----------------------------------------------------------------------------------------------


def find_untried_config(ledger: Ledger, cost_share: float = 1.0) -> Config | None:
    """Return a config that was not tried yet: first those that the user queued, then quasi-random points of the space.

    The rows of a listed space come in a random order. Points that differ only in inactive parameters are the same config, so
    the config of a new point may have been tried before; then a later point of the sequence is used.

    Parameters
    ----------
    ledger : Ledger
        The study.
    cost_share : float
        Where the cost of parameters is marked, how much of their ranges to use, from the cheap end: 0 is that end, 1 the whole
        range. In a listed space it is the share of the untried rows, from the one that is nearest to the cheap ends.

    Returns
    -------
    Config or None
        The config; None if all configs of a finite space were tried.
    """
    if ledger.queue:
        return ledger.queue[0]
    space, seed, tried = ledger.space, ledger.definition.seed, len(ledger.trials)
    used = ledger.state.used
    if len(used) >= space.size:  # known without searching the table
        return None
    is_limited = cost_share < 1.0 and bool(space.cost_marks)
    if space.rows is not None:
        order = _row_order(seed, len(space.rows))
        if is_limited:
            return space.rows[_find_cheap_row(ledger, order, cost_share)]
        rows = (space.rows[order[(tried + i) % len(order)]] for i in range(len(order)))
        return next((row for row in rows if space.key(row) not in used), None)
    drawn = _candidates(space, seed, tried, cost_share if is_limited else 1.0)
    return next((config for config in drawn if space.key(config) not in used), None)


def _find_cheap_row(ledger: Ledger, order: list[int], share: float) -> int:
    """Return the first in `order` of the untried rows that are nearest to the cheap ends, all equally near ones included."""
    tried = {ledger.space.row_number(trial.config) for trial in ledger.trials}
    untried = [row for row in order if row not in tried]
    distances = ledger.space.row_distances[untried]
    limit = np.sort(distances)[max(1, math.ceil(share * len(untried))) - 1]
    return untried[int(np.argmax(distances <= limit))]


def _candidates(space: Space, seed: int, tried: int, cost_share: float) -> Iterator[dict[str, Any]]:
    for probe in range(_PROBES if space.dims else 0):
        drawn = point(seed, "configs", space.dims, tried + probe * _STRIDE)
        if cost_share < 1.0:  # where all configs near the cheap ends were tried, use more and more of the ranges
            drawn = space.move_to_cheap_end(drawn, cost_share + (1.0 - cost_share) * probe / _PROBES)
        yield space.from_cube(drawn)
    yield from space.grid(10_000)  # nearly all configs were tried: the first untried one will do


@lru_cache(maxsize=16)
def _row_order(seed: int, rows: int) -> list[int]:
    return [int(i) for i in stream(seed, "rows", rows).permutation(rows)]


# the initial design of a policy with a model -------------------------------------------------------------------------
#
# A policy with a model trains some configs in full before it uses the model. Costs of trials differ, so in a budget of time or
# money a few expensive trials could use up a small budget before the model is used. There the design ends as soon as a third of
# the budget is used and two trials are complete. In a budget of epochs every full training costs the same, and a model of one to
# three results chooses worse than evenly spread configs (measured: benchmarks/cost_aware). There the design is never shortened,
# and the user is warned early if the budget is too small for a model.

_DESIGN_SHARE = 1 / 3  # share of a budget of time or money that the design may use
_MIN_RESULTS = 2  # complete trials that a shortened design must have
_MIN_TRAININGS_PER_DESIGN_TRIAL = 2  # that a budget should pay for; with fewer, no model was better than random search


def is_in_design(ledger: Ledger, initial_trials: int, *, whole: bool = False) -> bool:
    """Return whether the next new trial belongs to the initial design.

    Parameters
    ----------
    ledger : Ledger
        The study.
    initial_trials : int
        Number of trials in the design.
    whole : bool
        Never end the design before, also under a budget of time or money.

    Returns
    -------
    bool
        True while the design is not complete.
    """
    if len(ledger.trials) >= initial_trials:
        return False
    if whole or ledger.budget.unit == "epochs":
        return True
    done = sum(trial.steps >= trial.limit for trial in ledger.trials)
    return done < _MIN_RESULTS or ledger.spent + ledger.reserved < _DESIGN_SHARE * ledger.budget.total


def warn_of_small_budget(policy: object, full_trainings: float, max_steps: int) -> str | None:
    """Return a warning for the user if the budget is too small for the model of this policy.

    Parameters
    ----------
    policy : object
        The policy.
    full_trainings : float
        Number of full trainings that the budget pays for.
    max_steps : int
        Steps of a full training.

    Returns
    -------
    str or None
        The warning; None if the budget is large enough.
    """
    first = getattr(policy, "initial_trials", None)
    if not isinstance(first, int) or full_trainings >= _MIN_TRAININGS_PER_DESIGN_TRIAL * first:
        return None
    if getattr(policy, "initial_design", "fixed") != "fixed":
        return None
    name, enough = getattr(policy, "name", type(policy).__name__), _MIN_TRAININGS_PER_DESIGN_TRIAL * first
    remedy = "leave the policy out: the default compares short trainings" if max_steps > 1 else "raise the budget"
    return (
        f"the budget is worth {full_trainings:.3g} full trainings, and {name} uses its model after the first {first}: "
        f"do not expect better results than from random search. Give it {enough} or more, or {remedy}"
    )
