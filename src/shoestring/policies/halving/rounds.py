"""What policies that train in rounds share: which arms are in, which has not had its order yet, who is best.

A round begins with an order whose memo lists the arms that are in (`arms`) and what the policy wants to remember about
the round (`round`); the view `RoundView` keeps the newest of these. A trial that is opened during a round joins it, so a
bracket's first round begins with no arms, and a config that the user puts into the queue later is tried at once.

Nothing here looks at the whole history for one decision: the arms of a round are walked through once by a cursor, and a
second look at all of them, for arms that were cut short at the wall, is due only when no order is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoestring.core.books import Trial
from shoestring.core.comparing import compare_race
from shoestring.core.decision import NO_WHY, Memo, Why
from shoestring.core.entries import Amended, Entry, Opened, Order
from shoestring.core.ledger import Ledger


@dataclass(slots=True)
class Round:
    """One round of a race, and who is in it."""

    facts: tuple[float, ...] = ()  # what the policy wrote down when the round began; empty before the first
    arms: list[int] = field(default_factory=list)  # trials that are in: those listed at its beginning, then newcomers
    listed: int = 0
    cursor: int = 0  # listed arms before this one had their order
    place: dict[int, int] = field(default_factory=dict)  # listed arm -> where it stands in `arms`
    trials: int = 0  # opened in the whole study
    why: Why = field(default_factory=lambda: NO_WHY)  # of its first order: what the listed arms were chosen by

    @property
    def newcomers(self) -> int:
        return len(self.arms) - self.listed


@dataclass(frozen=True, slots=True)
class RoundView:
    """The newest round of the policy at work; a change of policy forgets it."""

    def start(self, opened: Opened) -> Round:
        return Round()

    def absorb(self, state: Round, entry: Entry) -> Round:
        if isinstance(entry, Order):
            if "arms" in entry.memo:
                arms = [int(number) for number in entry.memo["arms"]]
                place = {number: i for i, number in enumerate(arms)}
                state = Round(tuple(entry.memo["round"]), arms, len(arms), 0, place, state.trials, entry.why)
            if entry.trial == state.trials:
                state.trials += 1
                state.arms.append(entry.trial)
            elif (i := state.place.get(entry.trial, -1)) >= state.cursor:
                state.cursor = i + 1
        elif isinstance(entry, Amended) and entry.policy is not None:
            state = Round(trials=state.trials)
        return state


ROUND_VIEW = RoundView()


def round_memo(facts: Sequence[float], arms: Sequence[int]) -> Memo:
    """The memo of a round's first order."""
    return {"round": [float(fact) for fact in facts], "arms": [float(number) for number in arms]}


def find_next_arm(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """The next arm of the round that is short of step `until`, None if all have got there or are on their way."""
    trials = ledger.trials
    for i in range(now.cursor, now.listed):
        trial = trials[now.arms[i]]
        if trial.steps < until and trial.can_go_on:
            return trial
    if ledger.open_orders:
        return None
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
    if not now.why.get("compared"):
        return {"rank": place}
    return {**now.why, "rank": place, "score": ledger.opened.sign * trial.last_loss}


def rank(ledger: Ledger, arms: Iterable[int]) -> list[int]:
    """Arms by their newest loss (infinite for one that diverged or failed), best first, the older of equals first."""
    return sorted(arms, key=lambda number: (ledger.trials[number].last_loss, number))
