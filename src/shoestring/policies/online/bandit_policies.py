"""Bandits as online policies: a few configs are the arms, and each round of the run is trained with one of them.

The arms are the rows of a listed space, all configs of a finite one of up to `most_arms`, else that many quasi-random configs.
The query rules are those that need no posterior: "always", or "bernoulli" with `query_probability`. A bandit learns
nothing from rounds without validation. A queued config that is not an arm is trained for one round; its reward is not used.

The rules themselves are pure functions in models/online/bandits.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Floats
from shoestring.core.values.randomness import point
from shoestring.models.online.bandits import draw, epsilon_greedy, exp3s, exp3s_update, softmax, ucb1_bounds
from shoestring.models.online.query_rules import query_by_chance
from shoestring.policies.online.online_policy import ROUND_LABELS, OnlinePolicy
from shoestring.policies.online.online_run import RunState, RunView, find_next_queued, order_round, wait_or_finish
from shoestring.policy import (
    Config,
    Decision,
    Entry,
    Labels,
    Ledger,
    StudyDefinition,
    compare_scores,
    find_best,
    require_between,
    require_share,
    require_whole,
    require_within,
)


@dataclass(slots=True)
class BanditState:
    """The run so far, the arms, and what was observed of each."""

    run: RunState
    arms: Sequence[Config]
    keys: Sequence[str]  # the keys of the arms' configs
    index: dict[str, int]  # the arm of each key
    counts: Floats  # (n_arms,): numbers of observed rewards
    sums: Floats  # (n_arms,)
    weights: Floats  # (n_arms,): only EXP3.S changes them


@dataclass(frozen=True, slots=True)
class BanditArms:
    """View of the arms, with the observed rewards of each."""

    run: RunView
    most_arms: int

    def start(self, definition: StudyDefinition) -> BanditState:
        arms = _list_arms(definition, self.most_arms)
        keys, n = [definition.space.key(config) for config in arms], len(arms)
        index = {key: i for i, key in enumerate(keys)}
        return BanditState(self.run.start(definition), arms, keys, index, np.zeros(n), np.zeros(n), np.full(n, 1.0 / n))

    def absorb(self, state: BanditState, entry: Entry) -> BanditState:
        rounds = len(state.run.configs)
        state.run = self.run.absorb(state.run, entry)
        if len(state.run.configs) > rounds:
            arm = state.index.get(state.run.definition.space.key(state.run.configs[-1]))
            reward = state.run.rewards[-1]
            if arm is not None and reward is not None:
                self.add_reward(state, arm, reward)
        return state

    def add_reward(self, state: BanditState, arm: int, reward: float) -> None:
        state.counts[arm] += 1.0
        state.sums[arm] += reward


def _list_arms(definition: StudyDefinition, most_arms: int) -> Sequence[Config]:
    space = definition.space
    if space.rows is not None:
        return space.rows
    if space.size <= most_arms:
        return list(space.grid(most_arms))
    drawn = (space.from_cube(point(definition.seed, "arms", space.dims, i)) for i in range(most_arms))
    return list({space.key(config): config for config in drawn}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlineBandit(OnlinePolicy):
    """Base class of all bandits; a subclass defines how an arm is chosen."""

    why_labels: ClassVar[Labels] = {
        **ROUND_LABELS,
        "arm": "arm (number)",
        "observed": "rewards observed of this arm (rewards)",
        "probability": "probability of this arm (probability)",
        "sum": "sum of these rewards (reward)",
    }
    most_arms: int = 100

    def __post_init__(self) -> None:
        OnlinePolicy.__post_init__(self)
        require_whole(self, "most_arms", 1, "there must be an arm to choose", "Try 100.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (answer := wait_or_finish(ledger)) is not None:
            return answer
        state = ledger.view(self.arms_view)
        why: dict[str, Scalar] = {"query": "queued"}
        query = True
        config = find_next_queued(ledger, state.run)
        if config is None:
            is_first = state.run.value is None
            query = self.query == "always" or is_first or query_by_chance(self.query_probability, rng)
            arm, numbers = self._choose_arm(state, rng)
            config, why = state.arms[arm], {"query": self.query, "arm": arm, **numbers}
        if query and (limit := self.find_validation_limit(ledger)):
            query, why["query"] = False, limit
        return order_round(ledger, state.run, config, query, why)

    @property
    def arms_view(self) -> BanditArms:
        return BanditArms(self.run_view, self.most_arms)

    def _choose_arm(self, state: BanditState, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        """Return an arm and the numbers that decided it. It is drawn with the probabilities of `_weigh`, unless overridden."""
        probabilities = self._weigh(state)
        arm = draw(probabilities, rng)
        why = compare_scores("probability", "drawn", probabilities, arm, state.keys.__getitem__)
        return arm, {**why, "probability": float(probabilities[arm])}

    def _weigh(self, state: BanditState) -> Floats:
        """Return the probability of each arm, (n_arms,)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy(OnlineBandit):
    """Epsilon-greedy: the configuration with the best mean reward, and sometimes a random one.

    Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.1.

        paper   here           meaning                             unit
        eps     exploration    share of rounds with a random arm   —

    Differences from the paper: arms that were never observed come first.
    """

    name: ClassVar[str] = "epsilon_greedy"
    exploration: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_within(self, "exploration", 0.0, 1.0, "it is a share of rounds", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return epsilon_greedy(state.counts, state.sums, self.exploration)


@dataclass(frozen=True, slots=True)
class WeightedArms(BanditArms):
    """View of the arms, with weights that are updated with each observed reward."""

    mixing: float
    sharing: float | None

    def add_reward(self, state: BanditState, arm: int, reward: float) -> None:
        BanditArms.add_reward(self, state, arm, reward)
        clip = self.run.clip
        if self.run.reward == "gain" and clip is not None:
            reward = (reward + clip) / (2.0 * clip)  # EXP3.S is made for rewards in [0, 1]
        sharing = 1.0 / state.run.definition.max_steps if self.sharing is None else self.sharing
        state.weights = exp3s_update(state.weights, arm, reward, mixing=self.mixing, sharing=sharing)


@dataclass(frozen=True, slots=True, kw_only=True)
class EXP3S(OnlineBandit):
    """EXP3.S: exponential weights of which each configuration always gets a small share, so that the best one may change.

    Auer, Cesa-Bianchi, Freund, Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J. Comput. 32, 2002, Sect. 8.

        paper   here       meaning                                                 unit
        gamma   mixing     share of rounds with a uniformly random arm             —
        alpha   sharing    share of all weight that goes to each arm; None: 1 / T  —

    Differences from the paper: gains, clipped to ±clip, are mapped to [0, 1]; values are not changed. Weights change only in
    validated rounds.
    """

    name: ClassVar[str] = "exp3s"
    mixing: float = 0.1
    sharing: float | None = None

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        because = "it is the share of rounds with a random arm, and no arm may have probability 0"
        require_share(self, "mixing", because, "Try 0.1.", may_be_zero=False)
        because, remedy = "it is a share of all weight", "Leave it out for 1 / rounds."
        require_within(self, "sharing", 0.0, 1.0, because, remedy, optional=True)

    @property
    def arms_view(self) -> BanditArms:
        return WeightedArms(self.run_view, self.most_arms, self.mixing, self.sharing)

    def _weigh(self, state: BanditState) -> Floats:
        return exp3s(state.weights, self.mixing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(OnlineBandit):
    """Softmax: a configuration with probability proportional to exp(mean reward / temperature).

    Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.2.

        paper   here           meaning                                                        unit
        tau     temperature    difference in mean reward that divides the probability by e    reward

    Differences from the paper: arms that were never observed come first.
    """

    name: ClassVar[str] = "softmax"
    temperature: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_between(self, "temperature", 0.0, math.inf, "at 0 only the best arm would be chosen", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return softmax(state.counts, state.sums, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class UCB1(OnlineBandit):
    """UCB1: the configuration with the largest mean reward plus sqrt(2 ln t / n), after each was chosen once.

    Auer, Cesa-Bianchi, Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47, 2002, Fig. 1.

    Differences from the paper: the round t also counts rounds without validation.
    """

    name: ClassVar[str] = "ucb1"

    def _choose_arm(self, state: BanditState, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        bounds = ucb1_bounds(state.counts, state.sums, round=len(state.run.configs) + 1)
        arm, name = find_best(bounds, "highest"), "upper confidence bound of the mean reward"
        why = compare_scores(name, "highest", bounds, arm, state.keys.__getitem__)
        return arm, {**why, "observed": int(state.counts[arm]), "sum": float(state.sums[arm])}
