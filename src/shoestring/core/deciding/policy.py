"""The one question that a policy answers, and the words in which it answers.

A policy is anything with a `name` and a `decide`. It holds settings, never memory: all it knows is in the ledger, so a study
that was cut off goes on as if nothing had happened. `decide` must not change the ledger, and the same ledger must give the
same decision. Settings are kept in the ledger if the policy is a dataclass.

The configs that a policy with a model trains in full before it asks the model: when they end, and when they are all there is.

Where trials cost what they cost, a few dear ones can use up a small budget before the model has a say. So in time and money
the design ends with a third of the budget, once two trials are through. In epochs every full training costs the same, and
a model of one to three results chooses worse than configs that are spread evenly (measured: benchmarks/cost_aware); there
the design stays, and what helps is to say early that the budget is too small for a model.
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
from shoestring.core.ledger.views import UnderWay
from shoestring.core.space.space import Config, Space
from shoestring.core.values.randomness import point, stream

_PROBES = 100  # tries to find an unused config before all are listed
ALL_TRIED = "every config of the space was tried"  # why some methods finish
_STRIDE = 1_000_003  # from one try to the next in the sequence: prime, so that no coordinate stays where it was


@runtime_checkable
class Policy(Protocol):
    @property
    def name(self) -> str: ...

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision: ...


# what a policy may answer --------------------------------------------------------------------------------------------


_NOTHING_COMPARED = {
    "compared": 0
}  # unless the policy tells otherwise, by the functions of `core/deciding/comparison.py`


def train_new(ledger: Ledger, config: Config, until: int, *, why: Why = NO_WHY, memo: Memo = NO_MEMO) -> Train:
    """Open a trial with this config."""
    return Train(trial=len(ledger.trials), config=config, until=until, why={**_NOTHING_COMPARED, **why}, memo=memo)


def train_further(trial: Trial, until: int, *, why: Why = NO_WHY, memo: Memo = NO_MEMO) -> Train:
    """Go on with a trial that exists, never beyond its end."""
    why = {**_NOTHING_COMPARED, **why}
    return Train(trial=trial.number, config=trial.config, until=min(until, trial.limit), why=why, memo=memo)


def settle_first(ledger: Ledger) -> Train | None:
    """What comes before any choice of a policy that trains to the end: the user's config, then what the wall cut short."""
    if ledger.queue:
        return train_new(ledger, ledger.queue[0], ledger.max_steps, why={"phase": "queued"}, memo=ledger.memo)
    mine = ledger.books.memo_from
    trial = next((trial for trial in ledger.trials if trial.can_go_on and trial.last_order >= mine), None)
    if trial is None:
        return None
    return train_further(trial, trial.limit, why={"phase": "cut short", "at": trial.steps}, memo=ledger.memo)


def train_best_unfinished(
    ledger: Ledger, stage: str, *, stops: tuple[int, ...] = (), memo: Memo = NO_MEMO, after: int = 0
) -> Train | None:
    """Go on with the best trial, by its newest loss (the older of equals), to its next stop or to its end; None: none can.

    `after`: so many of the best are left out.
    """
    idle = ledger.books.idle
    if len(idle) <= after:
        return None
    best, why = ledger.trials[idle[after][1]], compare_newest(ledger, idle[after : after + 2], len(idle) - after)
    until = next((stop for stop in stops if stop > best.steps), best.limit)
    return train_further(best, until, why={"stage": stage, **why}, memo=memo)


def compare_newest(ledger: Ledger, ranked: Sequence[tuple[float, int]], count: int) -> Why:
    """Why the first of these (newest loss, trial) was chosen from `count`; the second, if there is one, is the runner-up."""
    sign = ledger.opened.sign
    (loss, _), *rivals = ranked
    runner_up = [(trial, sign * rival) for rival, trial in rivals[:1]]
    best_is: BestIs = "lowest" if sign > 0.0 else "highest"
    return compare("newest value", best_is, count, sign * loss, *(runner_up[0] if runner_up else ()))


