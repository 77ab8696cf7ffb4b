"""CE-GP-UCB: one run that changes its configuration every round, and validates only the rounds of which it is unsure.

Wang, Ren, Bogunovic, Xiong, Urtasun, "Cost-Efficient Online Hyperparameter Optimization", arXiv:2101.06590, Algorithm 1.

    paper     here                 meaning                                                          unit
    t         round                step of the run, from 1, validated or not                        rounds
    T         max_steps            rounds of the whole run                                          rounds
    x_t       config               argmax of u = mu + sqrt(beta_t) sigma                            —
    y_t       reward               gain or value of the round (online_run.py)                       units of gain
    eps       forgetting_rate      share of the function replaced in one round                      —
    —         time_lengthscale     of the squared-exponential time kernel of Table A1               rounds
    kappa     kappa                no validation if Pr(x_t beats c) >= kappa for each competitor c  probability
    beta_t    beta                 None: 0.8 ln 4t                                                  —
    sigma^2   noise_variance       variance of a reward's noise                                     units^2

`query` is the rule that decides whether a round is validated: "kappa", "lcb_ucb" (a competitor's upper bound is above the
lower bound of x_t), "always", "bernoulli" with `query_probability`, or "paced": kappa within two limits. With
`exact_covariance` the kappa rule uses the covariance of the two values compared, which the paper leaves out; it validates
less often if configs are alike. `acquisition` is "ucb", "pi" or "ei". `validate_at_most` limits validation: a share of the
training cost ("20%"), "30 passes", or a duration.

"paced" bounds what a wrong model can cost, in both directions. A model that is wrongly certain does not validate, and
without values it never learns that it is wrong: after `longest_stretch` rounds in a row without validation (None: a
thirtieth of the run, at least 2) the next one is validated. A model that is never certain, as under strong drift, would
validate every round: beyond a share `pass_share` of the rounds so far, plus 15 % of the run to begin with, it does not. By
default that is at most 65 % of a run.

Differences from the paper: corrections are listed in models/online/query_rules.py. A model without observations always
validates. The rules "kappa", "paced" and "lcb_ucb" also validate if there is no competitor. A round without validation is
trained with the config of the largest mean (`unvalidated="mean"`), because exploration without an observation gives no
information; in the paper it is x_t ("acquisition"). A gain is the sum of the gains since the last validation, and is
observed as that sum. Rewards are in units of recent gains unless `unit` is given. `forgetting_rate="by_rounds"` is 0.6 / T,
so that the drift of a whole run does not depend on how many rounds it is divided into. `time_kernel="se"` has the kernel of
Table A1 in place of forgetting. A forgetting rate, length-scale in time, variance or noise of None is learned at 8, 16, 32,
… observations, within bounds (models/online/parameter_fit.py). Queued configs come first and are validated. A run that
diverges or fails is over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.deciding.printed_form import as_printed
from shoestring.core.space.parameters import Scalar
from shoestring.models.gp.kernels import Family
from shoestring.models.online.parameter_fit import (
    NOISE_BOUNDS,
    VARIANCE_BOUNDS,
    Bounds,
    DriftParameters,
    Observations,
    fit_parameters,
    forgetting_bounds,
    lengthscale_bounds,
)
from shoestring.models.online.query_rules import (
    beta_schedule,
    probability_better,
    query_by_bounds,
    query_by_chance,
    query_by_confidence,
)
from shoestring.policies.online.drift_model import DriftState, DriftView, Proposal
from shoestring.policies.online.online_policy import ROUND_LABELS, OnlinePolicy, describe_query
from shoestring.policies.online.online_run import RunState, find_next_queued, order_round, wait_or_finish
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
_MEMO = {"lengthscale": "time_lengthscale"}  # names in the memo that differ from those of the model
_PLAIN = DriftParameters(0.0, math.inf, 1.0, 1.0)  # where only the kernel in space matters
# Forgetting rate times rounds; 0.3 and 2 were worse on the loops of benchmarks/online/small_loops.py.
_DRIFT_OF_RUN = 0.6
# Limits of "paced". A stretch in which the model is wrongly certain may cost at most a thirtieth of the run.
_STRETCHES, _SHORTEST_LIMIT = 30, 2  # stretches in a run; rounds of the shortest limit
_FIRST_PASSES = 0.15  # rounds validated beyond the share, as a share of the run: little is known in the first rounds
_FIT_OBSERVATIONS = 256  # the newest observations that a fit uses: its time grows with their cube


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftPolicy(OnlinePolicy):
    """Base class of CE-GP-UCB and its variants: everything but the printed form."""

    why_labels: ClassVar[Labels] = {
        **ROUND_LABELS,
        "beta": "beta, its square root counts standard deviations",
        "competitors": "configurations that must be ruled out (configurations)",
        "forgetting_rate": "share of what is known that is forgotten (per round)",
        "kappa": "kappa, probability that allows a round without validation (probability)",
        "mean": "expected reward (reward)",
        "pr_better": "probability that it beats its closest competitor (probability)",
        "std": "standard deviation of the reward (reward)",
        "time_lengthscale": "length-scale of the reward in time (rounds)",
    }
    queries: ClassVar[tuple[str, ...]] = ("always", "bernoulli", "kappa", "lcb_ucb", "paced")

    query: str = "paced"
    kappa: float = 0.9
    pass_share: float = 0.5
    longest_stretch: int | None = None
    unvalidated: Literal["mean", "acquisition"] = "mean"
    exact_covariance: bool = False
    acquisition: str = "ucb"
    beta: float | None = None
    time_kernel: Literal["forgetting", "se"] = "forgetting"
    forgetting_rate: float | Literal["by_rounds"] | None = "by_rounds"
    time_lengthscale: float | None = None
    kernel: Family = "matern52"
    lengthscale: float = 0.2
    variance: float | None = 1.0
    noise_variance: float | None = 0.03
    prior_mean: float = 0.0
    n_starts: int = 50
    bandwidth: float = 0.2

    def __post_init__(self) -> None:
        OnlinePolicy.__post_init__(self)
        because = "it is a probability, and at 0 no round would be validated"
        require_share(self, "kappa", because, "Try 0.9.", may_be_zero=False)
        require_share(self, "pass_share", "it is a share of the rounds", "Try 0.5.", may_be_zero=False)
        because = "it is a number of rounds"
        require_whole(self, "longest_stretch", 1, because, "Try 3, or None for a thirtieth of the run.", optional=True)
        require_one_of(self, "unvalidated", ("mean", "acquisition"))
        require_one_of(self, "acquisition", ("ucb", "pi", "ei"))
        because = "its root is a number of standard deviations"
        require_at_least(self, "beta", 0.0, because, "Leave it out for 0.8 ln 4t.", optional=True)
        require_one_of(self, "time_kernel", ("forgetting", "se"))
        if self.forgetting_rate != "by_rounds":
            because = "0 is a function that does not change, 1 one that is new in every round"
            remedy = "Try 0.01, 'by_rounds', or None to learn it."
            require_within(self, "forgetting_rate", 0.0, 1.0, because, remedy, optional=True)
        because, remedy = "it is a number of rounds", "Try a tenth of the run, or None to learn it."
        require_between(self, "time_lengthscale", 0.0, math.inf, because, remedy, optional=True)
        require_one_of(self, "kernel", ("se", "matern32", "matern52"))
        require_between(self, "lengthscale", 0.0, math.inf, "the cube has side 1", "Try 0.2.")
        because, remedy = "it is the variance of rewards", "Try 1, or None to learn it."
        require_between(self, "variance", 0.0, math.inf, because, remedy, optional=True)
        remedy = "Try 0.03, or None to learn it."
        require_between(self, "noise_variance", 0.0, math.inf, "no reward is exact", remedy, optional=True)
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
        with_covariance = self.exact_covariance and self.query in ("kappa", "paced")
        proposal = state.surrogate.propose(self.acquisition, beta, rng, with_covariance=with_covariance)
        query, why = self._query(state, proposal, beta, rng)
        limit = self.find_validation_limit(ledger) if query else ""
        if limit:
            query, why["query"] = False, limit
        if not query and (limit or self.unvalidated == "mean"):
            proposal = self._propose_without_validation(state, proposal)
        why |= {
            **proposal.comparison,
            "mean": float(proposal.mean[proposal.chosen]),
            "std": math.sqrt(float(proposal.variance[proposal.chosen])),
            "beta": beta,
            **self._describe_time(view),
        }
        return order_round(ledger, state.run, proposal.config, query, why, memo)

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        why, is_validated = order.why, order.validate != "none"
        if why.get("query") == "lcb_ucb":
            return describe_query(order, f"because {'a' if is_validated else 'no'} competitor could be better")
        if why.get("query") not in ("kappa", "paced"):
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
        why["kappa"] = self.kappa
        query = query_by_confidence(better, self.kappa)
        return self._pace(state.run, query, why) if self.query == "paced" else (query, why)

    def _pace(self, run: RunState, query: bool, why: dict[str, Scalar]) -> tuple[bool, dict[str, Scalar]]:
        """Return whether to validate the round, and why, within the limits on passes and on stretches without one."""
        done = len(run.configs)
        longest = self.longest_stretch or max(_SHORTEST_LIMIT, math.ceil(run.definition.max_steps / _STRETCHES))
        if not query and done - run.value_round >= longest:
            return True, {**why, "query": "stretch"}
        if query and run.passes + 1 > self.pass_share * (done + 1) + _FIRST_PASSES * run.definition.max_steps:
            return False, {**why, "query": "share"}
        return query, why

    @staticmethod
    def _propose_without_validation(state: DriftState, proposal: Proposal) -> Proposal:
        """Return the proposal for a round that may not be validated: the largest mean, or the config of the round before."""
        if state.surrogate.gp.n_observations:
            return state.surrogate.propose_best_mean()
        return replace(proposal, config=state.run.configs[-1], comparison=NO_WHY) if state.run.configs else proposal

    def _learn(self, ledger: Ledger) -> tuple[DriftView, Memo]:
        """Return the view of the model, and the memo of its fit."""
        given, bounds = self._parameters(ledger.max_steps)
        if not bounds:
            return self._view(given), NO_MEMO
        run = ledger.view(self.run_view)
        observed = [round for round, reward in enumerate(run.rewards, start=1) if reward is not None]
        fit = _REFITS.check_fit(ledger.memo, len(observed))
        is_known = all(_MEMO.get(name, name) in ledger.memo for name in bounds)  # false after a change of settings
        if fit.is_due or (fit.marks and not is_known):
            # Only the observations up to the mark are used, so that the fit does not depend on the moment of the decision.
            rounds = observed[: int(fit.marks[_REFITS.key][0])][-_FIT_OBSERVATIONS:]
            found = fit_parameters(self._gather(ledger, run, rounds), given, bounds)
        elif fit.marks:
            found = replace(given, **{name: float(ledger.memo[_MEMO.get(name, name)][0]) for name in bounds})
        else:
            return self._view(given), NO_MEMO
        return self._view(found), {**fit.marks, **{_MEMO.get(name, name): [getattr(found, name)] for name in bounds}}

    def _gather(self, ledger: Ledger, run: RunState, rounds: Sequence[int]) -> Observations:
        """Return the rewards of these rounds as observations: of a gain, all rounds since the validation before."""
        spans = [run.spans[round - 1] for round in rounds]
        terms = [term for round, span in zip(rounds, spans, strict=True) for term in range(round - span + 1, round + 1)]
        rewards = np.array([run.rewards[round - 1] for round in rounds], dtype=np.float64) - self.prior_mean
        correlation = self._view(_PLAIN).prior_correlation(ledger.space, [run.configs[term - 1] for term in terms])
        return Observations(correlation, np.array(terms), rewards * spans, np.cumsum([0, *spans[:-1]]))

    def _parameters(self, max_steps: int) -> tuple[DriftParameters, dict[str, Bounds]]:
        """Return the parameters that are used until any are learned, and the bounds of those that will be."""
        learned: dict[str, Bounds] = {}
        rate, length = 0.0, math.inf
        if self.time_kernel == "se":
            if self.time_lengthscale is None:
                learned["lengthscale"] = lengthscale_bounds(max_steps)
            length = self.time_lengthscale or lengthscale_bounds(max_steps)[1]
        elif self.forgetting_rate is None:
            learned["forgetting_rate"] = forgetting_bounds(max_steps)
            rate = forgetting_bounds(max_steps)[0]
        else:
            rate = find_forgetting_rate(self.forgetting_rate, max_steps)
        if self.variance is None:
            learned["variance"] = VARIANCE_BOUNDS
        if self.noise_variance is None:
            learned["noise_variance"] = NOISE_BOUNDS
        return DriftParameters(rate, length, self.variance or 1.0, self.noise_variance or 0.03), learned

    def _describe_time(self, view: DriftView) -> dict[str, Scalar]:
        if self.time_kernel == "se":
            return {"time_lengthscale": view.parameters.lengthscale}
        return {"forgetting_rate": view.parameters.forgetting_rate}

    def _view(self, parameters: DriftParameters) -> DriftView:
        return DriftView(
            run=self.run_view,
            kernel=self.kernel,
            lengthscale=self.lengthscale,
            parameters=parameters,
            prior_mean=self.prior_mean,
            n_starts=self.n_starts,
            bandwidth=self.bandwidth,
        )


def find_forgetting_rate(setting: float | str, max_steps: int) -> float:
    """Return the forgetting rate of a setting that is not learned."""
    return -math.expm1(-_DRIFT_OF_RUN / max_steps) if isinstance(setting, str) else setting


@as_printed(query="kappa", unvalidated="acquisition", time_kernel="se", variance=None, noise_variance=None)
@dataclass(frozen=True, slots=True, kw_only=True)
class CEGPUCB(DriftPolicy):
    name: ClassVar[str] = "ce_gp_ucb"
    printed: bool = False
