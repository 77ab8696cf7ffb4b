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
- The kernel's parameters have weak priors and are fitted on the schedule of `policies.surrogate`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shoestring.core.decision import Decision, Finish, Memo, Train, Why
from shoestring.core.encoding import Points
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.settings import require_one_of, require_whole, require_within
from shoestring.core.space import Config
from shoestring.errors import PolicyError
from shoestring.models.cost_aware.cost_models import COST_MODELS
from shoestring.models.cost_aware.initial_design import cheap_and_far
from shoestring.models.cost_aware.search import Found, Surface, candidates, find_cei, find_ei_alpha
from shoestring.models.gp.acquisition import cooling_exponent, implied_alpha, pareto_front
from shoestring.models.gp.kernels import kernel_for
from shoestring.models.loss_scaling import scaling
from shoestring.policies.cost_aware.trial_costs import TrialCosts
from shoestring.policies.outcomes import Outcomes, Table, results, unfinished
from shoestring.policies.surrogate import posterior

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Acquisition = Literal["ei", "eipu", "ei_cool", "ei_alpha", "cei"]
DESIGN = "initial design"
CHEAP_SHARE = 1 / 8  # of the budget, for the cheap initial design
_CHEAP_CANDIDATES = 500
_BEST = 5  # trials whose surroundings are searched


@dataclass(frozen=True, eq=False, slots=True)
class Look:
    """All candidates of one decision with their log EI and log cost, and the one to buy."""

    found: Found
    config: Config
    rows: NDArray[np.intp]  # of a listed space: the row of each candidate
    costs: TrialCosts
    loss_unit: float  # what one unit of EI is in losses
    alpha: float
    memo: Memo


