"""Brackets: many arms for a few steps, the best of them for more, and so on to full training.

    paper   here               meaning                                              unit
    R       max_steps          full training                                        steps
    eta     reduction_factor   one in eta is kept                                   —
    s       halvings           how often a bracket halves                           —
    n       arms               newcomers of a bracket                               —
    i       rung               rung i keeps floor(n / eta**i) arms up to R * eta**(i - s)

Rungs that fall between two steps are rounded to the nearest. An arm is resumed, so it pays only for the increment. Each
bracket waits for the last arm of a rung; while it waits, workers that are free begin the next bracket, and go on with an
older one as soon as it is ready. With one worker nothing waits, and bracket follows bracket. When the space is used up, what
is left trains the best unfinished trials to their end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from shoestring.core.decision import NO_MEMO, Decision, Memo, Train
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config, nothing_to_buy, train_best_unfinished, train_further, train_new
from shoestring.core.space import Config
from shoestring.policies.halving.bracket_view import BRACKETS_VIEW, Brackets, note_through
from shoestring.policies.halving.ladder import Rung
from shoestring.policies.halving.rounds import (
    Round,
    find_listed_arm,
    find_straggler,
    rank,
    round_memo,
    say_cut,
    say_place,
)

Plan = Callable[[int], Sequence[Rung]]


def decide_in_brackets(ledger: Ledger, plan: Plan, reduction_factor: int) -> Decision:
    """The next order of the oldest bracket that is ready for one; `plan(number)` are the rungs of that bracket."""
    now = ledger.view(BRACKETS_VIEW)
    config = fresh_config(ledger)
    through: list[int] = []
    decision: Decision | None = _fill(ledger, now, plan, config) if ledger.queue else None
    for bracket in () if decision else now.look_at():
        if bracket == now.newest and (decision := _fill(ledger, now, plan, config)):
            break
        if decision := _go_on(ledger, now, bracket, plan, reduction_factor):
            break
        if not now.waits(bracket, ledger):
            through.append(bracket)
    decision = decision or _fill(ledger, now, plan, config) or _begin(ledger, now, plan, config)
    return replace(decision, memo=note_through(decision.memo, through)) if isinstance(decision, Train) else decision


def _fill(ledger: Ledger, now: Brackets, plan: Plan, config: Config | None) -> Train | None:
    """A newcomer for the newest bracket, which has room at its first rung or must take what the user put in the queue."""
    current = now.rounds.get(now.newest, Round((now.newest, 0)))
    rung = int(current.facts[1])
    size, until = plan(now.newest)[rung]
    if config is None or not (ledger.queue or (rung == 0 and len(current.arms) < size)):
        return None
    return _open(ledger, config, now.newest, Rung(size, until), rung, len(current.arms))


def _begin(ledger: Ledger, now: Brackets, plan: Plan, config: Config | None) -> Decision:
    if config is None:
        order = train_best_unfinished(ledger, "no config is left: the best goes on")
        return order or nothing_to_buy(ledger)
    bracket = now.newest + 1
    return _open(ledger, config, bracket, plan(bracket)[0], 0, 0, round_memo((bracket, 0), ()))


def _open(
    ledger: Ledger, config: Config, bracket: int, place: Rung, rung: int, arm: int, memo: Memo = NO_MEMO
) -> Train:
    why = {"bracket": bracket, "rung": rung, "arm": arm, "of": place.arms}
    return train_new(ledger, config, place.until, why=why, memo=memo)


def _go_on(ledger: Ledger, now: Brackets, bracket: int, plan: Plan, reduction_factor: int) -> Train | None:
    """The next order of this bracket; None: it waits for an arm, or it is through."""
    current = now.rounds[bracket]
    rung, trials = int(current.facts[1]), ledger.trials
    until = plan(bracket)[rung].until
    trial = find_listed_arm(ledger, current, until)
    if trial is None:
        if now.waits(bracket, ledger):
            return None
        trial = find_straggler(ledger, current, until)
    if trial is not None:
        return train_further(trial, until, why={"bracket": bracket, "rung": rung, **say_place(ledger, current, trial)})
    arms: Sequence[int] = current.arms
    for above, (size, until) in enumerate(plan(bracket)[rung + 1 :], start=rung + 1):
        ranked = rank(ledger, arms)
        arms = ranked[: min(size, max(1, len(ranked) // reduction_factor))]
        for number in arms:
            trial = trials[number]
            if trial.steps < until and trial.can_go_on:
                cut = say_cut(ledger, ranked, len(arms), number)
                memo = round_memo((bracket, above), arms)
                return train_further(trial, until, why={"bracket": bracket, "rung": above, **cut}, memo=memo)
    return None
