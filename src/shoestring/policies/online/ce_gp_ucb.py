"""CE-GP-UCB: one run that changes its config every round, and pays for a validation pass only when it is unsure.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590, Algorithm 1.

    paper     here                 meaning                                                          unit
    t         round                step of the run, from 1, validated or not                        rounds
    T         max_steps            rounds of the whole run                                          rounds
    x_t       config               argmax of u = mu + sqrt(beta_t) sigma                            —
    y_t       reward               what the round was worth (rounds.py)                             units of gain
    eps       forgetting_rate      share of the function replaced in one round                      —
    kappa     kappa                skip validation when x_t beats every competitor this surely      probability
    beta_t    beta                 None: 0.8 ln 4t                                                  —
    sigma^2   noise_variance       variance of a reward's noise                                     units^2

`query` says when a round is validated: "kappa", "lcb_ucb" (a competitor's upper bound above the leader's lower one),
"always", or "bernoulli" with `query_probability`. `exact_covariance` gives the kappa rule the covariance of the two values
compared, which the paper leaves out; it asks less often where configs are alike. `acquisition` is "ucb", "pi" or "ei".
`validate_at_most` is a wall on validation: a share of the training cost ("20%"), "30 passes", or a duration.

Departs from the paper: corrections are listed in models/online/query_rules.py. A model without observations always asks, so
does one without competitors. Rewards are per round and in units of recent gains unless `unit` is given.
`forgetting_rate=None` learns the rate at 8, 16, 32, … observations, within bounds; the paper takes it as known. A queued
config is acted with, and validated, before the policy's own. Where a wanted pass may not be bought, the round takes the
config of greatest mean: exploring unobserved teaches nothing. A run that diverges or fails is over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.deciding.decision import NO_MEMO, NO_WHY, Decision, Memo
from shoestring.core.deciding.memo import Refits
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.checks import (
    require_at_least,
    require_between,
    require_one_of,
    require_share,
    require_whole,
    require_within,
)
from shoestring.models.gp.kernels import Family
from shoestring.models.online.query_rules import (
    beta_schedule,
    probability_better,
    query_by_bounds,
    query_by_chance,
    query_by_confidence,
)
from shoestring.models.online.time_varying import fit_forgetting_rate, forgetting_bounds
from shoestring.policies.online.drift_model import DriftState, DriftView, Proposal
from shoestring.policies.online.online_policy import OnlinePolicy
from shoestring.policies.online.online_run import next_queued, order_round, wait_or_finish

_REFITS = Refits(first=8, growth=2.0)  # of the forgetting rate, by observed rewards
_FIT_LAST = 256  # observations that a fit looks back on: it costs their cube


@dataclass(frozen=True, slots=True, kw_only=True)
class CEGPUCB(OnlinePolicy):
    name: ClassVar[str] = "ce_gp_ucb"
    queries: ClassVar[tuple[str, ...]] = ("always", "bernoulli", "kappa", "lcb_ucb")

    query: str = "kappa"
    kappa: float = 0.9
    exact_covariance: bool = False
    acquisition: str = "ucb"
    beta: float | None = None
    forgetting_rate: float | None = 0.01
    kernel: Family = "matern52"
    lengthscale: float = 0.2
    variance: float = 1.0
    noise_variance: float = 0.01
    prior_mean: float = 0.0
    n_starts: int = 50
    bandwidth: float = 0.2

    def __post_init__(self) -> None:
        OnlinePolicy.__post_init__(self)
        because = "it is a probability, and at 0 no pass would ever be bought"
        require_share(self, "kappa", because, "Try 0.9.", may_be_zero=False)
        require_one_of(self, "acquisition", ("ucb", "pi", "ei"))
        because = "its root counts standard deviations"
        require_at_least(self, "beta", 0.0, because, "Leave it out for 0.8 ln 4t.", optional=True)
        because = "it is 0 where a function stands still, 1 where every round is new"
        require_within(self, "forgetting_rate", 0.0, 1.0, because, "Try 0.01, or None to learn it.", optional=True)
        require_one_of(self, "kernel", ("se", "matern32", "matern52"))
        require_between(self, "lengthscale", 0.0, math.inf, "the cube has side 1", "Try 0.2.")
        require_between(self, "variance", 0.0, math.inf, "it is the variance of rewards", "Try 1.")
        require_between(self, "noise_variance", 0.0, math.inf, "no reward is exact", "Try 0.01.")
        require_between(self, "prior_mean", -math.inf, math.inf, "it is the reward expected of a new config", "Try 0.")
        require_whole(self, "n_starts", 1, "the search for humps begins there", "Try 50.")
        require_between(self, "bandwidth", 0.0, math.inf, "humps closer than it are one", "Try 0.2.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (answer := wait_or_finish(ledger)) is not None:
            return answer
        view, memo = self._learn(ledger)
        state = ledger.view(view)
        if (config := next_queued(ledger, state.run)) is not None:
            refusal = self.why_not_validate(ledger)
            return order_round(ledger, state.run, config, not refusal, {"query": refusal or "queued"}, memo)
        beta = beta_schedule(len(state.run.configs) + 1) if self.beta is None else self.beta
        with_covariance = self.exact_covariance and self.query == "kappa"
        proposal = state.belief.propose(self.acquisition, beta, rng, with_covariance=with_covariance)
        query, why = self._query(state, proposal, beta, rng)
        if query and (refusal := self.why_not_validate(ledger)):
            query, why["query"] = False, refusal
            proposal = self._propose_unseen(state, proposal, rng)
        why |= {
            **proposal.compared,
            "mean": float(proposal.mean[proposal.chosen]),
            "std": math.sqrt(float(proposal.variance[proposal.chosen])),
            "beta": beta,
            "forgetting_rate": view.forgetting_rate,
        }
        return order_round(ledger, state.run, proposal.config, query, why, memo)

    def _query(
        self, state: DriftState, proposal: Proposal, beta: float, rng: np.random.Generator
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

    def _propose_unseen(self, state: DriftState, proposal: Proposal, rng: np.random.Generator) -> Proposal:
        """What to act with when a pass is wanted but may not be bought: there is no use in trying what nobody looks at."""
        if state.belief.model.n_observations:
            return state.belief.propose("ucb", 0.0, rng)
        return replace(proposal, config=state.run.configs[-1], compared=NO_WHY) if state.run.configs else proposal

    def _learn(self, ledger: Ledger) -> tuple[DriftView, Memo]:
        """The model to ask, and what to remember of its fit."""
        if self.forgetting_rate is not None:
            return self._view(self.forgetting_rate), NO_MEMO
        low, high = forgetting_bounds(ledger.max_steps)
        slowest = self._view(low)  # the drift to believe in before anything is learned
        run = ledger.view(self.run_view)
        observed = [round for round, reward in enumerate(run.rewards, start=1) if reward is not None]
        fit = _REFITS.check_due(ledger.memo, len(observed))
        if fit.is_due:
            # From the observations up to the mark alone, so that it does not matter when the fit is asked for.
            rounds = observed[: int(fit.marks[_REFITS.key][0])][-_FIT_LAST:]
            rewards = np.array([run.rewards[round - 1] for round in rounds], dtype=np.float64) - self.prior_mean
            covariance = slowest.prior_covariance(ledger.space, [run.configs[round - 1] for round in rounds])
            rate = fit_forgetting_rate(
                covariance, rounds, rewards, noise_variance=self.noise_variance, bounds=(low, high)
            )
        elif fit.marks:
            rate = float(ledger.memo["forgetting_rate"][0])
        else:
            return slowest, NO_MEMO
        return self._view(rate), {**fit.marks, "forgetting_rate": [rate]}

    def _view(self, forgetting_rate: float) -> DriftView:
        return DriftView(
            run=self.run_view,
            kernel=self.kernel,
            lengthscale=self.lengthscale,
            variance=self.variance,
            noise_variance=self.noise_variance,
            forgetting_rate=forgetting_rate,
            prior_mean=self.prior_mean,
            n_starts=self.n_starts,
            bandwidth=self.bandwidth,
        )
