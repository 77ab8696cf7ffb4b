"""Sequential halving that knows the budget: all of it is planned from the start, and none is left at the end.

Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013, Algorithm 1; for training
curves Jamieson and Talwalkar, AISTATS 2016, arXiv:1502.07943.

    paper   here               meaning                                                        unit
    T       budget             all that may be spent                                          budget's
    n       arms               newcomers; None: round(arms_per_curve * budget in full curves)  —
    2       reduction_factor   one in eta is kept after each round                            —
    R       rounds             ceil(log_eta n)                                                —

Round r spends 1 / (R - r) of what is left, which brings all arms still in to a common step; then the best one in eta by
newest loss stay, rounded down: 12 arms go on as 6, 3 and 1. The last arm takes the rest, what it cannot use goes to the
next best, and when no trial can be trained further another race begins with what is left.

Departs from the paper: arms are resumed, so a round adds to what was trained before, and under a budget of time a state
that was lost counts as work to do again. The number of arms follows from the budget, at most one for every two steps that
it buys. Where a round's share does not buy one more step for all arms that would stay, only the best of them do.

With several workers a round would wait for its last arms. Meanwhile those that are there and sure to be kept go on to the next
round's step. If there are more workers than arms, or money for a hundred full trainings, the best that were left behind catch up,
with what the favourites do not need. Where halving on would leave half the workers idle, the favourites go to their end at once;
and with money for a hundred, when half are idle already, the best of those that are there do, without waiting for the last.

A budget of time or money is converted at the mean price of the steps so far: newcomers are opened one by one, as many as
this price says by then, and every round is planned anew with what is really left. A raised budget opens the arms that are
missing from what it would have opened, and the arms still in go on with them. Trials of one step are quasi-random search.

The arithmetic of a race that knows its budget: how many rounds, what they cost, how far a share of the money goes.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from shoestring.core.deciding.comparison import compare_race
from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Decision, Memo, Train, Wait, Why
from shoestring.core.deciding.policy import (
    fresh_config,
    nothing_to_buy,
    train_best_unfinished,
    train_further,
    train_new,
)
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.ledger.views import Waiting
from shoestring.core.values.checks import require_between, require_reduction_factor, require_whole
from shoestring.policies.halving.halving_rounds import (
    ROUND_VIEW,
    Round,
    find_listed_arm,
    find_straggler,
    rank,
    round_memo,
    say_cut,
    say_place,
)

_STEPS_PER_ARM = 2  # the budget buys at least so many for each newcomer: one to look at it, one for a favourite
_MANY = 100  # trainings to the end: with money for so many, a free worker is worth more than one of them
_FAVOURITES = 150  # whose money is not touched then, or one for every eta² workers: still many when the rest is spent
_LAST = -1  # the round in which the best takes the rest


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialHalving:
    reduction_factor: int = 2
    arms_per_curve: float = 12.5  # newcomers for each full training that the budget buys
    arms: int | None = None  # overrides it
    name: ClassVar[str] = "sequential_halving"

    def __post_init__(self) -> None:
        require_reduction_factor(self)
        because = "it is how many trials are opened for each full training that the budget buys"
        require_between(self, "arms_per_curve", 0.0, math.inf, because, "Try 12.5.")
        require_whole(self, "arms", 2, "there must be something to choose from", "Leave it out.", optional=True)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.max_steps == 1:
            return self._open_newcomer(ledger, 1, NO_MEMO) or nothing_to_buy(ledger)
        now = ledger.view(ROUND_VIEW)
        if not now.facts:
            return self._begin_race(ledger, range(len(ledger.trials)), ledger.budget.total, len(ledger.trials))
        facts = read_facts(now)
        if ledger.budget.total > facts.total:
            return self._begin_race(ledger, now.arms, ledger.budget.total, len(ledger.trials))
        return self._go_on(ledger, now, facts, NO_MEMO)

    # one race ----------------------------------------------------------------------------------------------------------

    def _begin_race(self, ledger: Ledger, arms: Iterable[int], worth: float, counted: int) -> Decision:
        """Begin a race with these arms and with newcomers; `counted` of its arms are there already."""
        joined = [number for number in arms if not ledger.trials[number].is_stuck]
        facts = Facts(total=ledger.budget.total, purse=ledger.left, worth=worth, counted=counted)
        now = Round(tuple(facts), joined, len(joined), 0, {n: i for i, n in enumerate(joined)}, len(ledger.trials))
        return self._go_on(ledger, now, facts, round_memo(facts, joined))

    def _go_on(self, ledger: Ledger, now: Round, facts: Facts, memo: Memo) -> Decision:
        """The next order of this round; of the next one when it is through."""
        if facts.round == _LAST:
            return self._train_last(ledger, now.arms, {"was": "cut short"}, memo)
        until = facts.until if facts.round else self._first_look(ledger, now, facts)
        wanted = facts.round == 0 and now.newcomers < self._count_newcomers(ledger, facts)
        if (ledger.queue or wanted) and (
            newcomer := self._open_newcomer(ledger, until, memo, facts.round, len(now.arms))
        ):
            return newcomer
        is_awaited = _is_awaited(ledger, now, until)
        trial = find_listed_arm(ledger, now, until)
        if trial is None and not is_awaited:
            trial = find_straggler(ledger, now, until)
        if trial is not None:
            why = {"round": facts.round, "arms": len(now.arms), **say_place(ledger, now, trial)}
            return train_further(trial, until, why=why, memo=memo)
        if not is_awaited and (order := self._begin_next_round(ledger, now, facts)):
            return order
        order = self._send_on(ledger, now, facts, until, memo) or self._widen(ledger, now, until, memo)
        return order or self._wait_no_longer(ledger, now, facts, until) or Wait()

    def _send_on(self, ledger: Ledger, now: Round, facts: Facts, until: int, memo: Memo) -> Train | None:
        """While the round waits for its last arms: the best of those that are there, if it is sure to be kept, goes on."""
        waiting, there = ledger.view(Waiting(until)).waiting, ledger.losses_at(until)
        doubt = math.sqrt(len(there))  # two standard errors: of half that number, who is in the better half of all
        sure = math.floor(len(there) / self.reduction_factor - doubt)
        place = bisect_left(there, waiting[0]) if waiting else len(there)
        if place >= sure or not (trial := ledger.trials[waiting[0][1]]).can_go_on:
            return None
        kept = max(1, len(now.arms) // self.reduction_factor)
        load = Load(until, trial.limit, kept * ledger.step_price(), until)
        stop = now.ahead
        if not stop:
            rounds = facts.rounds or rounds_of(len(now.arms), self.reduction_factor)
            share = ledger.left / max(1, rounds - facts.round - 1)
            stop = trial.limit if self._is_decided(ledger, kept, [load]) else common_step(share, [load])
        last, left = there[sure - 1][0], there[sure]
        cut = compare_race(until, ledger.opened.sign, len(there), place, waiting[0][0], last, left)
        why = {"round": facts.round + 1, **cut}
        return train_further(trial, stop, why=why, memo={**memo, "ahead": [float(stop)]})

    def _widen(self, ledger: Ledger, now: Round, until: int, memo: Memo) -> Train | None:
        """While the round waits: the best that was left behind catches up with it, if the favourites' money is not needed.

        Where many can be trained to the end, not all that two more rounds would keep need be.
        """
        idle, price, eta = ledger.books.idle, ledger.step_price(), self.reduction_factor
        favourites = max(1, (len(now.arms) + len(now.joined)) // eta**2)
        needed = favourites * (ledger.max_steps - until) * price
        if is_many := self._pays_for_many(ledger, until):
            favourites = min(favourites, max(_FAVOURITES, ledger.workers // eta**2))
            needed = (favourites * (ledger.max_steps - until) - ledger.books.steps_due) * price
        for after, (_, number) in enumerate(idle if is_many or len(now.arms) < ledger.workers else ()):
            steps = ledger.trials[number].steps
            if steps < until:
                if ledger.left - (until - steps) * price < needed:
                    return None
                stage = "a free worker brings the next best back into the race"
                memo = {**memo, "joins": [float(number)]}
                return train_best_unfinished(ledger, stage, stops=(until,), memo=memo, after=after)
        return None

    def _wait_no_longer(self, ledger: Ledger, now: Round, facts: Facts, until: int) -> Train | None:
        """Half the workers are idle, and those that would be kept have one each: the best of those that are there take the rest.

        Only where that is many, as a few must not be chosen from those that happen to be quick.
        """
        kept = max(1, len(now.arms) // self.reduction_factor)
        is_idle = 2 * len(ledger.open_orders) <= ledger.workers
        if kept > ledger.workers or not is_idle or not self._pays_for_many(ledger, until):
            return None
        ranked = rank(ledger, [*now.arms, *now.joined])
        best = next((number for number in ranked[:kept] if ledger.trials[number].can_go_on), None)
        if best is None:
            return None
        why = {"stage": "the best take the rest", **say_cut(ledger, ranked, kept, best)}
        memo = round_memo(facts._replace(round=_LAST), ranked[:kept])
        return train_further(ledger.trials[best], ledger.trials[best].limit, why=why, memo=memo)

    def _pays_for_many(self, ledger: Ledger, until: int) -> bool:
        """Whether what is left brings many arms from this step to their end."""
        return ledger.left >= _MANY * (ledger.max_steps - until) * ledger.step_price()

    def _begin_next_round(self, ledger: Ledger, now: Round, facts: Facts) -> Decision | None:
        """The first order of the next round; None: all its arms are under way or ahead of it."""
        ranked = rank(ledger, [*now.arms, *now.joined])
        rounds = facts.rounds or rounds_of(len(now.arms), self.reduction_factor)
        round = facts.round + 1
        share = ledger.left / max(1, rounds - round)
        kept = self._keep_affordable(ledger, ranked[: max(1, len(ranked) // self.reduction_factor)], share)
        going = [number for number in kept if not ledger.trials[number].is_stuck]
        loads = [load_of(ledger, ledger.trials[number]) for number in going]
        if len(kept) <= 1 or not going or self._is_decided(ledger, len(kept), loads):
            why = say_cut(ledger, ranked, len(kept), going[0]) if going else NO_WHY
            return self._train_last(ledger, kept, why, round_memo(facts._replace(round=_LAST), kept))
        is_ahead = now.ahead > min(load.steps for load in loads)
        until = now.ahead if is_ahead else common_step(share, loads)
        facts = facts._replace(round=round, until=until, rounds=rounds)
        idle = (number for number in going if ledger.trials[number].steps < until and ledger.trials[number].can_go_on)
        if (first := next(idle, None)) is None:
            return None
        why = {
            "round": round,
            "rounds": rounds,
            "arms": len(kept),
            "share": share,
            **say_cut(ledger, ranked, len(kept), first),
        }
        return train_further(ledger.trials[first], until, why=why, memo=round_memo(facts, kept))

    def _is_decided(self, ledger: Ledger, kept: int, loads: Sequence[Load]) -> bool:
        """Whether halving on would leave half the workers idle, and what is left brings one in eta of the arms to the end."""
        to_the_end = sum(load.cost(load.limit) for load in loads)
        return 2 * kept <= ledger.workers and to_the_end <= self.reduction_factor * ledger.left

    def _keep_affordable(self, ledger: Ledger, ranked: Sequence[int], share: float) -> Sequence[int]:
        """As many of the best as `share` buys one more step each; those at their end cost nothing."""
        cost = 0.0
        for kept, number in enumerate(ranked):
            trial = ledger.trials[number]
            if trial.can_go_on:  # one that is under way has its next step already
                cost += load_of(ledger, trial).cost(trial.steps + 1)
            if cost > share * (1 + ROUNDING):
                return ranked[: max(1, kept)]
        return ranked

    def _train_last(self, ledger: Ledger, arms: Sequence[int], why: Why, memo: Memo) -> Decision:
        """The last arm takes the rest; what it cannot use goes to the next best, and then to another race."""
        if ledger.left <= 0 and ledger.open_orders:
            return Wait()
        if ledger.queue and (newcomer := self._open_newcomer(ledger, ledger.max_steps, memo, _LAST, len(arms))):
            return newcomer
        going = (ledger.trials[number] for number in rank(ledger, arms))
        if best := next((trial for trial in going if trial.can_go_on), None):
            why = {"stage": "the best takes the rest", **why}
            return train_further(best, best.limit, why=why, memo=memo)
        if order := train_best_unfinished(ledger, "the best takes the rest", memo=memo):
            return order
        if ledger.open_orders or fresh_config(ledger) is None:
            return nothing_to_buy(ledger)
        return self._begin_race(ledger, (), worth=ledger.left, counted=0)

    # its newcomers -----------------------------------------------------------------------------------------------------

    def _open_newcomer(self, ledger: Ledger, until: int, memo: Memo, round: int = 0, arm: int = 0) -> Train | None:
        config = fresh_config(ledger)
        if config is None:
            return None
        why = {"round": round, "arm": arm, "until": until}
        return train_new(ledger, config, until, why=why, memo=memo)

    def _count_newcomers(self, ledger: Ledger, facts: Facts) -> float:
        """How many newcomers the race has, at the price so far; no end of them before anything was paid."""
        price = ledger.step_price()
        if not price > 0:
            return math.inf
        return max(0, self.arms_for(facts.worth / price, ledger.max_steps) - facts.counted)

    def arms_for(self, steps: float, max_steps: int) -> int:
        """The number of arms for a budget that buys so many steps."""
        if self.arms is not None:
            return self.arms
        return max(2, min(round(self.arms_per_curve * steps / max_steps), int(steps / _STEPS_PER_ARM)))

    def _first_look(self, ledger: Ledger, now: Round, facts: Facts) -> int:
        """The common step of round 0: an equal share of the purse, spread over the arms that joined and the newcomers."""
        price = ledger.step_price()
        if not price > 0:
            return 1
        newcomers = max(now.newcomers, int(self._count_newcomers(ledger, facts)))
        arms = now.listed + newcomers
        if arms <= 1:
            return 1
        joined = (ledger.trials[number] for number in now.arms[: now.listed])
        loads = [load_of(ledger, trial) for trial in joined if not trial.is_stuck]
        if newcomers:
            loads.append(Load(0, ledger.max_steps, newcomers * price, held=0))
        return common_step(facts.purse / rounds_of(arms, self.reduction_factor), loads) if loads else 1


def _is_awaited(ledger: Ledger, now: Round, until: int) -> bool:
    """Whether an arm of the round is on its way to the round's step; one that has got there may go on meanwhile."""
    under_way = (open_order.order.trial for open_order in ledger.open_orders.values())
    return any(ledger.trials[number].steps < until and now.has(number) for number in under_way)


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
