"""Cost-aware expected improvement: of the configs that promise nearly the most, train the cheapest.

Guinet, Perrone and Archambeau, "Pareto-efficient Acquisition Functions for Cost-Aware Bayesian Optimization",
arXiv:2011.11456: EI_alpha (eq. 1), contextual EI (eq. 2), cost models (section 3.2). EI-cool and the cheap initial design
are those of Lee, Perrone, Archambeau and Seeger, "Cost-aware Bayesian Optimization", arXiv:2003.10870 (CArBO).

    paper      here             meaning                                                            unit
    lambda     slack            CEI: fraction of the best EI that may be given up for a lower cost —
    alpha      cost_exponent    EI_alpha: EI / c^alpha                                             —
    c          cost_model       what a whole trial costs, learned from the receipts                budget's unit
    tau        ledger.budget    EI-cool: the exponent falls from 1 to 0 as it is spent             budget's unit
    N_init     initial_trials   configs bought before any model is asked                           trials

Every order trains a new config to its end. `why` tells of the config bought: ei and ei_max (in the unit of the losses, in
which all improvement is measured), threshold (the least EI that CEI admits), predicted_cost, cost_exponent (in use),
implied_alpha (the exponent that would have led EI_alpha here; alpha_misses_by > 0: none would), front_position and front_size
(place among the efficient trade-offs, 1 is the cheapest).

Departs from the paper:
- Losses enter as `models.loss_scaling` leaves them: a diverged or failed trial counts as bad, and so does a loss beyond the
  fence, so that one explosion does not flatten the rest. `log_losses` models their logarithms.
- Several workers: a trial under way counts as if it had come out as predicted.
- Only configs whose cost stays within what is left with 90 % probability are looked at, as long as there are any.
- A trial that the wall cut short is finished first when there is money again.
- The kernel's parameters have weak priors and are fitted again after every result up to 30, then after every fifth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Decision, Finish, Memo, Train, Why
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.errors import PolicyError, did_you_mean
from shoestring.models.acquisition import cooling_exponent, implied_alpha, pareto_front
from shoestring.models.acquisition_search import Found, Surface, candidates, find_cei, find_ei_alpha
from shoestring.models.cost import COST_MODELS
from shoestring.models.encoding import Points
from shoestring.models.gp import GP, condition
from shoestring.models.gp_fit import fit_gp
from shoestring.models.kernels import Kernel
from shoestring.models.loss_scaling import Scaling, scaling
from shoestring.policies import checking
from shoestring.policies.outcomes import Outcomes, Table, results, unfinished
from shoestring.policies.trial_costs import TrialCosts

Array = NDArray[np.float64]
Acquisition = Literal["ei", "eipu", "ei_cool", "ei_alpha", "cei"]
DESIGN = "initial design"
CHEAP_SHARE = 1 / 8  # of the budget, for the cheap initial design
_CHEAP_CANDIDATES = 500
_BEST = 5  # trials whose surroundings are searched
_OFTEN = 30  # results up to which every one is followed by a fit of the kernel's parameters
_EVERY = 5  # results between fits from then on
_AFRESH = 1.5  # growth of the results after which a fit starts from several places again


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAwareEI:
    name: ClassVar[str] = "cost_aware_ei"
    acquisition: Acquisition = "cei"
    slack: float = 0.2
    cost_exponent: float = 0.2
    cost_model: str = "lv3"
    cost_features: Sequence[str] = ()  # parameters that cost depends on, most important first; (): found out
    transferred: Mapping[str, Sequence[float]] = field(default_factory=dict)  # `packed` model of earlier studies
    initial_design: Literal["fixed", "cheap"] = "fixed"
    initial_trials: int = 5
    candidates: int = 2000
    log_losses: bool = False

    def __post_init__(self) -> None:
        self._one_of("acquisition", get_args(Acquisition))
        self._one_of("cost_model", (*COST_MODELS, "transfer"))
        self._one_of("initial_design", ("fixed", "cheap"))
        self._one_of("log_losses", (False, True))
        checking.whole(self, "initial_trials", 1, "a model needs at least one result", "Try 5.")
        checking.whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        for setting, high, because in (
            ("slack", 1.0, "it is the fraction of the best EI that may be given up"),
            ("cost_exponent", np.inf, "a negative exponent would pay extra for expensive configs"),
        ):
            value = getattr(self, setting)
            if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 <= value <= high:
                rule = "from 0 to 1" if high == 1.0 else ">= 0"
                raise PolicyError(f"CostAwareEI({setting}={value!r}) must be a number {rule}: {because}. Try 0.2.")
        if isinstance(self.cost_features, str):
            raise PolicyError(
                f"CostAwareEI(cost_features={self.cost_features!r}) must be a list of parameter names, not one text: "
                f"write [{self.cost_features!r}]."
            )
        if (self.cost_model == "transfer") != bool(self.transferred):
            raise PolicyError(
                f"CostAwareEI(cost_model={self.cost_model!r}) and `transferred` go together: the model of earlier studies "
                "is fitted with `shoestring.policies.trial_costs.transferred`. Give both or neither."
            )

    def _one_of(self, setting: str, known: Sequence[object]) -> None:
        value = getattr(self, setting)
        if not any(value is option or (isinstance(value, str) and value == option) for option in known):
            hint = did_you_mean(str(value), [str(option) for option in known])
            raise PolicyError(f"CostAwareEI({setting}={value!r}) is unknown. {hint}")

    @classmethod
    def small(cls) -> CostAwareEI:
        return cls(initial_trials=2, candidates=40)

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if ledger.queue:
            return self._new(ledger, ledger.queue[0], {"phase": "queued"}, ledger.memo)
        table = ledger.view(Outcomes(DESIGN))
        if (trial := unfinished(ledger, table)) is not None:
            why: Why = {"phase": "cut short", "at": trial.steps}
            return Train(trial=trial.number, config=trial.config, until=trial.limit, why=why, memo=ledger.memo)
        if table.rows is not None and not table.unused.any():
            return Finish("every config of the space was tried")
        numbers, losses = results(ledger)
        costs = TrialCosts(ledger, table, self.cost_model, self.cost_features, self.transferred)
        if not numbers or self._in_design(ledger):
            return self._design(ledger, table, costs, rng)
        return self._best(ledger, table, numbers, losses, costs, rng)

    def _in_design(self, ledger: Ledger) -> bool:
        if self.initial_design == "fixed":
            return len(ledger.trials) < self.initial_trials
        return ledger.spent + ledger.reserved < CHEAP_SHARE * ledger.budget.total

    def _design(self, ledger: Ledger, table: Table, costs: TrialCosts, rng: np.random.Generator) -> Decision:
        why: dict[str, str | float] = {"phase": DESIGN}
        if self.initial_design == "fixed" or costs.model is None:
            config = fresh_config(ledger)
            if config is None:
                return Finish("every config of the space was tried")
            return self._new(ledger, config, why, ledger.memo)
        pool, rows = self._pool(ledger, table, np.empty((0, ledger.space.dims)), rng, _CHEAP_CANDIDATES)
        log_cost = costs.predict(pool)[0]
        at = _cheap_and_far(table, pool, log_cost)
        config = table.rows[rows[at]] if table.rows is not None else table.encoding.config(pool, at)
        why["predicted_cost"] = float(np.exp(log_cost[at]))
        return self._new(ledger, config, why, {**ledger.memo, **costs.memo}, *costs.bill(pool, at))

    def _best(
        self,
        ledger: Ledger,
        table: Table,
        numbers: list[int],
        losses: Array,
        costs: TrialCosts,
        rng: np.random.Generator,
    ) -> Decision:
        encoding = table.encoding
        scale = scaling(losses[:, None], np.ones((losses.size, 1), dtype=bool), self.log_losses)
        y = scale.apply(losses)
        seen = table.stacked(numbers)
        gp, fit_memo = _belief(encoding.kernel(), encoding.features(seen), y, ledger.memo)
        f_min = float(gp.fitted().min())
        for trial in ledger.trials:
            if trial.open_order is not None:
                x = encoding.features(table.trials[trial.number])
                gp = gp.append(x[0], float(gp.predict(x)[0][0]))
        best = seen.cube[np.argsort(y, kind="stable")[:_BEST]]
        pool, rows = self._pool(ledger, table, best, rng, self.candidates)
        can_be_paid = costs.can_be_paid(pool)
        fits = can_be_paid(pool)
        surface = Surface(encoding, gp, f_min, lambda points: costs.predict(points)[0])
        alpha = self._exponent(ledger, table)
        found = self._search(surface, pool.take(fits), alpha, lambda p: can_be_paid(p) & ~table.is_tried(p), table)
        if table.rows is not None:
            config = table.rows[rows[np.flatnonzero(fits)[found.index]]]
        else:
            config = encoding.config(found.points, found.index)
        why = _why(found, scale, costs.model is not None, self.acquisition, alpha)
        return self._new(ledger, config, why, {**fit_memo, **costs.memo}, *costs.bill(found.points, found.index))

    def _search(
        self,
        surface: Surface,
        pool: Points,
        alpha: float,
        allowed: Callable[[Points], NDArray[np.bool_]],
        table: Table,
    ) -> Found:
        refine = table.rows is None
        if self.acquisition == "cei":
            return find_cei(surface, pool, self.slack, allowed=allowed, refine=refine)
        return find_ei_alpha(surface, pool, alpha, allowed=allowed, refine=refine)

    def _pool(
        self, ledger: Ledger, table: Table, best: Array, rng: np.random.Generator, count: int
    ) -> tuple[Points, NDArray[np.intp]]:
        """Configs to choose from, none of them tried, and their rows where the space is listed."""
        if table.row_points is not None:
            rows = np.flatnonzero(table.unused)
            return table.row_points.take(rows), rows
        pool = candidates(table.encoding, best, count, ledger.opened.seed, rng)
        fresh = ~table.is_tried(pool)
        if not fresh.any():  # a huge finite space searched with a handful of candidates
            config = fresh_config(ledger)
            return (table.encoding.points([config]) if config else pool), np.zeros(0, dtype=np.intp)
        return pool.take(fresh), np.zeros(0, dtype=np.intp)

    def _exponent(self, ledger: Ledger, table: Table) -> float:
        """The power of the cost that EI is divided by."""
        if self.acquisition == "ei_cool":
            epochs = ledger.budget.unit == "epochs"
            rate = 1.0 if epochs else ledger.budget.per_second(ledger.workers)
            spent = sum(float(f.steps) if epochs else f.seconds for f in table.facts if f.design)
            return cooling_exponent(ledger.budget.total, rate * spent, ledger.spent)
        return {"ei": 0.0, "eipu": 1.0, "ei_alpha": float(self.cost_exponent), "cei": 0.0}[self.acquisition]

    def _new(
        self,
        ledger: Ledger,
        config: Mapping[str, object],
        why: Why,
        memo: Memo,
        expected: float | None = None,
        reserve: float | None = None,
    ) -> Train:
        return Train(
            trial=len(ledger.trials),
            config=dict(config),
            until=ledger.max_steps,
            expected_cost=expected,
            reserve=reserve,
            why=why,
            memo=memo,
        )


def _belief(kernel: Kernel, x: Array, y: Array, memo: Memo) -> tuple[GP, dict[str, list[float]]]:
    """The posterior, its parameters fitted again where that is due, and the memo from which the next decision starts."""
    n = float(y.size)
    fitted_at, afresh_at = memo.get("fitted_at", (0.0, 0.0))
    past = {key: memo[key] for key in ("log_signal_variance", "log_lengthscales", "log_noise_variance") if key in memo}
    if not past or n >= _AFRESH * afresh_at:
        gp = fit_gp(kernel, x, y, memo=past or None, n_starts=2)
        fitted_at, afresh_at = n, n
    elif n != fitted_at and (n <= _OFTEN or n >= fitted_at + _EVERY):
        gp = fit_gp(kernel, x, y, memo=past, n_starts=0)
        fitted_at = n
    else:
        theta = np.array([value for numbers in past.values() for value in numbers])
        return condition(kernel, theta, x, y), {
            **{k: list(v) for k, v in past.items()},
            "fitted_at": [fitted_at, afresh_at],
        }
    return gp, {**gp.memo(), "fitted_at": [fitted_at, afresh_at]}


def _cheap_and_far(table: Table, pool: Points, log_cost: Array) -> int:
    """CArBO's space-filling choice: drop the costliest and the one closest to a trial in turn, until one is left."""
    x = table.encoding.features(pool)
    seen = table.encoding.features(table.stacked(range(len(table.trials))))
    apart = np.min(np.linalg.norm(x[:, None] - seen[None], axis=2), axis=1)  # (m,)
    costliest, closest = np.argsort(-log_cost, kind="stable"), np.argsort(apart, kind="stable")
    gone = np.zeros(len(pool), dtype=bool)
    places = [0, 0]
    for turn in range(len(pool) - 1):
        order, side = ((costliest, 0), (closest, 1))[turn % 2]
        while gone[order[places[side]]]:
            places[side] += 1
        gone[order[places[side]]] = True
    return int(np.flatnonzero(~gone)[0])


def _why(found: Found, scale: Scaling, priced: bool, acquisition: str, alpha: float) -> dict[str, str | float | bool]:
    at, log_ei, log_cost = found.index, found.log_ei, found.log_cost
    unit = float(scale.scale)
    why: dict[str, str | float | bool] = {
        "phase": acquisition,
        "ei": unit * float(np.exp(log_ei[at])),
        "ei_max": unit * float(np.exp(log_ei.max())),
    }
    if found.threshold is not None:
        why["threshold"] = unit * float(np.exp(found.threshold))
    else:
        why["cost_exponent"] = alpha
    if priced:
        front = pareto_front(log_ei, log_cost)
        by_cost = front[np.argsort(log_cost[front], kind="stable")]
        why["predicted_cost"] = float(np.exp(log_cost[at]))
        why["front_size"] = int(front.size)
        why["front_position"] = int(np.flatnonzero(by_cost == at)[0]) + 1 if at in front else 0
        if np.isfinite(log_ei[at]):
            implied = implied_alpha(log_ei, log_cost, at)
            why["implied_alpha"], why["alpha_misses_by"] = float(implied.alpha), float(implied.gap)
    return why
