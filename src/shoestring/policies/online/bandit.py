"""Bandits as online policies: a few configs are the arms, and every round of the run pulls one of them.

What they have in common: the arms (rows of a listed space, all configs of a finite one of up to `most_arms`, else that
many quasi-random configs), the fold of observed rewards, and the query rules that need no posterior: "always", or
"bernoulli" with `query_probability`. Rounds without validation teach nothing. A queued config that is no arm is acted with
and then forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Decision
from shoestring.core.entries import Entry, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Scalar
from shoestring.core.quasi_random import point
from shoestring.core.settings import require_whole
from shoestring.core.space import Config
from shoestring.models.online.bandits import exp3s_update
from shoestring.models.online.query_rules import query_by_chance
from shoestring.policies.online.ce_gp_ucb import check_query, check_rewards
from shoestring.policies.online.rounds import (
    RUN,
    Rounds,
    RoundsState,
    check_cap,
    order_round,
    queued_config,
    waiting_or_over,
    why_not_validate,
)

Floats = NDArray[np.float64]


@dataclass(slots=True)
class ArmsState:
    rounds: RoundsState
    arms: Sequence[Config]
    index: dict[str, int]
    opened: Opened
    counts: Floats  # (n_arms,): observed rewards
    sums: Floats  # (n_arms,)
    weights: Floats  # (n_arms,): of EXP3.S
    acted: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Arms:
    """View: rewards observed of each arm; with `mixing` and `sharing` the weights of EXP3.S too."""

    rounds: Rounds
    most_arms: int
    mixing: float | None = None
    sharing: float | None = None  # None: one over the number of rounds

    def start(self, opened: Opened) -> ArmsState:
        arms = _arms(opened, self.most_arms)
        index = {opened.space.key(config): i for i, config in enumerate(arms)}
        n = len(arms)
        return ArmsState(self.rounds.start(opened), arms, index, opened, np.zeros(n), np.zeros(n), np.full(n, 1.0 / n))

    def absorb(self, state: ArmsState, entry: Entry) -> ArmsState:
        done = len(state.rounds.configs)
        state.rounds = self.rounds.absorb(state.rounds, entry)
        if len(state.rounds.configs) == done:
            return state
        key, reward = state.opened.space.key(state.rounds.configs[-1]), state.rounds.rewards[-1]
        state.acted.add(key)
        arm = state.index.get(key)
        if arm is not None and reward is not None:
            state.counts[arm] += 1.0
            state.sums[arm] += reward
            if self.mixing is not None:
                clip = self.rounds.clip
                if self.rounds.reward == "gain" and clip is not None:
                    reward = (reward + clip) / (2.0 * clip)  # EXP3.S is made for [0, 1]
                sharing = 1.0 / state.opened.max_steps if self.sharing is None else self.sharing
                state.weights = exp3s_update(state.weights, arm, reward, mixing=self.mixing, sharing=sharing)
        return state


def _arms(opened: Opened, most: int) -> Sequence[Config]:
    space = opened.space
    if space.rows is not None:
        return space.rows
    if space.size <= most:
        return list(space.grid(most))
    drawn = (space.from_cube(point(opened.seed, "arms", space.dims, i)) for i in range(most))
    return list({space.key(config): config for config in drawn}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineBandit:
    """Settings that all bandits share. Each method says which arm to pull."""

    name: ClassVar[str]
    query: str = "always"
    query_probability: float = 0.5
    reward: str = "gain"
    unit: float | None = None
    clip: float | None = 2.0
    validate_at_most: str | None = None
    most_arms: int = 100

    def __post_init__(self) -> None:
        check_rewards(self, self.reward, self.unit, self.clip)
        check_query(self, self.query, self.query_probability, ("always", "bernoulli"))
        check_cap(self, self.validate_at_most)
        require_whole(self, "most_arms", 1, "an arm is needed to pull", "Try 100.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (over := waiting_or_over(ledger)) is not None:
            return over
        round = ledger.trials[RUN].steps + 1 if ledger.trials else 1
        state = ledger.view(self._view())
        config = queued_config(ledger, state.acted)
        why: dict[str, Scalar] = {"query": "queued"}
        query = True
        if config is None:
            query = self.query == "always" or state.rounds.value is None
            query = query or query_by_chance(self.query_probability, rng)
            arm, told = self._pull(state, round, rng)
            config, why = state.arms[arm], why | {"query": self.query, "arm": arm, **told}
        if query and (refusal := why_not_validate(ledger, self.validate_at_most)):
            query, why["query"] = False, refusal
        return order_round(ledger, state.rounds, config, query, why)

    def _view(self) -> Arms:
        return Arms(Rounds(self.reward, self.unit, self.clip), self.most_arms)

    def _pull(self, state: ArmsState, round: int, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        """The arm, and the numbers behind it."""
        raise NotImplementedError
