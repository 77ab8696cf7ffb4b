"""Brackets: many arms for a few steps, the best of them for more, and so on to full training.

    paper   here               meaning                                                      unit
    R       max_steps          full training                                                steps
    eta     reduction_factor   one in eta stays                                             —
    s       halvings           number of rungs of a bracket above the first                 —
    n       arms               new trials of a bracket                                      —
    i       rung               rung i trains floor(n / eta**i) arms up to R * eta**(i - s)  —

Rungs between two steps are rounded to the nearest step. An arm is resumed, so only its additional steps cost. Each bracket waits
for the last arm of a rung. Meanwhile, free workers begin the next bracket, and continue an older one as soon as it is ready. With
one worker nothing waits, and one bracket follows another. When the space is used up, the remaining budget trains the best
unfinished trials to their end.

A trial belongs to the bracket that was the newest when it was started. Each rung above the first begins with an order whose memo
lists its arms (see `halving_rounds`). With many workers many brackets are under way, nearly all of them waiting for one long
training, so a decision reads only the brackets in which an order was closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from shoestring.core.ledger.order_closing import OpenOrders
from shoestring.policies.halving.halving_rounds import (
    Round,
    describe_cut,
    describe_place,
    find_incomplete_arm,
    find_listed_arm,
    make_round_memo,
    rank_arms,
    read_round,
)
from shoestring.policies.halving.newcomers import Source, find_newcomer
from shoestring.policy import (
    NO_MEMO,
    Amendment,
    Decision,
    Entry,
    Ledger,
    Memo,
    Order,
    StudyDefinition,
    Train,
    continue_trial,
    nothing_to_train,
    train_best_unfinished,
)

Plan = Callable[[int], "Sequence[Rung]"]  # number of a bracket -> its rungs


def decide_in_brackets(ledger: Ledger, plan: Plan, reduction_factor: int, source: Source) -> Decision:
    """Return the next order of the oldest bracket that is ready for one; new configurations come from `source`."""
    now = ledger.view(BRACKETS_VIEW)
    finished: list[int] = []
    decision: Decision | None = _fill(ledger, now, plan, source) if ledger.queue else None
    for bracket in () if decision else now.list_changed():
        if bracket == now.newest and (decision := _fill(ledger, now, plan, source)):
            break
        if decision := _continue_bracket(ledger, now, bracket, plan, reduction_factor):
            break
        if not now.is_waiting(bracket):
            finished.append(bracket)
    decision = decision or _fill(ledger, now, plan, source) or _begin(ledger, now, plan, source)
    return replace(decision, memo=add_finished(decision.memo, finished)) if isinstance(decision, Train) else decision


def _fill(ledger: Ledger, now: Brackets, plan: Plan, source: Source) -> Train | None:
    """Return the order for a new trial of the newest bracket if its first rung has room or the user's queue is not empty."""
    current = now.rounds.get(now.newest, Round((now.newest, 0)))
    rung = int(current.facts[1])
    size, until = plan(now.newest)[rung]
    if not (ledger.queue or (rung == 0 and len(current.arms) < size)):
        return None
    return _open(ledger, source, now.newest, Rung(size, until), rung, len(current.arms))


def _begin(ledger: Ledger, now: Brackets, plan: Plan, source: Source) -> Decision:
    """Return the first order of the next bracket, or of the best unfinished trial if no configuration is left."""
    bracket = now.newest + 1
    first = _open(ledger, source, bracket, plan(bracket)[0], 0, 0, make_round_memo((bracket, 0), ()))
    best = "no configuration is left: the best trial is trained further"
    return first or train_best_unfinished(ledger, best) or nothing_to_train(ledger)


def _open(
    ledger: Ledger, source: Source, bracket: int, place: Rung, rung: int, arm: int, memo: Memo = NO_MEMO
) -> Train | None:
    """Return the order that starts a trial of a bracket; None if no configuration is left."""
    newcomer = find_newcomer(ledger, source)
    why = {"bracket": bracket, "rung": rung, "arm": arm, "of": place.arms}
    return newcomer.start(ledger, place.until, why, memo) if newcomer else None


