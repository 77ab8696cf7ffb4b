"""What policies that train in rounds share: which arms are in, which has not had its order yet, who is best.

A round begins with an order whose memo lists the arms that are in (`arms`) and what the policy wants to remember about
the round (`round`); the view `RoundView` keeps the newest of these. A trial that is opened during a round joins it, so a
bracket's first round begins with no arms, and a config that the user puts into the queue later is tried at once.

Nothing here looks at the whole history for one decision: the arms of a round are walked through once by a cursor, and a
second look at all of them, for arms that were cut short at the wall, is due only when none of them is being trained.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from shoestring.core.deciding.comparison import compare_race, name_score
from shoestring.core.deciding.decision import NO_WHY, Memo, Why
from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Amended, Entry, Opened, Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial


@dataclass(slots=True)
class Round:
    """One round of a race, and who is in it."""

    facts: tuple[float, ...] = ()  # what the policy wrote down when the round began; empty before the first
    arms: list[int] = field(default_factory=list)  # trials that are in: those listed at its beginning, then newcomers
    listed: int = 0
    cursor: int = 0  # listed arms before this one had their order
    place: dict[int, int] = field(default_factory=dict)  # listed arm -> where it stands in `arms`
    trials: int = 0  # opened in the whole study
    joined: list[int] = field(default_factory=list)  # left behind and brought back; nobody waits for them
    ahead: int = 0  # where arms were sent on to before the round was over, so the next round's step; 0: none were
    why: Why = field(default_factory=lambda: NO_WHY)  # of its first order: what the listed arms were chosen by

    @property
    def newcomers(self) -> int:
        return len(self.arms) - self.listed

    def has(self, trial: int) -> bool:
        """Whether this trial is in. Every trial that was opened since the round began is."""
        return trial in self.place or (len(self.arms) > self.listed and trial >= self.arms[self.listed])

    def move_cursor(self, trial: int) -> None:
        """A listed arm has its order: those before it had theirs, or want none."""
        if (i := self.place.get(trial, -1)) >= self.cursor:
            self.cursor = i + 1


def read_round(order: Order, trials: int) -> Round:
    """The round that begins with this order."""
    arms = [int(number) for number in order.memo["arms"]]
    place = {number: i for i, number in enumerate(arms)}
    return Round(tuple(order.memo["round"]), arms, len(arms), 0, place, trials, why=order.why)


@dataclass(frozen=True, slots=True)
class RoundView:
    """The newest round of the policy at work; a change of policy forgets it."""

    def start(self, opened: Opened) -> Round:
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
            state.joined += [int(number) for number in entry.memo.get("joins", ())]
            if "ahead" in entry.memo:
                state.ahead = int(entry.memo["ahead"][0])
        elif isinstance(entry, Amended) and entry.policy is not None:
            state = Round(trials=state.trials)
        return state


ROUND_VIEW = RoundView()


def round_memo(facts: Sequence[float], arms: Sequence[int]) -> Memo:
    """The memo of a round's first order."""
    return {"round": [float(fact) for fact in facts], "arms": [float(number) for number in arms]}


def find_listed_arm(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """The next listed arm of the round that is short of step `until` and had no order yet."""
    for i in range(now.cursor, now.listed):
        trial = ledger.trials[now.arms[i]]
        if trial.steps < until and trial.can_go_on:
            return trial
    return None


def find_straggler(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """An arm of the round that had its order, stopped short of step `until` and can go on: for when nothing is awaited."""
    trials = ledger.trials
    return next((trials[n] for n in now.arms if trials[n].steps < until and trials[n].can_go_on), None)


def say_cut(ledger: Ledger, ranked: Sequence[int], kept: int, chosen: int) -> Why:
    """Why this arm, one of the `kept` best of those `ranked`, goes on."""
    losses = [(ledger.trials[number].last_loss, number) for number in (chosen, *ranked[kept - 1 : kept + 1])]
    left = losses[2] if kept < len(ranked) else None
    rank, step = ranked.index(chosen), ledger.trials[chosen].steps
    return compare_race(step, ledger.opened.sign, len(ranked), rank, losses[0][0], losses[1][0], left)


def say_place(ledger: Ledger, now: Round, trial: Trial) -> Why:
    """Why this arm goes on: as its round's first order told of another, or to catch up if it had its order already."""
    place = now.place.get(trial.number, -1)
    if place < now.cursor:
        return {"was": "cut short", "at": trial.steps}
    sign, loss = ledger.opened.sign, trial.last_loss
    last_kept = sign * float(str(now.why.get("last_kept_score", math.nan)))
    # One that was sent on before has been trained since: what was compared then is not its newest value.
    if now.why.get("score_name") != name_score(trial.steps) or not loss <= last_kept:
        return {"rank": place}
    return {**now.why, "rank": place, "score": sign * loss}


def rank(ledger: Ledger, arms: Iterable[int]) -> list[int]:
    """Arms by their newest loss (infinite for one that diverged or failed), best first, the older of equals first."""
    numbers = sorted(arms)
    losses = np.array([ledger.trials[number].last_loss for number in numbers])
    return [numbers[place] for place in sort_best_first(losses, "lowest", exact=True)]
