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

from collections.abc import Callable, Sequence

from shoestring.core.decision import Decision, Wait
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config, nothing_to_buy, train_best_unfinished, train_further, train_new
from shoestring.policies.halving.ladder import Rung
from shoestring.policies.halving.rounds import ROUND_VIEW, find_next_arm, rank, round_memo, say_cut, say_place


def decide_in_brackets(ledger: Ledger, plan: Callable[[int], Sequence[Rung]], reduction_factor: int) -> Decision:
    """The next order of bracket after bracket; `plan(number)` are the rungs of that bracket."""
    now = ledger.view(ROUND_VIEW)
    bracket, rung = (int(fact) for fact in now.facts or (0, 0))
    size, until = plan(bracket)[rung]
    if ledger.queue or (rung == 0 and len(now.arms) < size):
        config = fresh_config(ledger)
        if config is not None:
            why = {"bracket": bracket, "rung": rung, "arm": len(now.arms), "of": size}
            return train_new(ledger, config, until, why=why)
    if trial := find_next_arm(ledger, now, until):
        return train_further(trial, until, why={"bracket": bracket, "rung": rung, **say_place(ledger, now, trial)})
    if ledger.open_orders and now.arms:
        return Wait()
    arms: Sequence[int] = now.arms
    for above, (size, until) in enumerate(plan(bracket)[rung + 1 :], start=rung + 1):
        ranked = rank(ledger, arms)
        arms = ranked[: min(size, max(1, len(ranked) // reduction_factor))]
        for number in arms:
            trial = ledger.trials[number]
            if trial.steps < until and trial.can_go_on:
                cut = say_cut(ledger, ranked, len(arms), number)
                memo = round_memo((bracket, above), arms)
                return train_further(trial, until, why={"bracket": bracket, "rung": above, **cut}, memo=memo)
    return _begin_bracket(ledger, bracket + 1 if now.arms else bracket, plan)


def _begin_bracket(ledger: Ledger, bracket: int, plan: Callable[[int], Sequence[Rung]]) -> Decision:
    size, until = plan(bracket)[0]
    config = fresh_config(ledger)
    memo = round_memo((bracket, 0), ())
    if config is not None:
        why = {"bracket": bracket, "rung": 0, "arm": 0, "of": size}
        return train_new(ledger, config, until, why=why, memo=memo)
    order = train_best_unfinished(ledger, "no config is left: the best goes on", memo=memo)
    return order or nothing_to_buy(ledger)
