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

Which brackets are under way, who is in them, and which of them want to be looked at.

A bracket belongs to the trials that were opened while it was the newest; each of its rungs above the first begins with an
order whose memo lists the arms that are kept (see `rounds`). With many workers there are many brackets under way, nearly all
of them waiting for one long training, so a decision looks only at those in which something has happened.

The ladder that trials climb: settings that asha, successive halving and Hyperband share, and where its rungs are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from shoestring.core.deciding.decision import NO_MEMO, Decision, Memo, Train
from shoestring.core.deciding.policy import (
    fresh_config,
    nothing_to_buy,
    train_best_unfinished,
    train_further,
    train_new,
)
from shoestring.core.ledger.entries import Amended, Entry, Lost, Note, Opened, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config
from shoestring.core.values.checks import require_reduction_factor, require_whole
from shoestring.policies.halving.halving_rounds import (
    Round,
    find_listed_arm,
    find_straggler,
    rank,
    read_round,
    round_memo,
    say_cut,
    say_place,
)

Plan = Callable[[int], "Sequence[Rung]"]


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


@dataclass(slots=True)
class Brackets:
    """All brackets that are not through."""

    newest: int = 0
    rounds: dict[int, Round] = field(default_factory=dict)  # bracket -> its present rung
    bracket_of: dict[int, int] = field(default_factory=dict)  # by trial
    open_orders: dict[int, Order] = field(default_factory=dict)
    under_way: dict[int, set[int]] = field(default_factory=dict)  # bracket -> numbers of its open orders
    stirred: set[int] = field(default_factory=set)  # brackets in which an order was closed, or may have been
    trials: int = 0  # opened in the whole study

    def look_at(self) -> list[int]:
        """Brackets in which something may be bought, the oldest first."""
        return sorted(self.stirred)

    def waits(self, bracket: int, ledger: Ledger) -> bool:
        """Whether an arm of it is being trained."""
        return any(number in ledger.open_orders for number in self.under_way.get(bracket, ()))

    def enter(self, order: Order) -> None:
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
        self.open_orders[order.number] = order
        self.under_way.setdefault(bracket, set()).add(order.number)
        self.stirred.discard(bracket)
        if now.cursor < now.listed:
            self.stirred.add(bracket)

    def close(self, number: int) -> None:
        order = self.open_orders.pop(number, None)
        if order is not None:
            bracket = self.bracket_of[order.trial]
            self.under_way[bracket].discard(number)
            self.stirred.add(bracket)

    def _forget(self, bracket: int) -> None:
        self.rounds.pop(bracket, None)
        self.under_way.pop(bracket, None)
        self.stirred.discard(bracket)


@dataclass(frozen=True, slots=True)
class BracketsView:
    """The brackets of the policy at work; a change of policy forgets them."""

    def start(self, opened: Opened) -> Brackets:
        return Brackets()

    def absorb(self, state: Brackets, entry: Entry) -> Brackets:
        if isinstance(entry, Receipt):
            order = state.open_orders.get(entry.order)
            if order is not None and (entry.status != "ok" or entry.step == order.until):
                state.close(entry.order)
        elif isinstance(entry, Order):
            state.enter(entry)
        elif isinstance(entry, Note) and entry.topic in ("ended", "released"):
            state.close(entry.facts["order"])
        elif isinstance(entry, Lost) and entry.death and entry.trial in state.bracket_of:
            state.stirred.add(state.bracket_of[entry.trial])  # the third death of a trial closes its order
        elif isinstance(entry, Amended) and entry.policy is not None:
            state = Brackets(trials=state.trials)
        return state


BRACKETS_VIEW = BracketsView()


def note_through(memo: Memo, brackets: Iterable[int]) -> Memo:
    """The memo of an order before which these brackets were found to be through."""
    through = [float(number) for number in brackets]
    return {**memo, "through": through} if through else memo


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    reduction_factor: int = 3
    min_steps: int = 1

    def __post_init__(self) -> None:
        require_reduction_factor(self)
        require_whole(self, "min_steps", 1, "a newcomer is trained for at least one step", "Try 1.")


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


@lru_cache(maxsize=64)
def rung_steps(max_steps: int, min_steps: int, reduction_factor: int) -> tuple[int, ...]:
    """min_steps * eta**k below full training, then full training."""
    steps = []
    step = min_steps
    while step < max_steps:
        steps.append(step)
        step *= reduction_factor
    return (*steps, max_steps)
