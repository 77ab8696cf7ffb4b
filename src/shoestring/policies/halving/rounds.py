"""What policies that train in rounds share: which arms are in, which has not had its order yet, who is best.

A round begins with an order whose memo lists the arms that are in (`arms`) and what the policy wants to remember about
the round (`round`); the view `Rounds` keeps the newest of these. A trial that is opened during a round joins it, so a
bracket's first round begins with no arms, and a config that the user puts into the queue later is tried at once.

Nothing here looks at the whole history for one decision: the arms of a round are walked through once by a cursor, and a
second look at all of them, for arms that were cut short at the wall, is due only when no order is open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from shoestring.core.books import Trial
from shoestring.core.decision import Finish, Memo, Train, Wait
from shoestring.core.entries import Amended, Entry, Note, Opened, Order, Receipt
from shoestring.core.ledger import Ledger


@dataclass(slots=True)
class Round:
    facts: tuple[float, ...] = ()  # what the policy wrote down when the round began; empty before the first
    arms: list[int] = field(default_factory=list)  # trials that are in: those listed at its beginning, then newcomers
    listed: int = 0
    cursor: int = 0  # listed arms before this one had their order
    place: dict[int, int] = field(default_factory=dict)  # listed arm -> where it stands in `arms`
    trials: int = 0  # opened in the whole study

    @property
    def newcomers(self) -> int:
        return len(self.arms) - self.listed


@dataclass(frozen=True, slots=True)
class Rounds:
    """The newest round of the policy at work; a change of policy forgets it."""

    def start(self, opened: Opened) -> Round:
        return Round()

    def absorb(self, state: Round, entry: Entry) -> Round:
        if isinstance(entry, Order):
            if "arms" in entry.memo:
                arms = [int(number) for number in entry.memo["arms"]]
                place = {number: i for i, number in enumerate(arms)}
                state = Round(tuple(entry.memo["round"]), arms, len(arms), 0, place, state.trials)
            if entry.trial == state.trials:
                state.trials += 1
                state.arms.append(entry.trial)
            elif (i := state.place.get(entry.trial, -1)) >= state.cursor:
                state.cursor = i + 1
        elif isinstance(entry, Amended) and entry.policy is not None:
            state = Round(trials=state.trials)
        return state


@dataclass(frozen=True, slots=True)
class UnderWay:
    """Trials that were ordered and have neither come to one of the `stops` since, nor ended: running or cut short."""

    stops: tuple[int, ...]

    def start(self, opened: Opened) -> dict[int, None]:
        return {}

    def absorb(self, state: dict[int, None], entry: Entry) -> dict[int, None]:
        if isinstance(entry, Order):
            state[entry.trial] = None
        elif isinstance(entry, Receipt):
            if entry.status in ("failed", "diverged") or entry.step in self.stops:
                state.pop(entry.trial, None)
        elif isinstance(entry, Note) and entry.topic == "ended":
            state.pop(entry.facts["trial"], None)
        return state


ROUNDS = Rounds()


def can_train(trial: Trial) -> bool:
    return trial.open_order is None and not trial.is_stuck


def cut_short(ledger: Ledger, stops: tuple[int, ...]) -> Trial | None:
    """A trial that stands still between two stops, because its order was shortened, cut off or given up."""
    waiting = (ledger.trials[number] for number in ledger.view(UnderWay(stops)))
    return next((trial for trial in waiting if can_train(trial)), None)


def next_arm(ledger: Ledger, now: Round, until: int) -> Trial | None:
    """The next arm of the round that is short of step `until`, None if all have got there or are on their way."""
    trials = ledger.trials
    for i in range(now.cursor, now.listed):
        trial = trials[now.arms[i]]
        if trial.steps < until and can_train(trial):
            return trial
    if ledger.open_orders:
        return None
    return next((trials[n] for n in now.arms if trials[n].steps < until and can_train(trials[n])), None)


def best_first(ledger: Ledger, arms: Iterable[int]) -> list[int]:
    """Arms by their newest loss (infinite for one that diverged or failed), the older of equals first."""
    return sorted(arms, key=lambda number: (ledger.trials[number].last_loss, number))


def best_unfinished(ledger: Ledger) -> Trial | None:
    """The best trial, by its newest loss, that can be trained further."""
    return min(filter(can_train, ledger.trials), key=lambda trial: (trial.last_loss, trial.number), default=None)


def further(trial: Trial, until: int, memo: Memo, **why: float | str) -> Train:
    """Train a trial that exists, never beyond its end."""
    return Train(trial=trial.number, config=trial.config, until=min(until, trial.limit), why=why, memo=memo)


def begins(facts: Sequence[float], arms: Sequence[int]) -> Memo:
    """The memo of a round's first order."""
    return {"round": [float(fact) for fact in facts], "arms": [float(number) for number in arms]}


def nothing_to_buy(ledger: Ledger) -> Wait | Finish:
    """No config is left and no trial can go on; an order that is open may still change that."""
    return Wait() if ledger.open_orders else Finish("every config was tried and every trial is at its end")
