"""Cost-aware expected improvement: of the configurations whose expected improvement is close to the best, train the cheapest.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456: EI_alpha (eq. 1), contextual EI (eq. 2), cost models (section 3.2). EI-cool and the cheap initial design
are those of Lee, Perrone, Archambeau and Seeger, "Cost-aware Bayesian Optimization", arXiv:2003.10870 (CArBO).

    paper      here             meaning                                                            unit
    lambda     slack            CEI: fraction of the best EI that may be given up for a lower cost —
    alpha      cost_exponent    EI_alpha: EI / c^alpha                                             —
    c          cost_model       cost of a whole trial, learned from the receipts                   budget's unit
    tau        ledger.budget    EI-cool: the exponent falls from 1 to 0 as it is spent             budget's unit
    N_init     initial_trials   configurations trained before there is a model                     trials

Every order trains a new configuration to its end. docs/reference/policies/cost_aware_ei.md describes the numbers in `why`.

Differences from the paper:
- Losses are scaled by `models.loss_scaling`: a diverged or failed trial counts as bad, and so does a loss beyond the fence,
  so that one huge loss does not hide the differences of the others.
- With several workers, a trial that is being trained counts with its predicted loss.
- Only configurations whose cost is within the remaining budget with 90 % probability are candidates, if there are any.
- A trial that the budget limit interrupted is completed first when the budget is raised.
- The cost model is "auto" of `models.cost_aware.cost_models`, not always linear (`printed=True`: linear in three features).
- In time and money the initial design ends with a third of the budget, once two trials have finished. Where parameters are
  marked as more or less expensive, it starts at their cheap ends and then uses more and more of their ranges. With
  `printed=True` the design is the same in every budget.
- The kernel's parameters have weak priors (`models.gp.fit`; `printed=True`: none). They are fitted after every result up to 30,
  then after every fifth, from the last optimum; and from several points whenever the number of results has grown by half since
  the last such fit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np

from shoestring.core.deciding.comparison import are_apart, find_runner_up
from shoestring.core.deciding.memo import Lists
from shoestring.core.deciding.policy import ALL_TRIED, QUEUED_OR_INTERRUPTED_LABELS, find_finished_trials
from shoestring.core.deciding.prediction import BEST_VALUE_BY_STEP, MAX_CURVES, put_first
from shoestring.core.deciding.printed_form import as_printed
from shoestring.core.deciding.reproducible import Best
from shoestring.core.deciding.why_text import describe_phase
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.arrays import Flags, Floats, Indices
from shoestring.errors import PolicyError
from shoestring.models.cost_aware.candidate_search import (
    Findings,
    Surface,
    choose_cheap_and_far,
    find_cei,
    find_ei_alpha,
)
from shoestring.models.cost_aware.cost_models import COST_MODELS
from shoestring.models.cost_aware.linear import unpack
from shoestring.models.cost_aware.trade_off import cooling_exponent, find_implied_alpha, is_efficient, pareto_front
from shoestring.models.earlier_scores import InformedGP
from shoestring.models.gp.fit import carry_gp
from shoestring.models.gp.kernels import kernel_for
from shoestring.models.gp.posterior import GP
from shoestring.models.loss_scaling import Scaling, fit_scaling, normal_quantile
from shoestring.policies.config_table import BEST, ConfigsView, ConfigTable, Pool
from shoestring.policies.cost_aware.trial_costs import TrialCosts
from shoestring.policies.earlier_studies import EARLIER_STUDIES, describe_earlier
from shoestring.policy import (
    LOG_SPREAD,
    CandidateScores,
    Config,
    CurvePrediction,
    Decision,
    Labels,
    Ledger,
    Memo,
    Order,
    Points,
    Prediction,
    Refits,
    Trial,
    Why,
    WhyText,
    compare_scores,
    find_untried_config,
    is_in_design,
    nothing_to_train,
    require_one_of,
    require_whole,
    require_within,
    sort_best_first,
    start_trial,
    train_queued_or_interrupted,
)

Acquisition = Literal["ei", "eipu", "ei_cool", "ei_alpha", "cei"]
DESIGN = "initial design"
CHEAP_SHARE = 1 / 8  # of the budget, for the cheap initial design
# Of the marked ranges, for the last trial of the design. In the five marked problems of the race in which the most expensive
# configurations cost far more than others, the mean regret at 20 and 50 (30 seeds) was .092 and .046 with 0.5, .088 and .040
# with 0.8, .107 and .054 with 1; with 0.3 it was .112 at 20. Only the difference from no marks, .380 and .296, is beyond chance.
LAST_COST_SHARE = 0.8
_CHEAP_CANDIDATES = 500
_RUNNER_UP_CANDIDATES = 100  # best candidates among which a runner-up is searched: several may be nearly the same point
_REFITS = Refits(dense_until=30, every=5, restart_growth=1.5)  # by number of results


@dataclass(frozen=True, eq=False, slots=True)
class ScoredCandidates:
    """All candidates of one decision with their log EI and log cost, and the one to train."""

    found: Findings
    table: ConfigTable
    pool: Pool  # the first of the candidates; refined points follow
    costs: TrialCosts
    gp: GP | InformedGP  # of scaled losses
    scale: Scaling
    alpha: float
    memo: Memo

    @property
    def loss_unit(self) -> float:
        """Return the unit of EI, in the unit of the losses."""
        return float(self.scale.scale)

    def config(self, candidate: int) -> Config:
        return self.table.config(self.pool, self.found.points, candidate)

    def find_front(self) -> Indices:
        """Return the efficient candidates, with the one to train if it is efficient up to the tolerance of choices."""
        found = self.found
        front = pareto_front(found.log_ei, found.log_cost)
        on_front = is_efficient(found.log_ei, found.log_cost, found.index)
        return np.union1d(front, [found.index]) if on_front else front

    def candidate_scores(self, why: Why) -> CandidateScores:
        """Return all candidates in the units of the study."""
        found, (scores, _, best_is, _) = self.found, _score(self)
        ranked = sort_best_first(scores, best_is, _RUNNER_UP_CANDIDATES, spread=LOG_SPREAD)
        return CandidateScores(
            gain=self.loss_unit * np.exp(found.log_ei),
            cost=self.costs.rate * np.exp(found.log_cost),
            front=self.find_front(),
            chosen=found.index,
            runner_up=find_runner_up(why, ranked.tolist(), self.config),
            least=None if found.threshold is None else self.loss_unit * float(np.exp(found.threshold)),
            config=self.config,
        )

    def predict_values(self, candidates: Sequence[int], sign: float, max_steps: int) -> list[CurvePrediction]:
        """Return the predicted value of a full training of each of these candidates."""
        points = self.found.points.take(list(candidates))
        mean, variance = self.gp.predict(self.table.encoding.features(points))
        predictions = []
        for candidate, m, v in zip(candidates, mean, variance, strict=True):
            quantile = normal_quantile(np.array([m]), np.sqrt([v + self.gp.noise_variance]), self.scale.undo)
            predictions.append(CurvePrediction.of(None, self.config(candidate), [max_steps], quantile, sign))
        return predictions


@as_printed(cost_model="lv3", priors=False)
@dataclass(frozen=True, slots=True, kw_only=True)
class CostAwareEI:
    name: ClassVar[str] = "cost_aware_ei"
    why_labels: ClassVar[Labels] = {
        **QUEUED_OR_INTERRUPTED_LABELS,
        "alpha_misses_by": "log score by which that exponent misses the choice",
        "cheap_end_of": "parameters at whose cheap end the initial design starts",
        "cost_share": "share of their ranges that this trial could use, from the cheap end",
        "cost_exponent": "exponent of the cost by which the improvement is divided",
        "ei": "expected improvement (value)",
        "ei_max": "largest expected improvement of all candidates (value)",
        "front_position": "place on the Pareto front of improvement and cost, from the cheapest (number; 0: not on it)",
        "front_size": "candidates on that front (candidates)",
        "learned_from": "earlier studies, and how much their predictions are believed (share)",
        "implied_alpha": "exponent of the cost that would lead to the same choice",
        "predicted_cost": "predicted cost ({unit})",
        "threshold": "least expected improvement that was accepted (value)",
    }
    acquisition: Acquisition = "cei"  # rule that trades expected improvement against cost
    slack: float = 0.5  # fraction of the best EI that `cei` may give up for a lower cost
    cost_exponent: float = 0.2  # exponent of the cost for `ei_alpha`
    cost_model: str = "auto"  # one of `COST_MODELS`, or "transfer"
    # parameters that cost depends on, most important first; (): selected from the data
    cost_features: Sequence[str] = ()
    transferred: Mapping[str, Sequence[float]] = field(default_factory=dict)  # the model that `transfer_costs` made
    initial_design: Literal["fixed", "cheap"] = "fixed"  # quasi-random, or cheap configurations far from one another
    initial_trials: int = 5  # trials of the fixed design
    candidates: int = 2000  # quasi-random points of each decision, if the space is not a list
    priors: bool = True  # whether the parameters of the Gaussian process have weak priors; False: likelihood alone
    printed: bool = False  # the method as printed

    def __post_init__(self) -> None:
        require_one_of(self, "acquisition", get_args(Acquisition))
        require_one_of(self, "cost_model", (*COST_MODELS, "transfer"))
        require_one_of(self, "initial_design", ("fixed", "cheap"))
        require_one_of(self, "priors", (True, False))
        require_whole(self, "initial_trials", 1, "a model needs at least one result", "Try 5.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_within(self, "slack", 0.0, 1.0, "it is the fraction of the best EI that may be given up", "Try 0.5.")
        require_within(self, "cost_exponent", 0.0, np.inf, "below 0 it would pay extra for high costs", "Try 0.2.")
        if isinstance(one := self.cost_features, str):
            raise PolicyError(
                f"cost_aware_ei(cost_features={one!r}) must be a list of parameter names: write [{one!r}]."
            )
        if not isinstance(one, Sequence) or not all(isinstance(name, str) for name in one):
            raise PolicyError(
                f"cost_aware_ei(cost_features={one!r}) must be a list of parameter names: write ['width']."
            )
        self._require_transferred()

    def _require_transferred(self) -> None:
        given = self.transferred
        if not isinstance(given, Mapping):
            raise PolicyError(
                f"cost_aware_ei(transferred={given!r}) must be what `shoestring.transfer_costs` returned."
            )
        if given and self.cost_model != "transfer":
            raise PolicyError(
                f"cost_aware_ei(cost_model={self.cost_model!r}) does not use `transferred`, the model that "
                '`shoestring.transfer_costs` fitted to earlier studies. Set cost_model="transfer", or leave it out.'
            )
        if given:
            try:
                unpack(given)
            except ValueError as problem:
                raise PolicyError(
                    f"cost_aware_ei(transferred=…) must be what `shoestring.transfer_costs` returned: {problem}."
                ) from None

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if (first := train_queued_or_interrupted(ledger)) is not None:
            return first
        scored = None if self._is_in_design(ledger) else self.score_candidates(ledger, rng)
        if scored is None:
            return self._design(ledger, rng)
        at = scored.found.index
        order = start_trial(ledger, scored.config(at), ledger.max_steps, why=self._why(scored), memo=scored.memo)
        return scored.costs.add_expected_cost(order, scored.found.points, at)

    def _is_in_design(self, ledger: Ledger) -> bool:
        if ledger.view(EARLIER_STUDIES):  # then there is something to go by from the first trial on
            return False
        if self.initial_design == "fixed":
            return is_in_design(ledger, self.initial_trials, whole=self.printed)
        return ledger.spent + ledger.reserved < CHEAP_SHARE * ledger.budget.total

    def _design(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        table = ledger.view(ConfigsView())
        costs = self._costs(ledger, table)
        if self.initial_design == "cheap" and costs.is_known:
            pool = table.pool(ledger, _CHEAP_CANDIDATES, rng, near=())
            if len(pool.points):
                features, log_cost = table.encoding.features, costs.predict(pool.points)[0]
                tried = features(table.stack(range(len(table.trials))))
                at = choose_cheap_and_far(features(pool.points), tried, log_cost)
                config = table.config(pool, pool.points, at)
                why: Why = {"phase": DESIGN, "predicted_cost": costs.rate * float(np.exp(log_cost[at]))}
                order = start_trial(ledger, config, ledger.max_steps, why=why, memo={**ledger.memo, **costs.memo})
                return costs.add_expected_cost(order, pool.points, at)
        share = self._cost_share(ledger)
        untried = find_untried_config(ledger, share)
        if untried is None:
            return nothing_to_train(ledger, ALL_TRIED)
        marks: Why = {"cheap_end_of": ", ".join(ledger.space.cost_marks), "cost_share": share} if share < 1.0 else {}
        return start_trial(ledger, untried, ledger.max_steps, why={"phase": DESIGN, **marks}, memo=ledger.memo)

    def _cost_share(self, ledger: Ledger) -> float:
        """Return how much of the marked ranges the next trial of the design uses, from their cheap ends; 1 for all of them."""
        if self.printed or self.initial_design != "fixed":
            return 1.0
        if ledger.budget.unit == "epochs" or not ledger.space.cost_marks:
            return 1.0
        return LAST_COST_SHARE * len(ledger.trials) / max(1, self.initial_trials - 1)

    def score_candidates(self, ledger: Ledger, rng: np.random.Generator) -> ScoredCandidates | None:
        """Return all candidates with their scores; None if there is nothing to go by, or no candidate. Reports use it too."""
        table, results = ledger.view(ConfigsView()), find_finished_trials(ledger)
        if not results and not ledger.view(EARLIER_STUDIES):
            return None
        losses = np.array([trial.best_loss for trial in results])
        scale = fit_scaling(losses[:, None], np.ones((losses.size, 1), dtype=bool))
        y = scale.apply(losses)
        best = [results[i].number for i in sort_best_first(y, "lowest", BEST, exact=True)]
        pool = table.pool(ledger, self.candidates, rng, near=best)
        if not len(pool.points):
            return None
        gp, f_min, memo = self._fit_surrogate(ledger, table, results, y)
        costs = self._costs(ledger, table)
        is_affordable = costs.make_affordable_test(pool.points)
        if not (fits := is_affordable(pool.points)).all():
            pool = pool.take(fits)
        surface = Surface(table.encoding, gp, f_min, lambda points: costs.predict(points)[0])
        alpha = self._exponent(ledger)

        def is_allowed(points: Points) -> Flags:
            return is_affordable(points) & ~table.is_tried(points)

        refine = table.rows is None  # a listed space has no points between its rows
        if self.acquisition == "cei":
            found = find_cei(surface, pool.points, self.slack, is_allowed=is_allowed, refine=refine)
        else:
            found = find_ei_alpha(surface, pool.points, alpha, is_allowed=is_allowed, refine=refine)
        return ScoredCandidates(found, table, pool, costs, gp, scale, alpha, {**memo, **costs.memo})

    def _fit_surrogate(
        self, ledger: Ledger, table: ConfigTable, results: list[Trial], y: Floats
    ) -> tuple[GP | InformedGP, float, Lists]:
        """Return the posterior given scaled losses y, (n,), with trials under way as predicted; f_min; and the next memo."""
        encoding, earlier = table.encoding, ledger.view(EARLIER_STUDIES)
        kernel = kernel_for(encoding)
        next_memo: Lists = {}
        x = (
            encoding.features(table.stack([trial.number for trial in results]))
            if results
            else np.empty((0, kernel.n_dims))
        )
        expected = earlier.expect_scores(x, y) if earlier else None
        gp: GP | InformedGP | None = None if expected is None else InformedGP(kernel, expected)
        f_min = 0.0
        if results:
            fit = _REFITS.check_fit(ledger.memo, y.size)
            rest = y if expected is None else y - expected.mean(x)
            posterior, next_memo = carry_gp(kernel, x, rest, ledger.memo, fit, with_priors=self.priors)
            gp = posterior if expected is None else InformedGP(kernel, expected, posterior)
            f_min = float(gp.predict_observed().min())
        assert gp is not None  # without results and earlier studies there are no candidates
        in_training = [trial.number for trial in ledger.trials if trial.open_order is not None]
        if in_training:
            gp = gp.append_predicted(encoding.features(table.stack(in_training)))
        return gp, f_min, next_memo

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return gain and cost of all candidates, and the predicted values of the chosen one and of others on the front."""
        if "ei" not in order.why:
            return None
        scored = self.score_candidates(ledger, ledger.decision_rng())
        if scored is None:
            return None
        scores = scored.candidate_scores(order.why)
        few = scores.front[np.unique(np.linspace(0, len(scores.front) - 1, MAX_CURVES).astype(int))]
        shown = put_first(few, scores.chosen, scores.runner_up)
        values = scored.predict_values(shown, ledger.definition.sign, ledger.max_steps)
        return Prediction(values, BEST_VALUE_BY_STEP, scores)

    def _costs(self, ledger: Ledger, table: ConfigTable) -> TrialCosts:
        return TrialCosts(ledger, table, self.cost_model, self.cost_features, self.transferred, at_once=self.printed)

    def _exponent(self, ledger: Ledger) -> float:
        """Return the power of the cost by which EI is divided."""
        if self.acquisition == "ei_cool":
            in_epochs = ledger.budget.unit == "epochs"
            rate = ledger.step_price() if in_epochs else ledger.budget.per_second(ledger.workers)
            designed = {order.trial for order in ledger.orders if order.why.get("phase") == DESIGN}
            spent = sum(float(t.steps) if in_epochs else t.seconds for t in ledger.trials if t.number in designed)
            return cooling_exponent(ledger.budget.total, rate * spent, ledger.spent)
        return {"ei": 0.0, "eipu": 1.0, "ei_alpha": float(self.cost_exponent), "cei": 0.0}[self.acquisition]

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        part = "part of the initial design"
        if names := order.why.get("cheap_end_of"):
            verb = "moves away from" if order.why["cost_share"] else "starts at"
            part += f", which {verb} the cheap end of {names}"
        return WhyText(clauses=describe_phase(order.why, {DESIGN: part}))

    def _why(self, scored: ScoredCandidates) -> Why:
        at, log_ei, log_cost = scored.found.index, scored.found.log_ei, scored.found.log_cost
        why: dict[str, Scalar] = {
            **_compare(scored),
            "phase": self.acquisition,
            "ei": scored.loss_unit * float(np.exp(log_ei[at])),
            "ei_max": scored.loss_unit * float(np.exp(log_ei.max())),
            **describe_earlier(scored.gp),
        }
        if scored.found.threshold is not None:
            why["threshold"] = scored.loss_unit * float(np.exp(scored.found.threshold))
        else:
            why["cost_exponent"] = scored.alpha
        if not scored.costs.is_known:
            return why
        front = scored.find_front()
        cheaper = int(np.count_nonzero(log_cost[front] < log_cost[at]))
        why["predicted_cost"] = scored.costs.rate * float(np.exp(log_cost[at]))
        why["front_size"], why["front_position"] = int(front.size), cheaper + 1 if at in front else 0
        if np.isfinite(log_ei[at]):
            implied = find_implied_alpha(log_ei, log_cost, at)
            why["implied_alpha"], why["alpha_misses_by"] = float(implied.alpha), float(implied.gap)
        return why


def _score(scored: ScoredCandidates) -> tuple[Floats, str, Best, float]:
    """Return the log scores behind the choice, their name, which is best, and their unit.

    The score is the cost among the points that CEI admits, or else EI divided by a power of the cost.
    """
    found, unit = scored.found, scored.loss_unit
    scores, name = found.log_ei - scored.alpha * found.log_cost, "expected improvement"
    if by_cost := found.threshold is not None and np.ptp(found.log_cost) > 1e-9:
        scores, unit = np.where(found.log_ei >= found.threshold, found.log_cost, np.inf), scored.costs.rate
        name = "predicted cost, among candidates with enough expected improvement"
    elif scored.alpha:
        name = f"expected improvement / cost^{scored.alpha:.3g}"
    return scores, name, "lowest" if by_cost else "highest", unit


def _compare(scored: ScoredCandidates) -> Why:
    scores, name, best_is, unit = _score(scored)
    at = scored.found.index
    apart = are_apart(scored.found.points.cube, at)
    return compare_scores(
        name, best_is, scores, at, scored.config, competitors=apart, in_unit=lambda s: unit * np.exp(s)
    )
