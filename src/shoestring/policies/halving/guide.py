"""The guide: a Gaussian process of how good trials look so far chooses the configurations that a race starts next.

Guinet, Perrone and Archambeau, arXiv:2011.11456, eq. (2), for the trade between improvement and cost. The use in a race is that
of Klein et al., "Model-based Asynchronous Hyperparameter and Neural Architecture Search", arXiv:2003.10865, with one model for
all steps instead of a model of curves.

    paper    here       meaning                                                                    unit
    y        scores     how good trials look: normal quantiles of their places (`models.first_looks`)  —
    EI       log_ei     log of the expected improvement of the score on the best so far             —
    c        log_cost   log of the predicted price of a step; 0 if all steps cost the same          seconds
    lambda   SLACK      share of the best EI that may be given up for a lower price                 —

A newcomer is the cheapest of the candidates with at least half of the largest expected improvement, by the rule that
`cost_aware_ei` has. If one evaluation chooses several, each counts for the next ones as if its result had come out as predicted.
So do trials that are being trained and have no result yet.

The best place by the model is not always the best place in the end: first looks are a hint, and trials that all look equally
good cannot be told apart by a race. So each newcomer is the best of a small random part of the candidates: of 16, or of as many
as there are trials, if these are more. The part is smaller where the order of trials changed since their first look. With 1
candidate a newcomer would be a random one. With earlier studies (`earlier_studies`) it is the best of all candidates, as long as
they are believed: what they say of a configuration is more than a first look.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from shoestring.core.deciding.comparison import BestIs, are_apart
from shoestring.core.deciding.memo import Lists
from shoestring.core.deciding.prediction import MAX_CURVES, VALUE_AT_STEP, put_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.cost_aware.cost_features import CostFeatures
from shoestring.models.cost_aware.cost_models import GPCost, fit_cost_model, log_costs
from shoestring.models.cost_aware.trade_off import cei_threshold, choose_cei
from shoestring.models.earlier_scores import InformedGP
from shoestring.models.first_looks import Curve, measure_agreement, place_trials, score_places
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.fit import fit_gp, theta_from_memo
from shoestring.models.gp.kernels import kernel_for
from shoestring.models.gp.posterior import GP, GP_MEMO, condition
from shoestring.models.loss_scaling import normal_quantile
from shoestring.policies.config_table import BEST, ConfigTable, Pool
from shoestring.policies.earlier_studies import EARLIER_STUDIES, describe_earlier
from shoestring.policies.halving.newcomers import CONFIGS, Newcomer, encode_place
from shoestring.policy import (
    LOG_SPREAD,
    NO_MEMO,
    Config,
    CurvePrediction,
    Ledger,
    Memo,
    Order,
    Points,
    Prediction,
    Refits,
    Trial,
    Why,
    compare_scores,
    reaches,
    sort_best_first,
)

SLACK = 0.5
_MIN_LOOKS = 3  # trials with a result, before a model is fitted
_MAX_LOOKS = 256  # trials that the model is conditioned on; from more, those at even distances from best to worst
_MAX_FITTED = 100  # of these, trials that its parameters are fitted to
_MAX_PENDING = 64  # trials without a result that count as predicted, the newest
_CANDIDATES = 500  # besides those around the best trials; of a list of configurations, in all
_FEWEST_COMPARED = 16  # candidates for a newcomer, until there are more trials than that
_NO_TRUST, _FULL_TRUST = 0.3, 0.5  # agreements of first looks with later ones, below and above which nothing changes
_REFITS = Refits(first=_MIN_LOOKS, growth=1.25, restart_growth=2.0, key="guide_fitted_at")
_PREFIX, _PRICE_PREFIX = "guide_", "guide_price_"
_SIMILAR = 0.3  # least correlation of a trial that is called similar


@dataclass(frozen=True, slots=True, eq=False)
class Guide:
    """The model at one moment, with the candidates."""

    table: ConfigTable
    seen: list[Trial]  # trials with a result that the model is conditioned on
    gp: GP | InformedGP  # of the scores of the seen trials, and of trials under way as predicted
    best: float  # lowest score, noise removed
    compared: int  # candidates of which a newcomer is the best
    pool: Pool
    log_cost: Floats  # (m,): of the candidates
    memo: Memo

    def split(self, ledger: Ledger, count: int) -> Iterator[Indices]:
        """Yield the candidates for each of `count` newcomers, at random; for fewer if there are fewer candidates."""
        order = _rng(ledger, "parts").permutation(len(self.log_cost))
        size = max(1, min(self.compared, len(order) // count))
        yield from (order[at * size : (at + 1) * size] for at in range(min(count, len(order))))

    @property
    def features(self) -> Floats:
        return self.table.encoding.features(self.pool.points)

    def config(self, candidate: int) -> Config:
        return self.table.config(self.pool, self.pool.points, candidate)

    def find_similar(self, candidate: int) -> list[int]:
        """Return the numbers of the two trials whose configurations correlate most with the candidate's, if they do at all."""
        gp = self.gp.rest if isinstance(self.gp, InformedGP) else self.gp
        if gp is None or not self.seen:
            return []
        theta, known = gp.theta[:-1], self.table.encoding.features(_stack(self.table, self.seen))
        shared = gp.kernel.matrix(theta, self.features[[candidate]], known)[0] / math.exp(theta[0])
        closest = sort_best_first(shared, "highest", 2, spread=1.0)
        return [self.seen[i].number for i in closest if shared[i] >= _SIMILAR]


