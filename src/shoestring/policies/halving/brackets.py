"""Synchronous brackets: many arms for a few steps, the best of them for more, and so on to full training.

    paper   here               meaning                                              unit
    R       max_steps          full training                                        steps
    eta     reduction_factor   one in eta is kept                                   —
    s       halvings           how often a bracket halves                           —
    n       arms               newcomers of a bracket                               —
    i       rung               rung i keeps floor(n / eta**i) arms up to R * eta**(i - s)

Rungs that fall between two steps are rounded to the nearest. An arm is resumed, so it pays only for the increment. When
the space is used up, what is left trains the best unfinished trials to their end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from shoestring.core.decision import NO_MEMO, Decision, Train, Wait
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.policies.halving.rounds import (
    ROUNDS,
    begins,
    best_first,
    best_unfinished,
    can_train,
    further,
    next_arm,
    nothing_to_buy,
)


class Rung(NamedTuple):
    arms: int
    until: int


def most_halvings(max_steps: int, min_steps: int, reduction_factor: int) -> int:
    """floor(log_eta(R)); a little is added because log(243) / log(3) is 4.999… in floating point."""
    units = max(1.0, max_steps / min_steps)
    return math.floor(math.log(units) / math.log(reduction_factor) + 1e-9)


def rungs(arms: int, halvings: int, max_steps: int, reduction_factor: int) -> list[Rung]:
    return [
        Rung(
            max(1, arms // reduction_factor**i),
            max(1, math.floor(max_steps * float(reduction_factor) ** (i - halvings) + 0.5)),
        )
        for i in range(halvings + 1)
    ]


def decide_in_brackets(ledger: Ledger, plan: Callable[[int], Sequence[Rung]], reduction_factor: int) -> Decision:
    """The next order of bracket after bracket; `plan(number)` are the rungs of that bracket."""
    now = ledger.view(ROUNDS)
    bracket, rung = (int(fact) for fact in now.facts or (0, 0))
    size, until = plan(bracket)[rung]
    if ledger.queue or (rung == 0 and len(now.arms) < size):
        config = fresh_config(ledger)
        if config is not None:
            why = {"bracket": bracket, "rung": rung, "arm": len(now.arms), "of": size}
            return Train(trial=len(ledger.trials), config=config, until=until, why=why)
    if trial := next_arm(ledger, now, until):
        place = now.place.get(trial.number, -1)
        return further(trial, until, NO_MEMO, bracket=bracket, rung=rung, rank=place, of=len(now.arms))
    if ledger.open_orders and now.arms:
        return Wait()
    arms: Sequence[int] = now.arms
    for above, (size, until) in enumerate(plan(bracket)[rung + 1 :], start=rung + 1):
        ranked = best_first(ledger, arms)
        arms = ranked[: min(size, max(1, len(ranked) // reduction_factor))]
        for rank, number in enumerate(arms):
            trial = ledger.trials[number]
            if trial.steps < until and can_train(trial):
                memo = begins((bracket, above), arms)
                return further(trial, until, memo, bracket=bracket, rung=above, rank=rank, of=len(ranked))
    return _next_bracket(ledger, bracket + 1 if now.arms else bracket, plan)


def _next_bracket(ledger: Ledger, bracket: int, plan: Callable[[int], Sequence[Rung]]) -> Decision:
    size, until = plan(bracket)[0]
    config = fresh_config(ledger)
    memo = begins((bracket, 0), ())
    if config is not None:
        why = {"bracket": bracket, "rung": 0, "arm": 0, "of": size}
        return Train(trial=len(ledger.trials), config=config, until=until, why=why, memo=memo)
    trial = best_unfinished(ledger)
    if trial is None:
        return nothing_to_buy(ledger)
    return further(trial, trial.limit, memo, stage="no config is left: the best goes on", loss=trial.last_loss)
