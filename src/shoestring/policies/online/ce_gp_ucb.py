"""CE-GP-UCB: one run that changes its config every round, and pays for a validation pass only when it is unsure.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590, Algorithm 1.

    paper     here                 meaning                                                          unit
    t         round                step of the run, from 1, validated or not                        rounds
    T         max_steps            rounds of the whole run                                          rounds
    x_t       config               argmax of u = mu + sqrt(beta_t) sigma                            —
    y_t       reward               what the round was worth (online_rounds.py)                      units of gain
    eps       forgetting_rate      share of the function replaced in one round                      —
    kappa     kappa                skip validation when x_t beats every competitor this surely      probability
    beta_t    beta                 None: 0.8 ln 4t                                                  —
    sigma^2   noise_variance       variance of a reward's noise                                     units^2

`query` says when a round is validated: "kappa", "lcb_ucb" (a competitor's upper bound above the leader's lower one),
"always", or "bernoulli" with `query_probability`. `exact_covariance` gives the kappa rule the covariance of the two values
compared, which the paper leaves out; it asks less often where configs are alike. `acquisition` is "ucb", "pi" or "ei".
`validate_at_most` is a wall on validation: a share of the training cost ("20%"), "30 passes", or a duration.

Departs from the paper: corrections are listed in models/online/query_rules.py. A model without observations always asks, so does
one without competitors. Rewards are per round and in units of recent gains unless `unit` is given. `forgetting_rate=None`
learns the rate at 8, 16, 32, … observations, within bounds; the paper takes it as known. A queued config is acted with,
and validated, before the policy's own. Where a wanted pass may not be bought, the round takes the config of greatest mean:
exploring unobserved teaches nothing. A run that diverges or fails is over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.decision import NO_MEMO, Decision, Memo
from shoestring.core.ledger import Ledger
from shoestring.core.parameters import Scalar
from shoestring.core.settings import require_between, require_whole
from shoestring.errors import PolicyError
from shoestring.models.gp.kernels import Family
from shoestring.models.online.query_rules import (
    beta_schedule,
    probability_better,
    query_by_bounds,
    query_by_chance,
    query_by_confidence,
)
from shoestring.models.online.time_varying import fit_forgetting_rate, forgetting_bounds
from shoestring.policies.online.belief import Belief, BeliefState, Proposal, prior_covariance
from shoestring.policies.online.rounds import (
    RUN,
    Rounds,
    check_cap,
    order_round,
    queued_config,
    waiting_or_over,
    why_not_validate,
)

_FIRST_FIT = 8  # observations before a forgetting rate is learned; then at every doubling
_FIT_LAST = 256  # observations that a fit looks back on: it costs their cube


@dataclass(frozen=True, slots=True, kw_only=True)
class CEGPUCB:
    name: ClassVar[str] = "ce_gp_ucb"
    query: str = "kappa"
    kappa: float = 0.9
    query_probability: float = 0.5
    exact_covariance: bool = False
    acquisition: str = "ucb"
    beta: float | None = None
    forgetting_rate: float | None = 0.01
    kernel: Family = "matern52"
    lengthscale: float = 0.2
    variance: float = 1.0
    noise_variance: float = 0.01
    prior_mean: float = 0.0
    reward: str = "gain"
    unit: float | None = None
    clip: float | None = 2.0
    validate_at_most: str | None = None
    n_starts: int = 50
    bandwidth: float = 0.2

    def __post_init__(self) -> None:
        check_rewards(self, self.reward, self.unit, self.clip)
        check_query(self, self.query, self.query_probability, ("always", "bernoulli", "kappa", "lcb_ucb"))
        check_cap(self, self.validate_at_most)
        require_whole(self, "n_starts", 1, "the search for humps begins there", "Try 50.")
        require_between(self, "lengthscale", 0.0, math.inf, "the cube has side 1", "Try 0.2.")
        require_between(self, "variance", 0.0, math.inf, "it is the variance of rewards", "Try 1.")
        require_between(self, "noise_variance", 0.0, math.inf, "no reward is exact", "Try 0.01.")
        require_between(self, "bandwidth", 0.0, math.inf, "humps closer than it are one", "Try 0.2.")
        require_between(self, "prior_mean", -math.inf, math.inf, "it is the reward expected of a new config", "Try 0.")
        rate, beta = self.forgetting_rate, self.beta
        rules = (
            ("kappa", 0.0 < self.kappa <= 1.0, "must lie in (0, 1]: it is a probability. Try 0.9."),
            ("acquisition", self.acquisition in ("ucb", "pi", "ei"), "must be 'ucb', 'pi' or 'ei'."),
            ("kernel", self.kernel in ("se", "matern32", "matern52"), "must be 'se', 'matern32' or 'matern52'."),
            ("beta", beta is None or 0.0 <= beta < math.inf, "must be 0 or more, or None for 0.8 ln 4t."),
            (
                "forgetting_rate",
                rate is None or 0.0 <= rate <= 1.0,
                "must lie in [0, 1], 0 for a function that stands still, or be None to learn it.",
            ),
        )
        for setting, holds, rule in rules:
            if not holds:
                raise PolicyError(f"{type(self).__name__}({setting}={getattr(self, setting)!r}) {rule}")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (over := waiting_or_over(ledger)) is not None:
            return over
        round = ledger.trials[RUN].steps + 1 if ledger.trials else 1
        view, memo = self._belief(ledger)
        state = ledger.view(view)
        if (wanted := queued_config(ledger, state.acted)) is not None:
            refusal = why_not_validate(ledger, self.validate_at_most)
            return order_round(ledger, state.rounds, wanted, not refusal, {"query": refusal or "queued"}, memo)
        beta = beta_schedule(round) if self.beta is None else self.beta
        proposal = state.belief.propose(
            self.acquisition, beta, rng, self.n_starts, self.bandwidth, self.exact_covariance and self.query == "kappa"
        )
        query, why = self._query(state, proposal, beta, rng)
        if query and (refusal := why_not_validate(ledger, self.validate_at_most)):
            query, why["query"] = False, refusal
            proposal = self._unobserved(state, proposal, rng)
        why |= {
            "mean": float(proposal.mean[proposal.chosen]),
            "std": math.sqrt(float(proposal.variance[proposal.chosen])),
            "beta": beta,
            "forgetting_rate": view.forgetting_rate,
        }
        return order_round(ledger, state.rounds, proposal.config, query, why, memo)

    def _query(
        self, state: BeliefState, proposal: Proposal, beta: float, rng: np.random.Generator
    ) -> tuple[bool, dict[str, Scalar]]:
        """Whether to validate, and the numbers it was decided on."""
        mean, variance, chosen, rivals = proposal.mean, proposal.variance, proposal.chosen, proposal.rivals
        why: dict[str, Scalar] = {"query": self.query, "competitors": int(rivals.size)}
        if not state.belief.model.n_observations:
            return True, why | {"query": "first"}
        if self.query == "always":
            return True, why
        if self.query == "bernoulli":
            return query_by_chance(self.query_probability, rng), why | {"query_probability": self.query_probability}
        if self.query == "lcb_ucb":
            return query_by_bounds(mean, variance, chosen, rivals, beta), why
        better = probability_better(mean, variance, chosen, rivals, proposal.covariance)
        if better.size:
            why["pr_better"] = float(better.min())
        return query_by_confidence(better, self.kappa), why | {"kappa": self.kappa}

    def _unobserved(self, state: BeliefState, proposal: Proposal, rng: np.random.Generator) -> Proposal:
        """What to act with when a pass is wanted but may not be bought: there is no use in trying what nobody looks at."""
        if state.belief.model.n_observations:
            return state.belief.propose("ucb", 0.0, rng, self.n_starts, self.bandwidth, exact=False)
        return replace(proposal, config=state.rounds.configs[-1]) if state.rounds.configs else proposal

    def _belief(self, ledger: Ledger) -> tuple[Belief, Memo]:
        """The model to ask, and what to remember of its fit."""
        rate = self.forgetting_rate
        if rate is not None:
            return self._view(rate), NO_MEMO
        low, high = forgetting_bounds(ledger.max_steps)
        view = self._view(low)  # before anything is learned: the slowest drift that is allowed
        past = ledger.view(view.rounds)
        observed = [round for round, reward in enumerate(past.rewards, start=1) if reward is not None]
        due = _fit_due(len(observed))
        if not due:
            return view, NO_MEMO
        memo = ledger.memo
        if list(memo.get("fitted_at", ())) != [float(due)]:
            # From the first `due` observations alone, so that it does not matter when the fit is asked for.
            rounds = observed[:due][-_FIT_LAST:]
            covariance = prior_covariance(view, ledger.space, [past.configs[round - 1] for round in rounds])
            rewards = np.array([past.rewards[round - 1] for round in rounds], dtype=np.float64) - self.prior_mean
            fitted = fit_forgetting_rate(
                covariance, rounds, rewards, noise_variance=self.noise_variance, bounds=(low, high)
            )
            memo = {"fitted_at": [float(due)], "forgetting_rate": [fitted]}
        return self._view(float(memo["forgetting_rate"][0])), memo

    def _view(self, forgetting_rate: float) -> Belief:
        return Belief(
            rounds=Rounds(self.reward, self.unit, self.clip),
            kernel=self.kernel,
            lengthscale=self.lengthscale,
            variance=self.variance,
            noise_variance=self.noise_variance,
            forgetting_rate=forgetting_rate,
            prior_mean=self.prior_mean,
        )


def check_rewards(owner: object, reward: str, unit: float | None, clip: float | None) -> None:
    if reward not in ("gain", "value"):
        raise PolicyError(
            f"{type(owner).__name__}(reward={reward!r}) must be 'gain' (since the last validation) or 'value'."
        )
    if unit is not None:
        require_between(owner, "unit", 0.0, math.inf, "rewards are counted in it", "Try 0.01 for accuracies, or None.")
    if clip is not None:
        require_between(owner, "clip", 0.0, math.inf, "rewards end there", "Try 2, or None for no clipping.")


def check_query(owner: object, query: str, probability: float, known: tuple[str, ...]) -> None:
    who = type(owner).__name__
    if query not in known:
        raise PolicyError(f"{who}(query={query!r}) must be one of {', '.join(map(repr, known))}.")
    if not 0.0 <= probability <= 1.0:
        raise PolicyError(f"{who}(query_probability={probability!r}) must lie in [0, 1]: for 30 of 100 rounds, 0.3.")


def _fit_due(observations: int) -> int:
    """The number of observations at which the newest fit was due; 0 before the first."""
    return 0 if observations < _FIRST_FIT else _FIRST_FIT * 2 ** int(math.log2(observations // _FIRST_FIT))