def make_guide(ledger: Ledger, fitted: Memo) -> Guide | None:
    """Return the model and the candidates; None if there is too little to go by, or no candidate is left."""
    table, earlier = ledger.view(CONFIGS), ledger.view(EARLIER_STUDIES)
    known = [trial for trial in ledger.trials if _has_result(trial)]
    if len(known) < _MIN_LOOKS and not earlier:
        return None
    curves = [_losses(trial) for trial in known]
    places = place_trials(curves)
    order = sort_best_first(places, "lowest", exact=True)
    kept = order[_spread(len(order), _MAX_LOOKS)]
    seen, y = [known[i] for i in kept], score_places(places[kept])
    pool = _draw_pool(ledger, table, [trial.number for trial in seen[:BEST]])
    if not len(pool.points):
        return None
    features, kernel = table.encoding.features, kernel_for(table.encoding)
    x = features(_stack(table, seen))
    expected = earlier.expect_scores(x, y) if earlier else None
    gp: GP | InformedGP | None = None if expected is None else InformedGP(kernel, expected)
    best, memo, is_due = 0.0, NO_MEMO, False
    if seen:
        past: Memo = {name: fitted[_PREFIX + name] for name in GP_MEMO if _PREFIX + name in fitted}
        fit = _REFITS.check_fit(fitted, len(known))
        rest = y if expected is None else y - expected.mean(x)
        if is_due := fit.is_due or not past:
            part = _spread(len(y), _MAX_FITTED)
            past = fit_gp(kernel, x[part], rest[part], memo=past or None, n_starts=int(fit.is_restart)).memo()
        posterior = condition(kernel, theta_from_memo(past, kernel), x, rest)
        gp = posterior if expected is None else InformedGP(kernel, expected, posterior)
        best = float(gp.predict_observed().min())
        memo = {_PREFIX + name: list(past[name]) for name in GP_MEMO} | fit.marks
    assert gp is not None
    log_cost, price_memo = _predict_prices(ledger, table, seen, pool.points, fitted, is_due)
    pending = [trial for trial in ledger.trials if trial.open_order is not None and not _has_result(trial)]
    if pending := pending[-_MAX_PENDING:]:
        gp = _append_predicted(gp, features(_stack(table, pending)))
    compared = _count_compared(len(known), curves)
    if expected is not None:
        compared += round(expected.trust * max(0, len(pool.points) - compared))
    return Guide(table, seen, gp, best, compared, pool, log_cost, {**memo, **price_memo})