@dataclass(frozen=True, slots=True, kw_only=True)
class CostAwareEI:
    name: ClassVar[str] = "cost_aware_ei"
    acquisition: Acquisition = "cei"
    slack: float = 0.5
    cost_exponent: float = 0.2
    cost_model: str = "lv3"
    cost_features: Sequence[str] = ()  # parameters that cost depends on, most important first; (): found out
    transferred: Mapping[str, Sequence[float]] = field(default_factory=dict)  # `packed` model of earlier studies
    initial_design: Literal["fixed", "cheap"] = "fixed"
    initial_trials: int = 5
    candidates: int = 2000
    log_losses: bool = False

    def __post_init__(self) -> None:
        require_one_of(self, "acquisition", get_args(Acquisition))
        require_one_of(self, "cost_model", (*COST_MODELS, "transfer"))
        require_one_of(self, "initial_design", ("fixed", "cheap"))
        require_one_of(self, "log_losses", (False, True))
        require_whole(self, "initial_trials", 1, "a model needs at least one result", "Try 5.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_within(self, "slack", 0.0, 1.0, "it is the fraction of the best EI that may be given up", "Try 0.5.")
        because = "a negative exponent would pay extra for expensive configs"
        require_within(self, "cost_exponent", 0.0, np.inf, because, "Try 0.2.")
        if isinstance(self.cost_features, str):
            raise PolicyError(
                f"CostAwareEI(cost_features={self.cost_features!r}) must be a list of parameter names, not one text: "
                f"write [{self.cost_features!r}]."
            )
        if (self.cost_model == "transfer") != bool(self.transferred):
            raise PolicyError(
                f"CostAwareEI(cost_model={self.cost_model!r}) and `transferred` go together: the model of earlier studies "
                "is fitted with `shoestring.policies.cost_aware.trial_costs.transferred`. Give both or neither."
            )

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
        seen = None if self._in_design(ledger) else self.look(ledger, rng)
        if seen is None:
            return self._design(ledger, table, rng)
        bill = seen.costs.bill(seen.found.points, seen.found.index)
        return self._new(ledger, seen.config, self._why(seen), seen.memo, *bill)

    def _in_design(self, ledger: Ledger) -> bool:
        if self.initial_design == "fixed":
            return len(ledger.trials) < self.initial_trials
        return ledger.spent + ledger.reserved < CHEAP_SHARE * ledger.budget.total

    def _design(self, ledger: Ledger, table: Table, rng: np.random.Generator) -> Decision:
        why: dict[str, str | float] = {"phase": DESIGN}
        costs = self._costs(ledger, table)
        if self.initial_design == "fixed" or costs.model is None:
            config = fresh_config(ledger)
            if config is None:
                return Finish("every config of the space was tried")
            return self._new(ledger, config, why, ledger.memo)
        pool, rows = self._pool(ledger, table, np.empty((0, ledger.space.dims)), rng, _CHEAP_CANDIDATES)
        log_cost = costs.predict(pool)[0]
        trials = table.stacked(range(len(table.trials)))
        at = cheap_and_far(table.encoding.features(pool), table.encoding.features(trials), log_cost)
        config = self._config(table, pool, rows, at)
        why["predicted_cost"] = costs.rate * float(np.exp(log_cost[at]))
        return self._new(ledger, config, why, {**ledger.memo, **costs.memo}, *costs.bill(pool, at))

    def look(self, ledger: Ledger, rng: np.random.Generator) -> Look | None:
        """What the model makes of all candidates, for reports and experiments; None before there is a result."""
        table = ledger.view(Outcomes(DESIGN))
        numbers, losses = results(ledger)
        if not numbers or (table.rows is not None and not table.unused.any()):
            return None
        encoding = table.encoding
        costs = self._costs(ledger, table)
        scale = scaling(losses[:, None], np.ones((losses.size, 1), dtype=bool), self.log_losses)
        y = scale.apply(losses)
        seen = table.stacked(numbers)
        gp, fit_memo = posterior(kernel_for(encoding), encoding.features(seen), y, ledger.memo)
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
        if not fits.all():
            pool, rows = pool.take(fits), rows[fits] if table.rows is not None else rows
        found = self._search(surface, pool, alpha, lambda p: can_be_paid(p) & ~table.is_tried(p), table.rows is None)
        config = self._config(table, found.points, rows, found.index)
        return Look(found, config, rows, costs, float(scale.scale), alpha, {**fit_memo, **costs.memo})

    def _search(
        self, surface: Surface, pool: Points, alpha: float, allowed: Callable[[Points], Flags], refine: bool
    ) -> Found:
        if self.acquisition == "cei":
            return find_cei(surface, pool, self.slack, allowed=allowed, refine=refine)
        return find_ei_alpha(surface, pool, alpha, allowed=allowed, refine=refine)

    def _costs(self, ledger: Ledger, table: Table) -> TrialCosts:
        return TrialCosts(ledger, table, self.cost_model, self.cost_features, self.transferred)

    def _config(self, table: Table, points: Points, rows: NDArray[np.intp], at: int) -> Config:
        return table.rows[rows[at]] if table.rows is not None else table.encoding.config(points, at)

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
            rate = ledger.step_price() if epochs else ledger.budget.per_second(ledger.workers)
            spent = sum(float(f.steps) if epochs else f.seconds for f in table.facts if f.design)
            return cooling_exponent(ledger.budget.total, rate * spent, ledger.spent)
        return {"ei": 0.0, "eipu": 1.0, "ei_alpha": float(self.cost_exponent), "cei": 0.0}[self.acquisition]

    def _why(self, seen: Look) -> dict[str, str | float | bool]:
        at, log_ei, log_cost = seen.found.index, seen.found.log_ei, seen.found.log_cost
        why: dict[str, str | float | bool] = {
            "phase": self.acquisition,
            "ei": seen.loss_unit * float(np.exp(log_ei[at])),
            "ei_max": seen.loss_unit * float(np.exp(log_ei.max())),
        }
        if seen.found.threshold is not None:
            why["threshold"] = seen.loss_unit * float(np.exp(seen.found.threshold))
        else:
            why["cost_exponent"] = seen.alpha
        if seen.costs.model is None:
            return why
        front = pareto_front(log_ei, log_cost)
        by_cost = front[np.argsort(log_cost[front], kind="stable")]
        why["predicted_cost"] = seen.costs.rate * float(np.exp(log_cost[at]))
        why["front_size"] = int(front.size)
        why["front_position"] = int(np.flatnonzero(by_cost == at)[0]) + 1 if at in front else 0
        if np.isfinite(log_ei[at]):
            implied = implied_alpha(log_ei, log_cost, at)
            why["implied_alpha"], why["alpha_misses_by"] = float(implied.alpha), float(implied.gap)
        return why

    def _new(
        self,
        ledger: Ledger,
        config: Config,
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
