"""What all online policies share: one run, round by round, the rewards of its rounds, and what validation may cost.

A round is one step of trial 0, trained with a config of its own. The policy buys each round with or without a validation
pass; the reward of a round is what the model or bandit learns from:

    reward="gain"    how much better the value got since the last validation, per round in between, in units of `unit`
                     (None: the median size of the last ten such gains, since gains shrink as a run goes on and rewards
                     should not), clipped to ±`clip`. The first validation is a baseline and gives no reward.
    reward="value"   the value itself, better upwards, divided by `unit` (None: 1), clipped too if asked for.

A gain that spans rounds without validation was made by several configs. Bandits credit its mean to the config that was
validated. Models credit that config with what is left when the other rounds' expected gains are taken off, believed the
less, the less sure those are (online_belief.py). Values of rounds whose validation was not bought are never looked at.
"""

from __future__ import annotations

import math
import re
from bisect import insort
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from shoestring.core.decision import NO_MEMO, Decision, Finish, Memo, Train, Wait, Why
from shoestring.core.entries import Entry, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import duration_s
from shoestring.core.space import Config
from shoestring.errors import BudgetError, PolicyError

RUN = 0  # the number of the one trial
_RECENT = 10  # gains that the unit is taken from
_RESERVE_QUANTILE = 0.9  # as the core reserves


@dataclass(slots=True)
class RoundsState:
    sign: float  # +1 when larger values are better
    configs: list[Config] = field(default_factory=list)  # by round
    rewards: list[float | None] = field(default_factory=list)  # by round; None: nothing to learn from it
    order: Order | None = None  # the newest of the run
    value: float | None = None  # at the last validation
    value_round: int = 0
    span: int = 1  # rounds that the newest reward is the mean gain of
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=_RECENT))  # sizes of gains other than 0
    train_s: list[float] = field(default_factory=list)  # of all rounds, sorted
    validate_s: list[float] = field(default_factory=list)  # of all validation passes, sorted


@dataclass(frozen=True, slots=True)
class Rounds:
    """View: the rounds of the run so far, each with its config and reward."""

    reward: str = "gain"
    unit: float | None = None
    clip: float | None = None

    def start(self, opened: Opened) -> RoundsState:
        return RoundsState(sign=1.0 if opened.direction == "max" else -1.0)

    def absorb(self, state: RoundsState, entry: Entry) -> RoundsState:
        if isinstance(entry, Order):
            if entry.trial == RUN:
                state.order = entry
        elif isinstance(entry, Receipt) and entry.trial == RUN and entry.status == "ok" and state.order is not None:
            round = len(state.configs) + 1
            if entry.step == round:  # a step that was run again is no new round
                state.configs.append(state.order.config)
                insort(state.train_s, entry.cost.train)
                if state.order.validates(round):
                    insort(state.validate_s, entry.cost.validate)
                state.rewards.append(self._reward(state, entry.value if state.order.validates(round) else None, round))
        return state

    def _reward(self, state: RoundsState, reported: float | None, round: int) -> float | None:
        if reported is None:
            return None
        value = state.sign * reported
        before, since = state.value, state.value_round
        state.value, state.value_round = value, round
        if self.reward == "value":
            return self._clipped(value / (self.unit or 1.0))
        if before is None:
            return None
        state.span = round - since
        gain = (value - before) / state.span
        if not math.isfinite(gain):  # two huge values of opposite sign
            gain = math.copysign(1e300, gain)
        return self._clipped(gain / self.unit if self.unit is not None else _in_recent_units(state, gain))

    def _clipped(self, reward: float) -> float:
        clip = 1e12 if self.clip is None else self.clip  # a bound that keeps squares of rewards finite
        return min(max(reward, -clip), clip)


def _in_recent_units(state: RoundsState, gain: float) -> float:
    if gain == 0.0:
        return 0.0
    state.recent.append(abs(gain))
    return gain / median(state.recent)


def waiting_or_over(ledger: Ledger) -> Decision | None:
    """Wait while a round is being trained, Finish when no further one can be; None: decide on the next round."""
    if not ledger.trials:
        return None
    run = ledger.trials[RUN]
    if run.open_order is not None:
        return Wait()
    if run.is_stuck:
        if run.steps >= run.limit:
            return Finish(f"the run is at its end, round {run.steps}")
        what = "diverged" if run.diverged else "failed"
        return Finish(f"the run {what} in round {run.steps + (what == 'failed')}, and an online policy has only one")
    return None