def _append_predicted(gp: GP | InformedGP, x: Floats) -> GP | InformedGP:
    """Return the posterior as if each of the points x, (m, columns), had the score that is predicted for it."""
    return gp.append_predicted(x) if isinstance(gp, InformedGP) else gp.extend(x, gp.predict_mean(x))


def choose_newcomers(ledger: Ledger, fitted: Memo, count: int) -> Newcomer | None:
    """Return the best newcomer, with the next best in its memo, `count` in all; None if there is nothing to go by yet.

    `fitted` is the memo of the last evaluation.
    """
    guide = make_guide(ledger, fitted)
    if guide is None:
        return None
    features, gp = guide.features, guide.gp
    chosen: list[tuple[int, float]] = []  # candidates with the share of trials that is expected to be better
    first: Why = {}
    for part in guide.split(ledger, count):
        mean, variance = gp.predict(features[part])
        log_ei = log_expected_improvement(mean, np.sqrt(variance), guide.best)
        best = choose_cei(log_ei, guide.log_cost[part], SLACK)
        at, share = int(part[best]), _round(float(ndtr(mean[best])))
        first = first or _explain(ledger, guide, part, log_ei, best, share)
        chosen.append((at, share))
        if len(chosen) < count:
            gp = _append_predicted(gp, features[[at]])
    rows, cube = guide.pool.rows, guide.pool.points.cube
    plan = [
        number
        for at, share in chosen[1:]
        for number in (share, *encode_place(guide.table, cube[at].tolist(), int(rows[at]) if rows.size else None))
    ]
    return Newcomer(guide.config(chosen[0][0]), first, {"guide_plan": plan, **guide.memo})


def _explain(ledger: Ledger, guide: Guide, part: Indices, log_ei: Floats, best: int, share: float) -> Why:
    """Return the numbers behind the choice of one candidate from a part of them."""
    log_cost = guide.log_cost[part]
    best_is: BestIs = "highest"
    scores, name = log_ei, "expected improvement, in standard deviations"
    if by_price := np.ptp(log_cost) > 1e-9:
        best_is = "lowest"
        scores = np.where(reaches(log_ei, cei_threshold(float(log_ei.max()), SLACK)), log_cost, np.inf)
        name = "predicted price of a step, among candidates with enough expected improvement"
    rate = ledger.budget.per_second(ledger.workers) if by_price else 1.0
    apart = are_apart(guide.pool.points.cube[part], best)
    why = compare_scores(
        name,
        best_is,
        scores,
        best,
        lambda i: guide.config(int(part[i])),
        competitors=apart,
        in_unit=lambda score: _round(rate * math.exp(score)),
    )
    why |= {"expected_share": share, **describe_earlier(guide.gp)}
    if similar := guide.find_similar(int(part[best])):
        why["similar_to"] = ", ".join(map(str, similar))
    if by_price:
        why["price"] = _round(rate * math.exp(float(log_cost[best])))
    return why


def predict_values(ledger: Ledger, order: Order) -> Prediction | None:
    """Return the values that the model expected of the newcomer and of its best competitors at their first look."""
    guide = make_guide(ledger, order.memo)
    if guide is None:
        return None
    mean, variance = guide.gp.predict(guide.features)
    log_ei = log_expected_improvement(mean, np.sqrt(variance), guide.best)
    configs = [guide.config(i) for i in range(len(log_ei))]
    chosen = next((i for i, config in enumerate(configs) if config == order.config), None)
    if chosen is None:
        return None
    shown = put_first(sort_best_first(log_ei, "highest", MAX_CURVES, spread=LOG_SPREAD), chosen)
    mean, variance = guide.gp.predict(guide.features[shown], noisy=True)
    step, convert = _first_looks(guide.seen)
    curves = []
    for i, m, v in zip(shown, mean, variance, strict=True):
        quantile = normal_quantile(np.array([m]), np.array([math.sqrt(v)]), convert)
        curves.append(CurvePrediction.of(None, configs[i], [step], quantile, ledger.definition.sign))
    return Prediction(curves, VALUE_AT_STEP)


