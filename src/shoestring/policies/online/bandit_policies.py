"""Bandits as online policies: a few configs are the arms, and every round of the run pulls one of them.

What they have in common: the arms (rows of a listed space, all configs of a finite one of up to `most_arms`, else that
many quasi-random configs), the fold of observed rewards, and the query rules that need no posterior: "always", or
"bernoulli" with `query_probability`. Rounds without validation teach nothing. A queued config that is no arm is acted with
and then forgotten.

Epsilon-greedy: the arm of best mean reward, and now and then any arm.

Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.1.

    paper   here           meaning                           unit
    eps     exploration    share of rounds played at random  —

Departs from the paper: arms never observed go first.

EXP3.S: exponential weights that always leak a little to every arm, so that the best arm may change.

Auer, Cesa-Bianchi, Freund, Schapire, "The Nonstochastic Multiarmed Bandit Problem", SIAM J. Comput. 32, 2002, Sect. 8.

    paper   here       meaning                                                      unit
    gamma   mixing     share of rounds played uniformly                             —
    alpha   sharing    share of all weight that flows to each arm; None: 1 / T      —

Departs from the paper: gains, clipped to ±clip, are moved to [0, 1]; values are taken as they are. Weights change only in
validated rounds.

Softmax: an arm with probability proportional to exp(mean reward / temperature).

Kuleshov, Precup, "Algorithms for Multi-Armed Bandit Problems", arXiv:1402.6028, Sect. 2.2.

    paper   here           meaning                                     unit
    tau     temperature    how much worse an arm may be and be pulled  reward

Departs from the paper: arms never observed go first.

UCB1: the arm of greatest mean reward plus sqrt(2 ln t / n), each arm once before that.

Auer, Cesa-Bianchi, Fischer, "Finite-time Analysis of the Multiarmed Bandit Problem", Machine Learning 47, 2002, Fig. 1.
Departs from the paper: the round t counts rounds without validation too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.comparison import compare_scores
from shoestring.core.deciding.decision import Decision
from shoestring.core.deciding.reproducible import find_best
from shoestring.core.ledger.entries import Entry, Opened
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Scalar
from shoestring.core.space.space import Config
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import require_between, require_share, require_whole, require_within
from shoestring.core.values.randomness import point
from shoestring.models.online.bandits import draw, epsilon_greedy, exp3s, exp3s_update, softmax, ucb1_bounds
from shoestring.models.online.query_rules import query_by_chance
from shoestring.policies.online.online_policy import OnlinePolicy
from shoestring.policies.online.online_run import RunState, RunView, next_queued, order_round, wait_or_finish


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EpsilonGreedy(OnlineBandit):
    name: ClassVar[str] = "epsilon_greedy"
    exploration: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_within(self, "exploration", 0.0, 1.0, "it is a share of rounds", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return epsilon_greedy(state.counts, state.sums, self.exploration)


@dataclass(frozen=True, slots=True)
class WeightedArms(BanditArms):
    """View: the arms and what was observed of each, folded into weights as well."""

    mixing: float
    sharing: float | None

    def credit(self, state: BanditState, arm: int, reward: float) -> None:
        BanditArms.credit(self, state, arm, reward)
        clip = self.run.clip
        if self.run.reward == "gain" and clip is not None:
            reward = (reward + clip) / (2.0 * clip)  # EXP3.S is made for [0, 1]
        sharing = 1.0 / state.run.opened.max_steps if self.sharing is None else self.sharing
        state.weights = exp3s_update(state.weights, arm, reward, mixing=self.mixing, sharing=sharing)


@dataclass(frozen=True, slots=True, kw_only=True)
class EXP3S(OnlineBandit):
    name: ClassVar[str] = "exp3s"
    mixing: float = 0.1
    sharing: float | None = None

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        because = "it is the share of rounds played uniformly, and no arm may have probability 0"
        require_share(self, "mixing", because, "Try 0.1.", may_be_zero=False)
        because, remedy = "it is a share of all weight", "Leave it out for one over the rounds."
        require_within(self, "sharing", 0.0, 1.0, because, remedy, optional=True)

    @property
    def arms_view(self) -> BanditArms:
        return WeightedArms(self.run_view, self.most_arms, self.mixing, self.sharing)

    def _weigh(self, state: BanditState) -> Floats:
        return exp3s(state.weights, self.mixing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Softmax(OnlineBandit):
    name: ClassVar[str] = "softmax"
    temperature: float = 0.1

    def __post_init__(self) -> None:
        OnlineBandit.__post_init__(self)
        require_between(self, "temperature", 0.0, math.inf, "at 0 nothing but the leader is pulled", "Try 0.1.")

    def _weigh(self, state: BanditState) -> Floats:
        return softmax(state.counts, state.sums, self.temperature)


@dataclass(frozen=True, slots=True, kw_only=True)
class UCB1(OnlineBandit):
    name: ClassVar[str] = "ucb1"

    def _pull(self, state: BanditState, rng: np.random.Generator) -> tuple[int, dict[str, Scalar]]:
        bounds = ucb1_bounds(state.counts, state.sums, round=len(state.run.configs) + 1)
        arm, name = find_best(bounds, "highest"), "mean reward that the arm could have (confidence bound)"
        why = compare_scores(name, "highest", bounds, arm, state.keys.__getitem__)
        return arm, {**why, "observed": int(state.counts[arm]), "sum": float(state.sums[arm])}