def queued_config(ledger: Ledger, acted: set[str]) -> Config | None:
    """The user's first queued config that no round was trained with yet (keys in `acted`)."""
    return next((config for config in ledger.queue if ledger.space.key(config) not in acted), None)


# what a round may cost -------------------------------------------------------------------------------------------------


def order_round(
    ledger: Ledger, rounds: RoundsState, config: Config, query: bool, why: Why, memo: Memo = NO_MEMO
) -> Train:
    """The order of the coming round. In time and money a round without validation is priced without it."""
    run = ledger.trials[RUN] if ledger.trials else None
    until, repeated = (run.steps + 1, run.steps - run.held) if run else (1, 0)
    expected = reserve = None
    rate = ledger.budget.per_second(ledger.workers)
    if rate > 0.0 and rounds.train_s:
        passes = rounds.validate_s if query else []
        expected = rate * ((1 + repeated) * _mean(rounds.train_s) + _mean(passes))
        reserve = rate * ((1 + repeated) * _quantile(rounds.train_s) + _quantile(passes))
    return Train(
        trial=RUN,
        config=config,
        until=until,
        validate="last" if query else "none",
        expected_cost=expected,
        reserve=reserve,
        why={"round": until, **why},
        memo=memo,
    )


def _mean(ascending: Sequence[float]) -> float:
    return math.fsum(ascending) / len(ascending) if ascending else 0.0


def _quantile(ascending: Sequence[float]) -> float:
    return ascending[math.ceil(_RESERVE_QUANTILE * len(ascending)) - 1] if ascending else 0.0


def check_cap(owner: object, at_most: str | None) -> None:
    """Refuse a cap that cannot be read."""
    if at_most is not None:
        try:
            _read_cap(at_most)
        except (BudgetError, ValueError):
            raise PolicyError(
                f"{type(owner).__name__}(validate_at_most={at_most!r}) must be a share of the training cost, a number "
                "of passes or a duration: write '20%', '30 passes' or '10m'."
            ) from None


def why_not_validate(ledger: Ledger, at_most: str | None) -> str:
    """Why a validation pass may not be bought in the coming round; "" when it may.

    A pass is priced at the mean of those bought so far, so the first is always allowed. Passes never use up what the
    rounds still to come need, if the budget could ever have paid for all rounds.
    """
    books, epochs = ledger.books, ledger.budget.unit == "epochs"
    steps = ledger.trials[RUN].steps if ledger.trials else 0
    listed = ledger.opened.prices.validate_epochs if epochs else 0.0
    if listed > 0.0:
        trained, validated = float(books.steps), books.validations * listed
        round_price, pass_price = 1.0, listed
    else:
        trained, validated = books.by_kind["train"], books.by_kind["validate"]
        round_price = trained / steps if steps else 0.0
        pass_price = validated / books.validations if books.validations else 0.0
    if at_most is not None and books.validations:
        kind, most = _read_cap(at_most)
        if kind == "passes" and books.validations + 1 > most:
            return "cap"
        if kind == "share" and validated + pass_price > most * (trained + round_price):
            return "cap"
        seconds = books.by_kind["validate"]
        if kind == "seconds" and seconds * (1.0 + 1.0 / books.validations) > most:
            return "cap"
    if listed == 0.0 and epochs:
        return ""
    rate = 1.0 if epochs else ledger.budget.per_second(books.workers)
    round_price, pass_price = rate * round_price, rate * pass_price
    rounds_left = ledger.max_steps - steps
    completable = ledger.budget.total >= ledger.max_steps * round_price
    needed = rounds_left * round_price if completable else round_price
    return "budget" if ledger.left < needed + pass_price else ""


def _read_cap(text: str) -> tuple[str, float]:
    told = text.strip().lower()
    if found := re.fullmatch(r"(\d+(?:\.\d*)?)\s*%", told):
        return "share", float(found[1]) / 100.0
    if found := re.fullmatch(r"(\d+)\s*(?:pass(?:es)?)", told):
        if int(found[1]) < 1:
            raise ValueError(text)
        return "passes", float(found[1])
    return "seconds", duration_s(told)
