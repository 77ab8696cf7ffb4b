"""What all online policies share: one run, round by round, the rewards of its rounds, and what validation may cost.

A round is one step of trial 0, trained with a config of its own. The policy buys each round with or without a validation
pass; the reward of a round is what the model or bandit learns from:

    reward="gain"    how much better the value got since the last validation, per round in between, in units of `unit`
                     (None: the running mean of such gains, half of whose weight is younger than seven validations),
                     clipped to ±`clip`. The first validation is a baseline and gives no reward.
    reward="value"   the value itself, better upwards, divided by `unit` (None: 1), clipped too if asked for.

A gain that spans rounds without validation was made by several configs. Its mean per round is credited to the config and
the round that were validated: that is the round whose posterior was in doubt, and rounds are skipped when the same config
leads with confidence. Values of rounds whose validation was not bought are never looked at.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from shoestring.core.decision import Decision, Finish, Wait
from shoestring.core.entries import Entry, Opened, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.money import duration_s
from shoestring.core.space import Config
from shoestring.errors import BudgetError, PolicyError

RUN = 0  # the number of the one trial
_UNIT_MEMORY = 0.9  # weight of the past in the running mean of gains


@dataclass(slots=True)
class RoundsState:
    sign: float  # +1 when larger values are better
    configs: list[Config] = field(default_factory=list)  # by round
    rewards: list[float | None] = field(default_factory=list)  # by round; None: nothing to learn from it
    order: Order | None = None  # the newest of the run
    value: float | None = None  # at the last validation
    value_round: int = 0
    unit_sum: float = 0.0
    unit_weight: float = 0.0


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
        gain = (value - before) / (round - since)
        if not math.isfinite(gain):  # two huge values of opposite sign
            gain = math.copysign(1e300, gain)
        return self._clipped(gain / self.unit if self.unit is not None else _in_running_units(state, gain))

    def _clipped(self, reward: float) -> float:
        clip = 1e12 if self.clip is None else self.clip  # a bound that keeps squares of rewards finite
        return min(max(reward, -clip), clip)


def _in_running_units(state: RoundsState, gain: float) -> float:
    """The gain over the mean size of recent gains, itself included: gains shrink as a run goes on, rewards should not."""
    state.unit_sum = _UNIT_MEMORY * state.unit_sum + abs(gain)
    state.unit_weight = _UNIT_MEMORY * state.unit_weight + 1.0
    unit = state.unit_sum / state.unit_weight
    return gain / unit if unit > 0.0 else 0.0


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


# what validation may cost ----------------------------------------------------------------------------------------------


def check_cap(policy: str, at_most: str | None) -> None:
    """Refuse a cap that cannot be read."""
    if at_most is not None:
        try:
            _read_cap(at_most)
        except (BudgetError, ValueError):
            raise PolicyError(
                f"{policy}(validate_at_most={at_most!r}) must be a share of the training cost, a number of passes or a "
                "duration: write '20%', '30 passes' or '10m'."
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
