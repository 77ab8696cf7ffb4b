"""Which configuration a race starts next: one drawn evenly from the space, or one chosen by what the study has seen.

    drawn    the next quasi-random point, or the next row of a list in random order
    guided   the configuration with the largest expected improvement, by a model of how good all trials look so far (`guide`)

Some newcomers of a guided race are drawn too: the first ones, because there is nothing to go by, and every fifth of the others.
They are the insurance against first steps that mislead: what the model never proposes would otherwise never be tried.
With more than 200 parameters all newcomers are drawn.

An evaluation of the model takes some milliseconds, so its time is limited by what it can gain. If many trials are known or if
first steps are quick, it chooses several newcomers at once, as if the results of those before had come out as predicted. The rule
reads only what the ledger has recorded, so a resumed study decides the same.

    paid with       limit on the time for decisions
    time, money     3 % of the budget, and for newcomers 15 % of what their first steps cost
    epochs          the time that training took, and ten seconds

    guide_plan      in the memo of an order that the model chose: the other newcomers of the same evaluation, best first, each as
                    (expected share of better trials, place...); the place is a row of a list, else a point of the unit cube
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from shoestring.policies.config_table import ConfigsView, ConfigTable
from shoestring.policies.earlier_studies import EARLIER_STUDIES
from shoestring.policy import (
    NO_MEMO,
    NO_WHY,
    Amendment,
    Config,
    Entry,
    Labels,
    Ledger,
    Memo,
    Order,
    Prediction,
    StudyDefinition,
    Train,
    Why,
    find_untried_config,
    require_one_of,
    start_trial,
)

Source = Literal["drawn", "guided"]
GUIDE_LABELS: Labels = {
    "expected_share": "share of trials expected to be better after as many steps (share)",
    "chosen_at": "order at which the model chose this configuration",
    "price": "predicted price of a step ({unit})",
    "learned_from": "earlier studies, and how much their predictions are believed (share)",
    "similar_to": "trials with the most similar configurations",
}
_FIRST_DRAWN = 4  # newcomers that are drawn before the first evaluation of the model
_DRAWN_EVERY = 5  # of the later ones, one in so many is drawn
_THINKING_SHARE = 0.03  # of a budget of time or money, at most, for decisions
_FREE_THINKING_S = 10.0  # with a budget in epochs, decisions may take this much longer than training
_FIRST_STEP_SHARE = 0.15  # of the price of a first step, at most, for choosing its configuration
_TRIALS_FOR_PRICE = 32  # the first trials, by which the price of a first step is known
_EVALUATION_S = 0.01  # assumed time of an evaluation, until two were made: the first one includes imports
_MAX_CHOSEN = 16  # newcomers of one evaluation; if steps are so quick that it would have to be more, all are drawn
_MOST_PARAMETERS = 200  # from more, some hundred trials say nothing, and an evaluation needs much memory
_TRIALS_PER_CHOSEN = 64  # with so many more trials, an evaluation chooses one more newcomer, since it takes longer


class Newcomer(NamedTuple):
    """A configuration to start, why it was chosen, and what later decisions need."""

    config: Config
    why: Why = NO_WHY
    memo: Memo = NO_MEMO

    def start(self, ledger: Ledger, until: int, why: Why, memo: Memo = NO_MEMO) -> Train:
        """Return the order that starts the trial; `why` and `memo` are those of the race."""
        return start_trial(ledger, self.config, until, why={**why, **self.why}, memo={**self.memo, **memo})


@dataclass(slots=True)
class Evaluations:
    """The evaluations of the model so far."""

    count: int = 0
    order: int = 0  # number of the order of the newest evaluation
    memo: Memo = field(default_factory=dict)  # memo of this order
    thinking_s: float = 0.0  # time of its decision
    taken: int = 0  # newcomers of its plan that were started


@dataclass(frozen=True, slots=True)
class EvaluationsView:
    """View of the evaluations of the current policy; a change of policy clears it."""

    def start(self, definition: StudyDefinition) -> Evaluations:
        return Evaluations()

    def absorb(self, state: Evaluations, entry: Entry) -> Evaluations:
        if isinstance(entry, Order):
            if "guide_plan" in entry.memo:
                return Evaluations(state.count + 1, entry.number, entry.memo, entry.thinking_s)
            state.taken += "chosen_at" in entry.why
        return Evaluations() if isinstance(entry, Amendment) and entry.policy is not None else state


EVALUATIONS = EvaluationsView()
CONFIGS = ConfigsView()


def require_source(policy: object) -> None:
    """Raise PolicyError unless the setting `newcomers` of a policy names a source."""
    require_one_of(policy, "newcomers", get_args(Source))


def describe_guided(order: Order) -> tuple[str, ...]:
    """Return clauses for the sentence that explains an order: why a model chose this newcomer; none if it was drawn."""
    share = order.why.get("expected_share")
    if share is None:
        return ()
    clause = f"expected to be among the best {max(1, math.ceil(100 * float(str(share))))} % at its first look"
    if earlier := order.why.get("learned_from"):
        clause += f", as learned from {earlier}"
    if similar := order.why.get("similar_to"):
        first, *others = str(similar).split(", ")
        return (clause, f"similar to trial{'s' if others else ''} {' and '.join([first, *others])}")
    return (clause, f"chosen at order {order.why['chosen_at']}") if "chosen_at" in order.why else (clause,)


def find_newcomer(ledger: Ledger, source: Source) -> Newcomer | None:
    """Return the next configuration to start; None if no configuration is left."""
    drawn = find_untried_config(ledger)
    if drawn is None:
        return None
    number = len(ledger.trials)
    first_drawn = 0 if ledger.view(EARLIER_STUDIES) else _FIRST_DRAWN
    is_drawn = number < first_drawn or number % _DRAWN_EVERY == _DRAWN_EVERY - 1
    if source == "drawn" or ledger.queue or is_drawn or not is_space_narrow(ledger):
        return Newcomer(drawn)
    evaluations = ledger.view(EVALUATIONS)
    if evaluations.count and (planned := _find_planned(evaluations, ledger.view(CONFIGS))):
        return planned
    if count := _count_due(ledger, evaluations):
        from shoestring.policies.halving.guide import choose_newcomers  # a race without a guide never needs the model

        return choose_newcomers(ledger, evaluations.memo, count) or Newcomer(drawn)
    return Newcomer(drawn)


def is_space_narrow(ledger: Ledger) -> bool:
    """Return whether the space has few enough parameters for a model: some hundred trials say nothing about a thousand."""
    return ledger.space.dims <= _MOST_PARAMETERS


def is_thinking_affordable(ledger: Ledger) -> bool:
    """Return whether decisions took at most 3 % of the time so far; with a budget in epochs, hardly more than training took."""
    state = ledger.state
    thinking_s = state.by_kind["thinking"]
    if state.budget.unit == "epochs":
        return thinking_s <= state.seconds - thinking_s + _FREE_THINKING_S
    return thinking_s <= _THINKING_SHARE * state.seconds


def predict_newcomer(ledger: Ledger, order: Order) -> Prediction | None:
    """Return the values that the guide expected of a newcomer and of its best competitors; None if it did not choose."""
    if "guide_plan" not in order.memo:
        return None
    from shoestring.policies.halving.guide import predict_values

    return predict_values(ledger, order)


def _count_due(ledger: Ledger, evaluations: Evaluations) -> int:
    """Return how many newcomers the next evaluation may choose; 0 if it would cost more than it can gain."""
    state = ledger.state
    count = 1 + len(state.trials) // _TRIALS_PER_CHOSEN
    if state.budget.unit == "epochs":
        return count if is_thinking_affordable(ledger) else 0
    evaluation_s = evaluations.thinking_s if evaluations.count > 1 else _EVALUATION_S
    thinking_s = state.by_kind["thinking"] + evaluation_s
    if thinking_s * state.budget.per_second(state.workers) > _THINKING_SHARE * state.budget.total:
        return 0
    first_steps = [trial.step_costs[0] for trial in state.trials[:_TRIALS_FOR_PRICE] if trial.step_costs]
    first_s = math.fsum(first_steps) / len(first_steps) if first_steps else ledger.view(EARLIER_STUDIES).step_s or 0.0
    payable_s = _FIRST_STEP_SHARE * first_s
    if evaluation_s > _MAX_CHOSEN * payable_s:
        return 0
    return max(count, math.ceil(evaluation_s / payable_s) if payable_s > 0 else 1)


# the plan of an evaluation --------------------------------------------------------------------------------------------


def encode_place(table: ConfigTable, cube: Sequence[float], row: int | None) -> list[float]:
    """Return where a configuration is, for a plan."""
    return [float(row)] if row is not None else list(cube)


def _find_planned(evaluations: Evaluations, table: ConfigTable) -> Newcomer | None:
    """Return the best newcomer of the last evaluation that was not started yet."""
    for share, place in _decode_plan(evaluations.memo.get("guide_plan", ()), table, evaluations.taken):
        if table.rows is not None:
            config, is_new = table.rows[int(place[0])], bool(table.unused[int(place[0])])
        else:
            config = table.encoding.space.from_cube(np.array(place))
            is_new = not table.is_tried(table.encoding.points([config]))[0]
        if is_new:
            return Newcomer(config, {"expected_share": share, "chosen_at": evaluations.order})
    return None


def _decode_plan(plan: Sequence[float], table: ConfigTable, first: int) -> Iterator[tuple[float, Sequence[float]]]:
    width = 1 + (1 if table.rows is not None else table.encoding.space.dims)
    for start in range(first * width, len(plan), width):
        share, *place = plan[start : start + width]
        yield share, place