def nothing_to_buy(ledger: Ledger, why: str = "every config was tried and every trial is at its end") -> Wait | Finish:
    """No config is left and no trial can go on; an order that is open may still change that."""
    return Wait() if ledger.open_orders else Finish(why)


# trials to choose from -----------------------------------------------------------------------------------------------


def find_results(ledger: Ledger) -> list[Trial]:
    """Idle trials that say something about their config: with a loss (infinite if they diverged at once), or failed.

    One that was stopped early counts too; its best loss is too high, but better than nothing.
    """
    done = [trial for trial in ledger.trials if trial.open_order is None]
    return [trial for trial in done if math.isfinite(trial.best_loss) or trial.diverged or trial.failure]


def find_cut_short(ledger: Ledger, stops: tuple[int, ...]) -> Trial | None:
    """A trial that stands still between two stops, because its order was shortened, cut off or given up."""
    under_way = ledger.view(UnderWay(stops))
    idle = [number for number in under_way.idle if ledger.trials[number].can_go_on]
    return ledger.trials[min(idle, key=under_way.since.__getitem__)] if idle else None


# configs to choose from ----------------------------------------------------------------------------------------------


def fresh_config(ledger: Ledger) -> Config | None:
    """A config not tried yet: the user's own first, then quasi-random points (rows of a listed space in a random order).

    None when a finite space has been used up. Points that differ only in what is inactive are one config, so a point may
    be used although it is new; then the same place of a later stretch of the sequence is tried.
    """
    if ledger.queue:
        return ledger.queue[0]
    space, seed, tried = ledger.space, ledger.opened.seed, len(ledger.trials)
    used = ledger.books.used
    if len(used) >= space.size:  # known at once, without a look through the table
        return None
    if space.rows is not None:
        order = _row_order(seed, len(space.rows))
        rows = (space.rows[order[(tried + i) % len(order)]] for i in range(len(order)))
        return next((row for row in rows if space.key(row) not in used), None)
    return next((config for config in _candidates(space, seed, tried) if space.key(config) not in used), None)


def _candidates(space: Space, seed: int, tried: int) -> Iterator[dict[str, Any]]:
    for probe in range(_PROBES if space.dims else 0):
        yield space.from_cube(point(seed, "configs", space.dims, tried + probe * _STRIDE))
    yield from space.grid(10_000)  # nearly all are used: take the first that is not


@lru_cache(maxsize=16)
def _row_order(seed: int, rows: int) -> list[int]:
    return [int(i) for i in stream(seed, "rows", rows).permutation(rows)]


_SHARE = 1 / 3  # of a budget of time or money
_LEAST_RESULTS = 2
_ENOUGH = 2  # full trainings for each of the design: with fewer no model was ahead of random search


def is_in_design(ledger: Ledger, initial_trials: int) -> bool:
    """Whether the next new trial belongs to a design of so many."""
    if len(ledger.trials) >= initial_trials:
        return False
    if ledger.budget.unit == "epochs":
        return True
    done = sum(trial.steps >= trial.limit for trial in ledger.trials)
    return done < _LEAST_RESULTS or ledger.spent + ledger.reserved < _SHARE * ledger.budget.total


def warn_of_small_budget(policy: object, full_trainings: float, max_steps: int) -> str | None:
    """What to tell whoever gives this policy a budget worth so many full trainings; None: it is enough."""
    first = getattr(policy, "initial_trials", None)
    if not isinstance(first, int) or full_trainings >= _ENOUGH * first:
        return None
    if getattr(policy, "initial_design", "fixed") != "fixed":
        return None
    name, enough = getattr(policy, "name", type(policy).__name__), _ENOUGH * first
    remedy = "leave the policy out: the default compares short trainings" if max_steps > 1 else "raise the budget"
    return (
        f"the budget is worth {full_trainings:.3g} full trainings, and {name} asks its model after the first {first}: "
        f"expect no more than of random search. Give it {enough} or more, or {remedy}"
    )
