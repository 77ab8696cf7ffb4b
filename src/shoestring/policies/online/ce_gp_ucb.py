"""CE-GP-UCB: one run that changes its configuration every round, and validates only the rounds of which it is unsure.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590, Algorithm 1.

    paper     here                 meaning                                                          unit
    t         round                step of the run, from 1, validated or not                        rounds
    T         max_steps            rounds of the whole run                                          rounds
    x_t       config               argmax of u = mu + sqrt(beta_t) sigma                            —
    y_t       reward               gain or value of the round (online_run.py)                       units of gain
    eps       forgetting_rate      share of the function replaced in one round                      —
    kappa     kappa                no validation if Pr(x_t beats c) >= kappa for each competitor c  probability
    beta_t    beta                 None: 0.8 ln 4t                                                  —
    sigma^2   noise_variance       variance of a reward's noise                                     units^2

`query` is the rule that decides whether a round is validated: "kappa", "lcb_ucb" (a competitor's upper bound is above the lower
bound of x_t), "always", or "bernoulli" with `query_probability`. With `exact_covariance` the kappa rule uses the covariance of
the two values compared, which the paper leaves out; it validates less often if configs are alike. `acquisition` is "ucb", "pi" or
"ei". `validate_at_most` limits validation: a share of the training cost ("20%"), "30 passes", or a duration.

Differences from the paper: corrections are listed in models/online/query_rules.py. A model without observations always validates.
The rules "kappa" and "lcb_ucb" also validate if there is no competitor. Rewards are per round and in units of recent gains unless
`unit` is given. `forgetting_rate=None` learns the rate at 8, 16, 32, … observations, within bounds; in the paper it is known.
Queued configs come first and are validated. If a limit forbids a validation, the round takes the config with the largest mean:
exploration without an observation gives no information. A run that diverges or fails is over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from shoestring.core.space.parameters import Scalar
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
from shoestring.policies.online.online_policy import ROUND_LABELS, OnlinePolicy, describe_query
from shoestring.policies.online.online_run import find_next_queued, order_round, wait_or_finish
from shoestring.policy import (
    NO_MEMO,
    NO_WHY,
    Decision,
    Labels,
    Ledger,
    Memo,
    Order,
    Refits,
    WhyText,
    require_at_least,
    require_between,
    require_one_of,
    require_share,
    require_whole,
    require_within,
)

_REFITS = Refits(first=8, growth=2.0)  # fits of the forgetting rate, by the number of observed rewards
_FIT_OBSERVATIONS = 256  # the newest observations that a fit uses: its time grows with their cube


@dataclass(frozen=True, slots=True, kw_only=True)
class CEGPUCB(OnlinePolicy):
    name: ClassVar[str] = "ce_gp_ucb"
    why_labels: ClassVar[Labels] = {
        **ROUND_LABELS,
        "beta": "beta, its square root counts standard deviations",
        "competitors": "configurations that must be ruled out (configurations)",
        "forgetting_rate": "share of what is known that is forgotten (per round)",
        "kappa": "kappa, probability that allows a round without validation (probability)",
        "mean": "expected reward (reward)",
        "pr_better": "probability that it beats its closest competitor (probability)",
        "std": "standard deviation of the reward (reward)",
    }
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
        because = "it is a probability, and at 0 no round would be validated"
        require_share(self, "kappa", because, "Try 0.9.", may_be_zero=False)
        require_one_of(self, "acquisition", ("ucb", "pi", "ei"))
        because = "its root is a number of standard deviations"
        require_at_least(self, "beta", 0.0, because, "Leave it out for 0.8 ln 4t.", optional=True)
        because = "0 is a function that does not change, 1 one that is new in every round"
        require_within(self, "forgetting_rate", 0.0, 1.0, because, "Try 0.01, or None to learn it.", optional=True)
        require_one_of(self, "kernel", ("se", "matern32", "matern52"))
        require_between(self, "lengthscale", 0.0, math.inf, "the cube has side 1", "Try 0.2.")
        require_between(self, "variance", 0.0, math.inf, "it is the variance of rewards", "Try 1.")
        require_between(self, "noise_variance", 0.0, math.inf, "no reward is exact", "Try 0.01.")
        require_between(self, "prior_mean", -math.inf, math.inf, "it is the expected reward of a new config", "Try 0.")
        require_whole(self, "n_starts", 1, "the search for modes begins there", "Try 50.")
        require_between(self, "bandwidth", 0.0, math.inf, "closer modes are merged", "Try 0.2.")

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (answer := wait_or_finish(ledger)) is not None:
            return answer
        view, memo = self._learn(ledger)
        state = ledger.view(view)
        if (config := find_next_queued(ledger, state.run)) is not None:
            limit = self.find_validation_limit(ledger)
            return order_round(ledger, state.run, config, not limit, {"query": limit or "queued"}, memo)
        beta = beta_schedule(len(state.run.configs) + 1) if self.beta is None else self.beta
        with_covariance = self.exact_covariance and self.query == "kappa"
        proposal = state.surrogate.propose(self.acquisition, beta, rng, with_covariance=with_covariance)
        query, why = self._query(state, proposal, beta, rng)
        if query and (limit := self.find_validation_limit(ledger)):
            query, why["query"] = False, limit
            proposal = self._propose_without_validation(state, proposal, rng)
        why |= {
            **proposal.comparison,
            "mean": float(proposal.mean[proposal.chosen]),
            "std": math.sqrt(float(proposal.variance[proposal.chosen])),
            "beta": beta,
            "forgetting_rate": view.forgetting_rate,
        }
        return order_round(ledger, state.run, proposal.config, query, why, memo)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why, is_validated = order.why, order.validate != "none"
        if why.get("query") == "lcb_ucb":
            return describe_query(order, f"because {'a' if is_validated else 'no'} competitor could be better")
        if why.get("query") != "kappa":
            return describe_query(order)
        if "pr_better" not in why:
            return describe_query(order, "because there is no competitor")
        enough = f"{float(str(why['kappa'])):.4g} {'would be' if is_validated else 'is'} enough"
        chance = f"{float(str(why['pr_better'])):.4g}"
        return describe_query(order, f"because it beats its closest competitor with probability {chance} ({enough})")

    def _query(
        self, state: DriftState, proposal: Proposal, beta: float, rng: np.random.Generator
    ) -> tuple[bool, dict[str, Scalar]]:
        """Return whether to validate the round, and the numbers that decided it."""
        mean, variance, chosen, competitors = proposal.mean, proposal.variance, proposal.chosen, proposal.competitors
        why: dict[str, Scalar] = {"query": self.query, "competitors": int(competitors.size)}
        if not state.surrogate.gp.n_observations:
            return True, why | {"query": "first"}
        if self.query == "always":
            return True, why
        if self.query == "bernoulli":
            return query_by_chance(self.query_probability, rng), why | {"query_probability": self.query_probability}
        if self.query == "lcb_ucb":
            return query_by_bounds(mean, variance, chosen, competitors, beta), why
        better = probability_better(mean, variance, chosen, competitors, proposal.covariance)
        if better.size:
            why["pr_better"] = float(better.min())
        return query_by_confidence(better, self.kappa), why | {"kappa": self.kappa}

    def _propose_without_validation(self, state: DriftState, proposal: Proposal, rng: np.random.Generator) -> Proposal:
        """Return the proposal for a round that may not be validated: the largest mean, or the config of the round before."""
        if state.surrogate.gp.n_observations:
            return state.surrogate.propose("ucb", 0.0, rng)
        return replace(proposal, config=state.run.configs[-1], comparison=NO_WHY) if state.run.configs else proposal

    def _learn(self, ledger: Ledger) -> tuple[DriftView, Memo]:
        """Return the view of the model, and the memo of its fit."""
        if self.forgetting_rate is not None:
            return self._view(self.forgetting_rate), NO_MEMO
        low, high = forgetting_bounds(ledger.max_steps)
        slowest = self._view(low)  # used before a rate is learned
        run = ledger.view(self.run_view)
        observed = [round for round, reward in enumerate(run.rewards, start=1) if reward is not None]
        fit = _REFITS.check_fit(ledger.memo, len(observed))
        if fit.is_due:
            # Only the observations up to the mark are used, so that the fit does not depend on the moment of the decision.
            rounds = observed[: int(fit.marks[_REFITS.key][0])][-_FIT_OBSERVATIONS:]
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
