"""One run, round by round: the config and reward of each round, and the order of the next one.

A round is one step of trial 0, trained with a config of its own. The policy orders each round with or without a validation
pass. The reward of a round is what a model or bandit learns from:

    reward="gain"    how much better the value became since the last validation, per round in between, in units of `unit`
                     (None: the median size of the last ten such gains, because gains shrink during a run and rewards
                     should not), clipped to ±`clip`. The first validation is a baseline and has no reward.
    reward="value"   the value itself, larger is better, divided by `unit` (None: 1), clipped if `clip` is set.

A gain over rounds without validation is due to several configs. Bandits give its mean to the config of the validated round.
Models observe the sum of the gains of these rounds (drift_model.py). Values of rounds that were ordered without validation
are not used.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import deque
from dataclasses import dataclass, field
from statistics import fmean, median

from shoestring.core.ledger.running_totals import upper_quantile
from shoestring.policy import (
    NO_MEMO,
    Config,
    Decision,
    Entry,
    Finish,
    Ledger,
    Memo,
    Order,
    Receipt,
    StudyDefinition,
    Train,
    Wait,
    Why,
)

RUN = 0  # the number of the one trial
_RECENT_GAINS = 10  # gains whose median size is the unit
_HUGE_GAIN = 1e300  # used if the difference of two huge values overflows
_MAX_REWARD = 1e12  # largest reward without a clip: squares of rewards must stay finite


@dataclass(slots=True)
class RunState:
    """The rounds of the run so far, and what the next reward depends on."""

    definition: StudyDefinition
    sign: float  # +1 when larger values are better
    configs: list[Config] = field(default_factory=list)  # by round
    rewards: list[float | None] = field(default_factory=list)  # by round; None: without a reward
    tried: set[str] = field(default_factory=set)  # keys of all configs that a round was trained with
    order: Order | None = None  # the newest order
    value: float | None = None  # value at the last validation
    value_round: int = 0  # round of the last validation
    passes: int = 0  # rounds with a value
    span: int = 1  # number of rounds of which the newest reward is the mean gain
    spans: list[int] = field(default_factory=list)  # by round: that number for each reward
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT_GAINS))  # absolute gains other than 0
    train_s: list[float] = field(default_factory=list)  # training times of all rounds, sorted
    validate_s: list[float] = field(default_factory=list)  # times of all validation passes, sorted


@dataclass(frozen=True, slots=True)
class RunView:
    """View of the rounds of the run so far, with the config and reward of each."""

    reward: str = "gain"
    unit: float | None = None
    clip: float | None = None

    def start(self, definition: StudyDefinition) -> RunState:
        return RunState(definition, sign=-definition.sign)

    def absorb(self, state: RunState, entry: Entry) -> RunState:
        if not isinstance(entry, Order | Receipt) or entry.trial != RUN:
            return state
        if isinstance(entry, Order):
            state.order = entry
        elif entry.status == "ok" and entry.step == len(state.configs) + 1:  # a step trained again is not a new round
            assert state.order is not None  # a receipt follows its order
            self._add_round(state, state.order, entry)
        return state

    def _add_round(self, state: RunState, order: Order, receipt: Receipt) -> None:
        state.configs.append(order.config)
        state.tried.add(state.definition.space.key(order.config))
        insort(state.train_s, receipt.cost.train)
        value = None
        if order.validates(receipt.step):
            insort(state.validate_s, receipt.cost.validate)
            value = receipt.value
        state.passes += value is not None
        state.rewards.append(None if value is None else self._reward(state, state.sign * value, receipt.step))
        state.spans.append(state.span)

    def _reward(self, state: RunState, value: float, round: int) -> float | None:
        before, since = state.value, state.value_round
        state.value, state.value_round = value, round
        if self.reward == "value":
            return self._clip(value / (self.unit or 1.0))
        if before is None:
            return None
        state.span = round - since
        gain = (value - before) / state.span
        if not math.isfinite(gain):
            gain = math.copysign(_HUGE_GAIN, gain)
        return self._clip(gain / self.unit if self.unit is not None else _scale_by_recent(state, gain))

    def _clip(self, reward: float) -> float:
        clip = _MAX_REWARD if self.clip is None else self.clip
        return min(max(reward, -clip), clip)


def _scale_by_recent(state: RunState, gain: float) -> float:
    if gain == 0.0:
        return 0.0
    state.recent.append(abs(gain))
    return gain / median(state.recent)


# the next round --------------------------------------------------------------------------------------------------------


def wait_or_finish(ledger: Ledger) -> Decision | None:
    """Return Wait while a round is being trained, Finish if there can be no next one, and None if one can be ordered."""
    if not ledger.trials:
        return None
    run = ledger.trials[RUN]
    if run.open_order is not None:
        return Wait()
    if run.can_continue:
        return None
    if run.steps >= run.limit:
        return Finish(f"the run is complete after round {run.steps}")
    ending = f"diverged in round {run.steps}" if run.diverged else f"failed in round {run.steps + 1}"
    return Finish(f"the run {ending}, and an online policy has only one")


def find_next_queued(ledger: Ledger, run: RunState) -> Config | None:
    """Return the user's first queued config that no round was trained with yet."""
    queue = ledger.queue
    return next((config for config in queue if ledger.space.key(config) not in run.tried), None) if queue else None


def order_round(ledger: Ledger, run: RunState, config: Config, query: bool, why: Why, memo: Memo = NO_MEMO) -> Train:
    """Return the order of the next round. In time and money, a round without validation is priced without a pass."""
    trial = ledger.trials[RUN] if ledger.trials else None
    until, repeated = (trial.steps + 1, trial.steps - trial.resumable_step) if trial else (1, 0)
    expected = reserve = None
    rate = ledger.budget.per_second(ledger.workers)
    if rate > 0.0 and run.train_s:
        passes = run.validate_s if query else []
        expected = rate * ((1 + repeated) * fmean(run.train_s) + (fmean(passes) if passes else 0.0))
        reserve = rate * ((1 + repeated) * upper_quantile(run.train_s) + upper_quantile(passes))
    return Train(
        trial=RUN,
        config=config,
        until=until,
        validate="last" if query else "none",
        expected_cost=expected,
        reserve=reserve,
        why={"round": until, "compared": 0, **why},
        memo=memo,
    )
