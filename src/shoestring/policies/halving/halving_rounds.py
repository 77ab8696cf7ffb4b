"""Rounds of a race, shared by all policies that train in rounds: which arms are in a round, which comes next, which is best.

A round begins with an order whose memo lists the arms of the round (`arms`) and the numbers that the policy stores about it
(`round`). `RoundView` keeps the newest round. A trial that is started during a round joins it. So the first round of a bracket
begins without arms, and a configuration that the user enqueues later is trained at once.

No decision reads the whole history: a cursor passes over the arms of a round once. All arms are checked again, for arms that the
budget limit interrupted, only when none of them is being trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shoestring.policies.halving.rungs import compare_race, name_score
from shoestring.policy import (
    NO_WHY,
    Amendment,
    Entry,
    Ledger,
    Memo,
    Order,
    StudyDefinition,
    Trial,
    Why,
    sort_best_first,
)


@dataclass(slots=True)
class Round:
    """One round of a race and its arms."""

    # numbers that the policy stored when the round began; empty before the first round
    facts: tuple[float, ...] = ()
    # trials of the round: the listed ones, then those started during the round
    arms: list[int] = field(default_factory=list)
    # number of arms that the round began with
    listed: int = 0
    # all listed arms before this place had their order
    cursor: int = 0
    # listed arm -> place in `arms`
    place_of: dict[int, int] = field(default_factory=dict)
    # number of trials in the whole study
    trials: int = 0
    # arms that were dropped and resumed later; the round does not wait for them
    late_arms: list[int] = field(default_factory=list)
    # step of the next round, if arms were promoted before this round was over; else 0
    next_stop: int = 0
    # `why` of the first order: how the listed arms were chosen
    why: Why = field(default_factory=lambda: NO_WHY)

    @property
    def newcomers(self) -> int:
        return len(self.arms) - self.listed

    def has(self, trial: int) -> bool:
        """Return whether this trial is in the round: it is listed, or was started since the round began."""
        return trial in self.place_of or (len(self.arms) > self.listed and trial >= self.arms[self.listed])

    def move_cursor(self, trial: int) -> None:
        """Move the cursor behind a listed arm that has its order."""
        if (place := self.place_of.get(trial, -1)) >= self.cursor:
            self.cursor = place + 1


def read_round(order: Order, trials: int) -> Round:
    """Return the round that begins with this order; `trials` is the number of trials before it."""
    arms = [int(number) for number in order.memo["arms"]]
    place_of = {number: place for place, number in enumerate(arms)}
    return Round(tuple(order.memo["round"]), arms, len(arms), 0, place_of, trials, why=order.why)


@dataclass(frozen=True, slots=True)
class RoundView:
    """View of the newest round of the current policy; a change of policy clears it."""

    def start(self, definition: StudyDefinition) -> Round:
        return Round()

    def absorb(self, state: Round, entry: Entry) -> Round:
        if isinstance(entry, Order):
            if "arms" in entry.memo:
                state = read_round(entry, state.trials)
            if entry.trial == state.trials:
                state.trials += 1
                state.arms.append(entry.trial)
            else:
                state.move_cursor(entry.trial)
            state.late_arms += [int(number) for number in entry.memo.get("joins", ())]
            if "ahead" in entry.memo:
                state.next_stop = int(entry.memo["ahead"][0])
        elif isinstance(entry, Amendment) and entry.policy is not None:
            state = Round(trials=state.trials)
        return state


ROUND_VIEW = RoundView()


def make_round_memo(facts: Sequence[float], arms: Sequence[int]) -> Memo:
    """Return the memo of a round's first order."""
    return {"round": [float(fact) for fact in facts], "arms": [float(number) for number in arms]}


def find_listed_arm(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """Return the next listed arm of the round that is below step `until` and has had no order yet."""
    for i in range(now.cursor, now.listed):
        trial = ledger.trials[now.arms[i]]
        if trial.steps < until and trial.can_continue:
            return trial
    return None


def find_incomplete_arm(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """Return an arm of the round that had its order, stopped below step `until` and can continue."""
    trials = ledger.trials
    return next((trials[n] for n in now.arms if trials[n].steps < until and trials[n].can_continue), None)


def describe_cut(ledger: Ledger, ranked: Sequence[int], survivors: int, chosen: int) -> Why:
    """Return why this arm, one of the `survivors` best of `ranked`, continues."""
    losses = [(ledger.trials[number].last_loss, number) for number in (chosen, *ranked[survivors - 1 : survivors + 1])]
    first_out = losses[2] if survivors < len(ranked) else None
    rank, step = ranked.index(chosen), ledger.trials[chosen].steps
    return compare_race(step, ledger.definition.sign, len(ranked), rank, losses[0][0], losses[1][0], first_out)


def describe_place(ledger: Ledger, now: Round, trial: Trial) -> Why:
    """Return why this arm continues: the comparison of its round's first order, or that an earlier order was interrupted."""
    place = now.place_of.get(trial.number, -1)
    if place < now.cursor:
        return {"was": "interrupted", "at": trial.steps}
    sign, loss = ledger.definition.sign, trial.last_loss
    last_kept = sign * float(str(now.why.get("last_kept_score", math.nan)))
    # An arm that was promoted early has been trained since, so the comparison was not of its newest value.
    if now.why.get("score_name") != name_score(trial.steps) or not loss <= last_kept:
        return {"rank": place}
    return {**now.why, "rank": place, "score": sign * loss}


def rank_arms(ledger: Ledger, arms: Iterable[int]) -> list[int]:
    """Return the arms by newest loss, best first, older first if equal. Diverged and failed arms have an infinite loss."""
    numbers = sorted(arms)
    losses = np.array([ledger.trials[number].last_loss for number in numbers])
    return [numbers[place] for place in sort_best_first(losses, "lowest", exact=True)]
