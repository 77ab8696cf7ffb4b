"""Sequential halving that knows the budget: the whole budget is planned at the start and spent at the end.

Karnin, Koren and Somekh, "Almost Optimal Exploration in Multi-Armed Bandits", ICML 2013, Algorithm 1; for training
curves Jamieson and Talwalkar, AISTATS 2016, arXiv:1502.07943.

    paper   here               meaning                                                         unit
    T       budget             the whole budget                                                budget's
    n       arms               new trials; None: round(arms_per_curve * budget in full curves)  —
    2       reduction_factor   one in eta stays after each round                               —
    R       rounds             ceil(log_eta n)                                                 —

Round r spends 1 / (R - r) of the remaining budget, which brings all arms of the round to a common step. Then the best one in eta
by newest loss stay, rounded down: of 12 arms 6, 3 and 1. The last arm gets the rest of the budget. What it cannot use goes to
the next best, and when no trial can be trained further, another race begins with the remaining budget.

Differences from the paper: arms are resumed, so a round adds to earlier training, and under a budget of time a lost state must be
trained again. The number of arms follows from the budget, with at most one arm for every two steps in it. If the budget of a
round does not pay for one more step of all arms that would stay, only the best of them stay.

With several workers a round would wait for its last arms. Meanwhile, arms that have finished the round and are certain to stay
continue to the next round's step. If there are more workers than arms, or budget for a hundred full trainings, the best arms
that were dropped catch up, with budget that the leading arms do not need. If another round would leave half the workers idle,
the leading arms are trained to their end at once. With budget for a hundred full trainings, and half the workers idle already,
the best arms that have finished the round are trained to their end without waiting for the last.

A budget of time or money is converted at the mean price of the steps so far. New trials are started one by one, as many as this
price allows at that moment, and every round is planned again from the remaining budget. If the budget is raised, the trials that
the larger budget would have started are started now, and the arms of the present round continue with them. Trials of one step are
quasi-random search.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from shoestring.core.space.parameters import Scalar
from shoestring.core.values.checks import require_reduction_factor
from shoestring.policies.halving.halving_rounds import (
    ROUND_VIEW,
    Round,
    describe_cut,
    describe_place,
    find_incomplete_arm,
    find_listed_arm,
    make_round_memo,
    rank_arms,
)
from shoestring.policies.halving.newcomers import (
    GUIDE_LABELS,
    Source,
    describe_guided,
    find_newcomer,
    predict_newcomer,
    require_source,
)
from shoestring.policies.halving.rungs import NotPromoted, compare_race
from shoestring.policy import (
    NO_MEMO,
    NO_WHY,
    Decision,
    Labels,
    Ledger,
    Memo,
    Order,
    Prediction,
    Train,
    Trial,
    Wait,
    Why,
    WhyText,
    continue_trial,
    find_untried_config,
    nothing_to_train,
    require_between,
    require_whole,
    train_best_unfinished,
)

_STEPS_PER_ARM = 2  # least steps in the budget for each new trial: its first step, and one for a leading arm
# With a budget of at least this many full trainings, an unnecessary training costs less than an idle worker.
_MANY_TRAININGS = 100
# With that much budget, a part is reserved for at most this many leading arms, or for one arm per eta² workers if that is more.
# So many arms are enough to choose from at the end.
_MAX_LEADERS = 150
_LAST_ROUND = -1  # the number of the round in which the best arm gets the rest of the budget
_LAST_STAGE = "the rest of the budget goes to the best trial that can continue"
_ROUNDING = 1e-12  # relative tolerance: a share of the budget may be spent exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class SequentialHalving:
    reduction_factor: int = 2  # one arm in this many stays after each round
    arms_per_curve: float = 12.5  # new trials for each full training in the budget
    arms: int | None = None  # a fixed number of new trials instead
    newcomers: Source = "drawn"  # new configurations are drawn evenly, or "guided" by a model of first looks
    name: ClassVar[str] = "sequential_halving"
    why_labels: ClassVar[Labels] = {
        **GUIDE_LABELS,
        "arm": "place of this configuration among the new ones (number, from 0)",
        "arms": "trials still compared (trials)",
        "at": "steps trained before (steps)",
        "of": "new configurations planned (number)",
        "round": "round of halving (number, from 0)",
        "rounds": "rounds of halving (number)",
        "share": "budget of this round ({unit})",
        "until": "step to which new configurations are trained (step)",
        "was": "state of the trial",
    }

    def __post_init__(self) -> None:
        require_reduction_factor(self)
        because = "it is the number of trials for each full training in the budget"
        require_between(self, "arms_per_curve", 0.0, math.inf, because, "Try 12.5.")
        require_whole(self, "arms", 2, "there must be something to choose from", "Leave it out.", optional=True)
        require_source(self)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why = order.why
        if "arm" not in why:
            return WhyText()
        planned = f" of about {why['of']}" if "of" in why else ""
        first_look = f"first look at configuration {int(str(why['arm'])) + 1}{planned}"
        return WhyText(clauses=(first_look, *describe_guided(order)))

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.max_steps == 1:
            return self._start_newcomer(ledger, 1, NO_MEMO) or nothing_to_train(ledger)
        current = ledger.view(ROUND_VIEW)
        if not current.facts:
            return self._begin_race(ledger, range(len(ledger.trials)), ledger.budget.total, len(ledger.trials))
        race = RaceFacts.of(current)
        if ledger.budget.total > race.total:
            return self._begin_race(ledger, current.arms, ledger.budget.total, len(ledger.trials))
        return self._next_order(ledger, current, race, NO_MEMO)

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the values that the guide expected of a newcomer and of its best competitors; None if it did not choose."""
        return predict_newcomer(ledger, order)

    # a race ------------------------------------------------------------------------------------------------------------

    def _begin_race(self, ledger: Ledger, arms: Iterable[int], arms_budget: float, arms_at_start: int) -> Decision:
        """Return the first order of a race with these arms and with new trials."""
        listed = [number for number in arms if not ledger.trials[number].is_ended]
        race = RaceFacts(
            total=ledger.budget.total, left_at_start=ledger.left, arms_budget=arms_budget, arms_at_start=arms_at_start
        )
        place_of = {number: place for place, number in enumerate(listed)}
        current = Round(tuple(race), listed, len(listed), 0, place_of, len(ledger.trials))
        return self._next_order(ledger, current, race, make_round_memo(race, listed))

    def _next_order(self, ledger: Ledger, current: Round, race: RaceFacts, memo: Memo) -> Decision:
        """Return the next order of this round, or the first of the next round if this one is complete."""
        if race.round == _LAST_ROUND:
            return self._train_last(ledger, current.arms, {"was": "interrupted"}, memo)
        until = race.until if race.round else self._first_stop(ledger, current, race)
        newcomers = self._count_newcomers(ledger, race) if race.round == 0 else 0
        if ledger.queue or current.newcomers < newcomers:
            planned_arms = race.arms_at_start + newcomers
            newcomer = self._start_newcomer(ledger, until, memo, race.round, len(current.arms), planned_arms)
            if newcomer:
                return newcomer
        is_waiting = _is_waiting(ledger, current, until)
        trial = find_listed_arm(ledger, current, until)
        if trial is None and not is_waiting:
            trial = find_incomplete_arm(ledger, current, until)
        if trial is not None:
            why = {"round": race.round, "arms": len(current.arms), **describe_place(ledger, current, trial)}
            return continue_trial(trial, until, why=why, memo=memo)
        if not is_waiting and (order := self._begin_next_round(ledger, current, race)):
            return order
        return (
            self._promote_early(ledger, current, race, until, memo)
            or self._bring_back(ledger, current, until, memo)
            or self._finish_early(ledger, current, race, until)
            or Wait()
        )

    def _promote_early(self, ledger: Ledger, current: Round, race: RaceFacts, until: int, memo: Memo) -> Train | None:
        """Return the order that promotes the best finished arm while the round waits for others, if it is certain to stay."""
        idle, losses = ledger.view(NotPromoted(until)).waiting, ledger.losses_at(until)
        # two standard errors of the number of these arms that are in the better half of all
        margin = math.sqrt(len(losses))
        certain = math.floor(len(losses) / self.reduction_factor - margin)
        place = bisect_left(losses, idle[0]) if idle else len(losses)
        if place >= certain or not (trial := ledger.trials[idle[0][1]]).can_continue:
            return None
        survivors = max(1, len(current.arms) // self.reduction_factor)
        cost = ArmCost(until, trial.limit, survivors * ledger.step_price(), until)
        stop = current.next_stop
        if not stop:
            rounds = race.rounds or count_rounds(len(current.arms), self.reduction_factor)
            share = ledger.left / max(1, rounds - race.round - 1)
            stop = trial.limit if self._is_race_over(ledger, survivors, [cost]) else find_common_step(share, [cost])
        last, first_out = losses[certain - 1][0], losses[certain]
        cut = compare_race(until, ledger.definition.sign, len(losses), place, idle[0][0], last, first_out)
        why = {"round": race.round + 1, **cut}
        return continue_trial(trial, stop, why=why, memo={**memo, "ahead": [float(stop)]})

    def _bring_back(self, ledger: Ledger, current: Round, until: int, memo: Memo) -> Train | None:
        """Return the order with which the best dropped arm catches up while the round waits for its last arms.

        There is none if the leading arms need the budget. With budget for many full trainings, budget is reserved for a limited
        number of leading arms.
        """
        idle, price, eta = ledger.state.idle, ledger.step_price(), self.reduction_factor
        leaders = max(1, (len(current.arms) + len(current.late_arms)) // eta**2)
        reserved = leaders * (ledger.max_steps - until) * price
        if is_many := self._pays_for_many(ledger, until):
            leaders = min(leaders, max(_MAX_LEADERS, ledger.workers // eta**2))
            reserved = (leaders * (ledger.max_steps - until) - ledger.state.steps_due) * price
        for after, (_, number) in enumerate(idle if is_many or len(current.arms) < ledger.workers else ()):
            steps = ledger.trials[number].steps
            if steps < until:
                if ledger.left - (until - steps) * price < reserved:
                    return None
                stage = "a free worker resumes the best of the dropped trials"
                memo = {**memo, "joins": [float(number)]}
                return train_best_unfinished(ledger, stage, stops=(until,), memo=memo, after=after)
        return None

    def _finish_early(self, ledger: Ledger, current: Round, race: RaceFacts, until: int) -> Train | None:
        """Return the order that trains the best finished arm to its end, if half the workers are idle.

        There must be a worker for each arm that would stay. This needs many arms: if there are few, the finished ones may just be
        those with quick steps.
        """
        survivors = max(1, len(current.arms) // self.reduction_factor)
        is_idle = 2 * len(ledger.open_orders) <= ledger.workers
        if survivors > ledger.workers or not is_idle or not self._pays_for_many(ledger, until):
            return None
        ranked = rank_arms(ledger, [*current.arms, *current.late_arms])
        best = next((number for number in ranked[:survivors] if ledger.trials[number].can_continue), None)
        if best is None:
            return None
        why = {"stage": "the best trials share the rest of the budget", **describe_cut(ledger, ranked, survivors, best)}
        memo = make_round_memo(race._replace(round=_LAST_ROUND), ranked[:survivors])
        return continue_trial(ledger.trials[best], ledger.trials[best].limit, why=why, memo=memo)

    def _pays_for_many(self, ledger: Ledger, until: int) -> bool:
        """Return whether the remaining budget pays for many trainings from this step to their end."""
        return ledger.left >= _MANY_TRAININGS * (ledger.max_steps - until) * ledger.step_price()

    def _begin_next_round(self, ledger: Ledger, current: Round, race: RaceFacts) -> Decision | None:
        """Return the first order of the next round; None if all its arms are being trained or have passed its step."""
        ranked = rank_arms(ledger, [*current.arms, *current.late_arms])
        rounds = race.rounds or count_rounds(len(current.arms), self.reduction_factor)
        round = race.round + 1
        share = ledger.left / max(1, rounds - round)
        survivors = self._cut_to_affordable(ledger, ranked[: max(1, len(ranked) // self.reduction_factor)], share)
        active = [number for number in survivors if not ledger.trials[number].is_ended]
        costs = [cost_of(ledger, ledger.trials[number]) for number in active]
        if len(survivors) <= 1 or not active or self._is_race_over(ledger, len(survivors), costs):
            why = describe_cut(ledger, ranked, len(survivors), active[0]) if active else NO_WHY
            memo = make_round_memo(race._replace(round=_LAST_ROUND), survivors)
            return self._train_last(ledger, survivors, why, memo)
        was_promoted_early = current.next_stop > min(cost.steps for cost in costs)
        until = current.next_stop if was_promoted_early else find_common_step(share, costs)
        race = race._replace(round=round, until=until, rounds=rounds)
        trials = (ledger.trials[number] for number in active)
        if (first := next((trial for trial in trials if trial.steps < until and trial.can_continue), None)) is None:
            return None
        why = {
            "round": round,
            "rounds": rounds,
            "arms": len(survivors),
            "share": share,
            **describe_cut(ledger, ranked, len(survivors), first.number),
        }
        return continue_trial(first, until, why=why, memo=make_round_memo(race, survivors))

    def _is_race_over(self, ledger: Ledger, survivors: int, costs: Sequence[ArmCost]) -> bool:
        """Return whether another round would leave half the workers idle, and the budget pays for one in eta arms to the end."""
        to_the_end = sum(cost.until(cost.limit) for cost in costs)
        return 2 * survivors <= ledger.workers and to_the_end <= self.reduction_factor * ledger.left

    def _cut_to_affordable(self, ledger: Ledger, ranked: Sequence[int], share: float) -> Sequence[int]:
        """Return as many of the best arms as `share` pays for by one more step each; an arm at its end costs nothing."""
        cost = 0.0
        for affordable, number in enumerate(ranked):
            trial = ledger.trials[number]
            if trial.can_continue:  # the next step of an arm that is being trained is already paid for
                cost += cost_of(ledger, trial).until(trial.steps + 1)
            if cost > share * (1 + _ROUNDING):
                return ranked[: max(1, affordable)]
        return ranked

    def _train_last(self, ledger: Ledger, arms: Sequence[int], why: Why, memo: Memo) -> Decision:
        """Return the order that trains the best arm to its end, then the next best; at last the first order of another race."""
        if ledger.left <= 0 and ledger.open_orders:
            return Wait()
        if ledger.queue and (newcomer := self._start_newcomer(ledger, ledger.max_steps, memo, _LAST_ROUND, len(arms))):
            return newcomer
        trials = (ledger.trials[number] for number in rank_arms(ledger, arms))
        if best := next((trial for trial in trials if trial.can_continue), None):
            if why.get("runner_up") == best.number:  # the comparison was that of an arm that has ended since
                why = {name: value for name, value in why.items() if not name.startswith("runner_up")}
            why = {"stage": _LAST_STAGE, **why}
            return continue_trial(best, best.limit, why=why, memo=memo)
        if order := train_best_unfinished(ledger, _LAST_STAGE, memo=memo):
            return order
        if ledger.open_orders or find_untried_config(ledger) is None:
            return nothing_to_train(ledger)
        return self._begin_race(ledger, (), arms_budget=ledger.left, arms_at_start=0)

    # new trials --------------------------------------------------------------------------------------------------------

    def _start_newcomer(
        self, ledger: Ledger, until: int, memo: Memo, round: int = 0, arm: int = 0, planned_arms: float = 0
    ) -> Train | None:
        """Return the order that starts a new trial, or None if no configuration is left."""
        newcomer = find_newcomer(ledger, self.newcomers)
        if newcomer is None:
            return None
        why: dict[str, Scalar] = {"round": round, "arm": arm, "until": until}
        if arm < planned_arms < math.inf:  # it is infinite before the first step was paid
            why["of"] = int(planned_arms)
        return newcomer.start(ledger, until, why, memo)

    def _count_newcomers(self, ledger: Ledger, race: RaceFacts) -> float:
        """Return the number of new trials in the race at the price so far; infinity before a price is known."""
        price = ledger.step_price()
        if not price > 0:
            return math.inf
        return max(0, self.count_arms(race.arms_budget / price, ledger.max_steps) - race.arms_at_start)

    def count_arms(self, steps: float, max_steps: int) -> int:
        """Return the number of arms for a budget of `steps` steps."""
        if self.arms is not None:
            return self.arms
        return max(2, min(round(self.arms_per_curve * steps / max_steps), int(steps / _STEPS_PER_ARM)))

    def _first_stop(self, ledger: Ledger, current: Round, race: RaceFacts) -> int:
        """Return the common step of round 0, to which an equal share of the budget pays for listed arms and new trials."""
        price = ledger.step_price()
        if not price > 0:
            return 1
        newcomers = max(current.newcomers, int(self._count_newcomers(ledger, race)))
        arms = current.listed + newcomers
        if arms <= 1:
            return 1
        listed = (ledger.trials[number] for number in current.arms[: current.listed])
        costs = [cost_of(ledger, trial) for trial in listed if not trial.is_ended]
        if newcomers:
            costs.append(ArmCost(0, ledger.max_steps, newcomers * price, resumable_step=0))
        return find_common_step(race.left_at_start / count_rounds(arms, self.reduction_factor), costs) if costs else 1


def _is_waiting(ledger: Ledger, current: Round, until: int) -> bool:
    """Return whether an arm of the round is being trained to the round's step; an arm beyond that step does not count."""
    under_way = (open_order.order.trial for open_order in ledger.open_orders.values())
    return any(ledger.trials[number].steps < until and current.has(number) for number in under_way)


class RaceFacts(NamedTuple):
    """The numbers in the memo of a round. A race is all rounds from the first new trial to the last arm."""

    round: int = 0
    until: int = 0  # the common step of this round; in round 0 it follows from the price so far
    total: float = 0.0  # the budget that the race was planned for
    left_at_start: float = 0.0  # the remaining budget when the race began
    arms_budget: float = 0.0  # what determines the number of arms: the total budget, or that of a later race
    arms_at_start: int = 0  # trials that count among these arms when the race begins
    rounds: int = 0  # R, known once all new trials are started

    @classmethod
    def of(cls, current: Round) -> RaceFacts:
        round, until, total, left_at_start, arms_budget, arms_at_start, rounds = current.facts
        return cls(int(round), int(until), total, left_at_start, arms_budget, int(arms_at_start), int(rounds))


class ArmCost(NamedTuple):
    """The cost of further training for one arm, or for several arms at the same step."""

    steps: int
    limit: int
    price: float  # price of one step of all these arms together
    resumable_step: int  # less than `steps` if a state was lost and the budget is time: steps are paid again

    def until(self, step: int) -> float:
        """Return the cost of training to `step`."""
        step = min(step, self.limit)
        return self.price * (step - self.resumable_step) if step > self.steps else 0.0


def count_rounds(arms: int, reduction_factor: int) -> int:
    """Return ceil(log_eta arms), computed in whole numbers."""
    rounds = 0
    while reduction_factor**rounds < arms:
        rounds += 1
    return rounds


def cost_of(ledger: Ledger, trial: Trial) -> ArmCost:
    """Return the cost of training a trial further; if it has an open order, beyond that order."""
    price = ledger.step_price(trial.number)
    if trial.open_order is not None:  # the steps of an open order are paid for
        ordered = ledger.orders[trial.open_order].until
        return ArmCost(ordered, trial.limit, price, ordered)
    # An epoch is charged once; time is charged whenever it is spent.
    resumable_step = trial.steps if ledger.budget.unit == "epochs" else trial.resumable_step
    return ArmCost(trial.steps, trial.limit, price, resumable_step)


def find_common_step(share: float, costs: Sequence[ArmCost]) -> int:
    """Return the last step to which `share` pays for all arms; at least one more than the least trained arm has."""
    low, high = min(cost.steps for cost in costs) + 1, max(cost.limit for cost in costs)
    while low < high:
        middle = (low + high + 1) // 2
        total = sum(cost.until(middle) for cost in costs)
        low, high = (middle, high) if total <= share * (1 + _ROUNDING) else (low, middle - 1)
    return low