def _first_looks(seen: Sequence[Trial]) -> tuple[int, Callable[[Floats], Floats]]:
    """Return the step of the first look, and the function from scores to losses there."""
    first = [next(((i, loss) for i, loss in enumerate(trial.losses, 1) if loss is not None), None) for trial in seen]
    finite = sorted(loss for _, loss in filter(None, first) if math.isfinite(loss)) or [math.inf]
    places = (np.arange(len(finite)) + 0.5) / len(finite)
    step = min((step for step, _ in filter(None, first)), default=1)
    return step, lambda scores: np.interp(ndtr(scores), places, finite)


def _predict_prices(
    ledger: Ledger, table: ConfigTable, seen: Sequence[Trial], pool: Points, fitted: Memo, is_due: bool
) -> tuple[Floats, Lists]:
    """Return the log price of a step of each candidate, (m,), and the parameters of the model; 0 if steps cost the same."""
    features = CostFeatures(table.encoding)
    if ledger.budget.unit == "epochs" or not features.names:
        return np.zeros(len(pool)), {}
    paid = [trial for trial in seen if math.fsum(trial.step_costs) > 0.0]
    points, columns = _stack(table, paid), table.encoding.features
    log_cost = log_costs(np.array([math.fsum(trial.step_costs) / len(trial.step_costs) for trial in paid]))
    expected = ledger.view(EARLIER_STUDIES).expect_log_price(columns(points), log_cost)
    if len(paid) < _MIN_LOOKS:
        return (np.zeros(len(pool)) if expected is None else expected.mean(columns(pool))), {}
    if expected is not None:
        log_cost = log_cost - expected.mean(columns(points))
    past = {name.removeprefix(_PRICE_PREFIX): fitted[name] for name in fitted if name.startswith(_PRICE_PREFIX)}
    part = _spread(len(paid), _MAX_FITTED)
    refit = is_due or not past
    model = fit_cost_model("gp", features.of(points.take(part)), log_cost[part], memo=past or None, refit=refit)
    assert isinstance(model, GPCost)
    memo = {_PRICE_PREFIX + name: numbers for name, numbers in model.gp.memo().items()}
    predicted = model.predict(features.of(pool))[0]
    return predicted if expected is None else predicted + expected.mean(columns(pool)), memo


def _draw_pool(ledger: Ledger, table: ConfigTable, best: Sequence[int]) -> Pool:
    rng = _rng(ledger, "newcomers")
    pool = table.pool(ledger, _CANDIDATES, rng, near=best)
    if pool.rows.size <= _CANDIDATES:
        return pool
    chosen = np.zeros(pool.rows.size, dtype=bool)
    chosen[rng.permutation(pool.rows.size)[:_CANDIDATES]] = True
    return pool.take(chosen)


def _count_compared(trials: int, curves: Sequence[Curve]) -> int:
    """Return of how many candidates a newcomer is the best: fewer where first looks say little about later ones."""
    trust = (measure_agreement(curves) - _NO_TRUST) / (_FULL_TRUST - _NO_TRUST)
    return 1 + round(min(1.0, max(0.0, trust)) * (max(_FEWEST_COMPARED, trials) - 1))


def _rng(ledger: Ledger, purpose: str) -> np.random.Generator:
    return ledger.rng(purpose, len(ledger.trials))


def _has_result(trial: Trial) -> bool:
    return trial.diverged or bool(trial.failure) or any(loss is not None for loss in trial.losses)


def _losses(trial: Trial) -> Curve:
    """Return the losses of a trial by step; a diverged or failed one is as bad as possible at every step."""
    return [math.inf] if trial.diverged or trial.failure else trial.losses


def _stack(table: ConfigTable, trials: Sequence[Trial]) -> Points:
    return table.stack([trial.number for trial in trials]) if trials else table.encoding.points([])


def _spread(count: int, at_most: int) -> Indices:
    """Return the indices of `count` things, or of `at_most` of them at even distances."""
    return np.linspace(0, count - 1, min(count, at_most)).round().astype(np.intp)


def _round(number: float) -> float:
    """Return three significant digits, because the last digits differ from machine to machine."""
    return float(f"{number:.3g}")