def _continue_bracket(ledger: Ledger, now: Brackets, bracket: int, plan: Plan, reduction_factor: int) -> Train | None:
    """Return the next order of this bracket; None if it waits for an arm or is finished."""
    current = now.rounds[bracket]
    rung, trials = int(current.facts[1]), ledger.trials
    until = plan(bracket)[rung].until
    trial = find_listed_arm(ledger, current, until)
    if trial is None:
        if now.is_waiting(bracket):
            return None
        trial = find_incomplete_arm(ledger, current, until)
    if trial is not None:
        why = {"bracket": bracket, "rung": rung, **describe_place(ledger, current, trial)}
        return continue_trial(trial, until, why=why)
    arms: Sequence[int] = current.arms
    for above, (size, until) in enumerate(plan(bracket)[rung + 1 :], start=rung + 1):
        ranked = rank_arms(ledger, arms)
        arms = ranked[: min(size, max(1, len(ranked) // reduction_factor))]
        for number in arms:
            trial = trials[number]
            if trial.steps < until and trial.can_continue:
                cut = describe_cut(ledger, ranked, len(arms), number)
                memo = make_round_memo((bracket, above), arms)
                return continue_trial(trial, until, why={"bracket": bracket, "rung": above, **cut}, memo=memo)
    return None


@dataclass(slots=True)
class Brackets:
    """All brackets that are not finished."""

    newest: int = 0
    rounds: dict[int, Round] = field(default_factory=dict)  # bracket -> its current rung
    bracket_of: dict[int, int] = field(default_factory=dict)  # trial -> bracket
    open_orders: OpenOrders = field(default_factory=OpenOrders)
    under_way: dict[int, set[int]] = field(default_factory=dict)  # bracket -> numbers of its open orders
    changed: set[int] = field(default_factory=set)  # brackets in which an order was closed since their last order
    trials: int = 0  # number of trials in the whole study

    def list_changed(self) -> list[int]:
        """Return the brackets that may have a next order, the oldest first."""
        return sorted(self.changed)

    def is_waiting(self, bracket: int) -> bool:
        """Return whether an arm of the bracket is being trained."""
        return bool(self.under_way.get(bracket))

    def enter(self, order: Order) -> None:
        """Add an order to the bracket of its trial, after what its memo says about brackets and rungs."""
        for number in order.memo.get("through", ()):
            self._forget(int(number))
        if "arms" in order.memo:
            now = read_round(order, self.trials)
            self.newest = max(self.newest, int(now.facts[0]))
            self.rounds[int(now.facts[0])] = now
        if order.trial == self.trials:
            self.trials += 1
            self.bracket_of[order.trial] = self.newest
            self.rounds.setdefault(self.newest, Round((self.newest, 0))).arms.append(order.trial)
        bracket = self.bracket_of.get(order.trial, -1)
        if bracket not in self.rounds:
            return
        now = self.rounds[bracket]
        now.move_cursor(order.trial)
        self.under_way.setdefault(bracket, set()).add(order.number)
        self.changed.discard(bracket)
        if now.cursor < now.listed:
            self.changed.add(bracket)

    def close(self, order: Order) -> None:
        """Remove an order that was closed, and mark its bracket as changed."""
        bracket = self.bracket_of.get(order.trial, -1)
        if order.number in self.under_way.get(bracket, ()):
            self.under_way[bracket].discard(order.number)
            self.changed.add(bracket)

    def _forget(self, bracket: int) -> None:
        self.rounds.pop(bracket, None)
        self.under_way.pop(bracket, None)
        self.changed.discard(bracket)


@dataclass(frozen=True, slots=True)
class BracketsView:
    """View of the brackets of the current policy; a change of policy clears them."""

    def start(self, definition: StudyDefinition) -> Brackets:
        return Brackets()

    def absorb(self, state: Brackets, entry: Entry) -> Brackets:
        closed = state.open_orders.absorb(entry)
        if closed is not None:
            state.close(closed)
        elif isinstance(entry, Order):
            state.enter(entry)
        elif isinstance(entry, Amendment) and entry.policy is not None:
            state = Brackets(trials=state.trials, open_orders=state.open_orders)
        return state


BRACKETS_VIEW = BracketsView()


def add_finished(memo: Memo, brackets: Iterable[int]) -> Memo:
    """Return the memo with the numbers of the brackets that are finished."""
    numbers = [float(number) for number in brackets]
    return {**memo, "through": numbers} if numbers else memo


class Rung(NamedTuple):
    """The number of arms of a rung, and the step up to which they are trained."""

    arms: int
    until: int


def make_rungs(arms: int, halvings: int, max_steps: int, reduction_factor: int) -> list[Rung]:
    """Return the rungs of a bracket that begins with this number of arms."""
    return [
        Rung(
            max(1, arms // reduction_factor**i),
            max(1, math.floor(max_steps * float(reduction_factor) ** (i - halvings) + 0.5)),
        )
        for i in range(halvings + 1)
    ]
