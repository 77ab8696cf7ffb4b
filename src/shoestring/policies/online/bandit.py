"""Bandits as online policies: a few configs are the arms, and every round of the run pulls one of them.

What they have in common: the arms (rows of a listed space, all configs of a finite one of up to `most_arms`, else that
many quasi-random configs), the fold of observed rewards, and the query rules that need no posterior: "always", or
"bernoulli" with `query_probability`. Rounds without validation teach nothing. A queued config that is no arm is acted with
and then forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from shoestring.core.arrays import Floats
from shoestring.core.comparing import compare_scores
from shoestring.core.decision import Decision
from shoestring.core.entries import Entry, Opened
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Scalar
from shoestring.core.quasi_random import point
from shoestring.core.settings import require_whole
from shoestring.core.space import Config
from shoestring.models.online.bandits import draw
from shoestring.models.online.query_rules import query_by_chance
from shoestring.policies.online.online_policy import OnlinePolicy
from shoestring.policies.online.rounds import RunState, RunView, next_queued, order_round, wait_or_finish


@dataclass(slots=True)
class BanditState:
    run: RunState
    arms: Sequence[Config]
    keys: Sequence[str]  # of the arms' configs
    index: dict[str, int]  # of an arm, by its key
    counts: Floats  # (n_arms,): observed rewards
    sums: Floats  # (n_arms,)
    weights: Floats  # (n_arms,): all alike unless the method reweighs them


@dataclass(frozen=True, slots=True)
class BanditArms:
    """View: the arms, and what was observed of each."""

    run: RunView
    most_arms: int

    def start(self, opened: Opened) -> BanditState:
        arms = _list_arms(opened, self.most_arms)
        keys, n = [opened.space.key(config) for config in arms], len(arms)
        index = {key: i for i, key in enumerate(keys)}
        return BanditState(self.run.start(opened), arms, keys, index, np.zeros(n), np.zeros(n), np.full(n, 1.0 / n))

    def absorb(self, state: BanditState, entry: Entry) -> BanditState:
        done = len(state.run.configs)
        state.run = self.run.absorb(state.run, entry)
        if len(state.run.configs) > done:
            arm = state.index.get(state.run.opened.space.key(state.run.configs[-1]))
            reward = state.run.rewards[-1]
            if arm is not None and reward is not None:
                self.credit(state, arm, reward)
        return state

    def credit(self, state: BanditState, arm: int, reward: float) -> None:
        state.counts[arm] += 1.0
        state.sums[arm] += reward


def _list_arms(opened: Opened, most: int) -> Sequence[Config]:
    space = opened.space
    if space.rows is not None:
        return space.rows
    if space.size <= most:
        return list(space.grid(most))
    drawn = (space.from_cube(point(opened.seed, "arms", space.dims, i)) for i in range(most))
    return list({space.key(config): config for config in drawn}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineBandit(OnlinePolicy):
    """What all bandits do; each method says which arm to pull."""

    most_arms: int = 100

    def __post_init__(self) -> None:
        OnlinePolicy.__post_init__(self)
        require_whole(self, "most_arms", 1, "an arm is needed to pull", "Try 100.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (answer := wait_or_finish(ledger)) is not None:
            return answer
        state = ledger.view(self.arms_view)
        why: dict[str, Scalar] = {"query": "queued"}
        query = True
        config = next_queued(ledger, state.run)
        if config is None:
            is_first = state.run.value is None
            query = self.query == "always" or is_first or query_by_chance(self.query_probability, rng)
            arm, numbers = self._pull(state, rng)
            config, why = state.arms[arm], {"query": self.query, "arm": arm, **numbers}
        if query and (refusal := self.why_not_validate(ledger)):
            query, why["query"] = False, refusal
        return order_round(ledger, state.run, config, query, why)

    @property
    def arms_view(self) -> BanditArms:
        return BanditArms(self.run_view, self.most_arms)

    def _pull(self, state: BanditState, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        """The arm, and the numbers behind it: drawn, unless a bandit has a rule of its own."""
        probabilities = self._weigh(state)
        arm = draw(probabilities, rng)
        why = compare_scores("probability", "drawn", probabilities, arm, state.keys.__getitem__)
        return arm, {**why, "probability": float(probabilities[arm])}

    def _weigh(self, state: BanditState) -> Floats:
        """The probability of each arm, (n_arms,)."""
        raise NotImplementedError
