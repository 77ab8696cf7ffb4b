"""The arithmetic of a race that knows its budget: how many rounds, what they cost, how far a share of the money goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from shoestring.core.books import Trial
from shoestring.core.ledger import Ledger
from shoestring.policies.halving.rounds import Round

ROUNDING = 1e-12  # of a share that is spent to the last bit


class Facts(NamedTuple):
    """What a round's memo remembers. A race is all rounds from its newcomers to its winner."""

    round: int = 0
    until: int = 0  # the common step of this round; in round 0 it follows from the price so far
    total: float = 0.0  # the budget that the race was planned for
    purse: float = 0.0  # what was left when the race began
    worth: float = 0.0  # the money that its number of arms is for: the whole budget, or the purse of a later race
    counted: int = 0  # trials there already that count among these arms
    rounds: int = 0  # R, known when all newcomers are there


class Load(NamedTuple):
    """Arms that stand at the same step: what one more step of all of them costs."""

    steps: int
    limit: int
    price: float
    held: int  # steps that need not be paid again: fewer than `steps` where a state was lost and time is money

    def cost(self, step: int) -> float:
        """Of going on to that step."""
        step = min(step, self.limit)
        return self.price * (step - self.held) if step > self.steps else 0.0


def rounds_of(arms: int, reduction_factor: int) -> int:
    """ceil(log_eta arms), in whole numbers."""
    rounds = 0
    while reduction_factor**rounds < arms:
        rounds += 1
    return rounds


def load_of(ledger: Ledger, trial: Trial) -> Load:
    price = ledger.step_price(trial.number)
    if trial.open_order is not None:  # as far as that goes, it is paid for
        ordered = ledger.orders[trial.open_order].until
        return Load(ordered, trial.limit, price, ordered)
    # An epoch is charged once, time whenever it is spent.
    held = trial.steps if ledger.budget.unit == "epochs" else trial.held
    return Load(trial.steps, trial.limit, price, held)


def common_step(share: float, loads: Sequence[Load]) -> int:
    """The furthest step to which `share` brings all arms; at least one more than the least trained has."""
    low, high = min(load.steps for load in loads) + 1, max(load.limit for load in loads)
    while low < high:
        middle = (low + high + 1) // 2
        cost = sum(load.cost(middle) for load in loads)
        low, high = (middle, high) if cost <= share * (1 + ROUNDING) else (low, middle - 1)
    return low


def read_facts(now: Round) -> Facts:
    round, until, total, purse, worth, counted, rounds = now.facts
    return Facts(int(round), int(until), total, purse, worth, int(counted), int(rounds))
