"""BOIL: choose a config and how long to train it, by what its whole learning curve promises for the money.

Nguyen, Schulze, Osborne, "Bayesian Optimization for Iterative Learning", NeurIPS 2020, arXiv:1909.09593v5, algorithm 1. A
curve becomes one score through a logistic weight that is learned (`models.boil.compression`); scores and lengths are modelled by
one process (`models.boil.process`), which also sees those prefixes of a curve that it is least sure of
(`models.boil.augmentation`); the next run maximises log EI - log cost (`models.boil.choice`).

    paper       here                meaning                                                            unit
    Tmin        min_steps           shortest run; none: a fifth of a full training                     steps
    Tmax        max_steps           a full training                                                    steps
    M           max_points          prefixes added for a run of full length, fewer for shorter ones    points
    delta       max_log_condition   ln cond of the covariance beyond which nothing is added            nats
    sy^2        noise_variance      of a standardised score                                            —
    m0, g0      midpoint, growth    of the logistic; fitted, see `why`                                 —
    —           initial_trials      configs trained in full before any model is asked                  trials

`why` of a chosen run: score and std (predicted at its length), ei, predicted_cost, midpoint, growth, added (prefixes in the
model), points (rows in all), log_condition, leader (the run that would be recommended). The paper's baselines are settings:

    bo          lengths="full", augmentation="none", score="last_mean"     EI on the mean of the last values, no cost
    bo_l        lengths="full", augmentation="none"                        EI on compressed curves, no cost
    cm_tf_bo    augmentation="none"                                        config and length, one point a run

One option is ours: `continue_runs` lets runs go on that have stopped (`boil_search`); the paper always begins a new one.

Departs from the paper:
- What the recommended run (largest posterior mean at full length) still lacks of a full training is kept back: it goes on
  where it stands, before an order that would eat into that. The paper trains it again from the start, beyond its budget.
- A config is trained in one trial; the search looks at configs not tried yet. When there are none left, unfinished runs go on,
  the most promising first.
- Fits are due every `refit_every` runs, 3 d unless given, and once after the initial design.
- Prefixes cost what their steps really took. Options of a choice are corners of a simplex, at distance 1.
- Several workers: a run under way counts as if it had come out as predicted.
- A run that the wall cut short is finished first when there is money again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from shoestring.core.books import Trial
from shoestring.core.decision import Decision, Memo, Train, Why
from shoestring.core.ledger import Ledger
from shoestring.core.policy import fresh_config
from shoestring.core.settings import require_between, require_one_of, require_whole
from shoestring.core.space import Config
from shoestring.errors import PolicyError
from shoestring.models.boil.augmentation import log_condition
from shoestring.models.boil.choice import unit_time
from shoestring.models.boil.process import TimeKernel
from shoestring.models.gp.posterior import GP
from shoestring.policies.boil.belief import Augmented, Belief, Recipe, Score, believe, kept
from shoestring.policies.boil.runs import inputs
from shoestring.policies.boil.search import Search
from shoestring.policies.outcomes import Outcomes, Table
from shoestring.policies.stopping.runs import end

DESIGN = "initial design"
_SHORTEST = 5  # a run is no shorter than this fraction of a full training, as 30 of the paper's 150 epochs


@dataclass(frozen=True, slots=True, kw_only=True)
class BOIL:
    name: ClassVar[str] = "boil"
    score: Score = "compressed"
    augmentation: Augmented = "selected"
    lengths: Literal["chosen", "full"] = "chosen"
    min_steps: int | None = None
    initial_trials: int = 3
    last_steps: int = 10
    max_points: int = 15
    max_log_condition: float = 20.0
    noise_variance: float = 5e-4
    learn_noise: bool = False
    time_kernel: TimeKernel = "se"
    continue_runs: bool = False
    worst_value: float | None = None
    refit_every: int | None = None
    candidates: int = 2000

    def __post_init__(self) -> None:
        require_one_of(self, "score", get_args(Score))
        require_one_of(self, "augmentation", get_args(Augmented))
        require_one_of(self, "lengths", ("chosen", "full"))
        require_one_of(self, "time_kernel", get_args(TimeKernel))
        require_whole(self, "initial_trials", 1, "a model needs at least one run", "Try 3.")
        require_whole(self, "last_steps", 1, "it is a number of values to average", "Try 10.")
        require_whole(self, "max_points", 0, "it is a number of points", "Try 15.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        if self.min_steps is not None:
            require_whole(self, "min_steps", 1, "a run has a step", "Leave it out for a fifth of a full training.")
        if self.refit_every is not None:
            require_whole(self, "refit_every", 1, "a fit can follow each run at most", "Leave it out for 3 d.")
        require_between(self, "max_log_condition", 0.0, math.inf, "a condition number is at least 1", "Try 20.")
        require_between(self, "noise_variance", 1e-12, 1.0, "scores have variance 1 and some noise", "Try 0.0005.")
        for switch in ("learn_noise", "continue_runs"):
            if not isinstance(getattr(self, switch), bool):
                raise PolicyError(
                    f"BOIL({switch}={getattr(self, switch)!r}) must be true or false: it is a switch. Try false."
                )
        if self.worst_value is not None:
            require_between(self, "worst_value", -math.inf, math.inf, "rewards count from there", "Or leave it out.")
        if self.lengths == "full" and self.augmentation != "none":
            raise PolicyError(
                f"BOIL(lengths='full', augmentation={self.augmentation!r}) cannot learn from shorter prefixes: with one "
                "length there is no time to model. Set augmentation='none'."
            )

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        memo = kept(ledger.memo)
        if ledger.queue:
            return _new(ledger, ledger.queue[0], ledger.max_steps, {"phase": "queued"}, memo)
        if (cut := _cut_short(ledger)) is not None:
            trial, goal = cut
            return _more(trial, goal, {"phase": "cut short", "at": trial.steps}, memo)
        table = ledger.view(Outcomes(DESIGN))
        in_design = len(ledger.trials) < self.initial_trials
        belief = None if in_design else believe(self.recipe(ledger), ledger, table, rng)
        if belief is None:
            config = fresh_config(ledger)
            if config is None:
                return end(ledger)
            return _new(ledger, config, ledger.max_steps, {"phase": DESIGN}, memo)
        return self._next(ledger, table, belief, rng)

    def recipe(self, ledger: Ledger) -> Recipe:
        """The settings as they apply to this study."""
        shortest = math.ceil(ledger.max_steps / _SHORTEST) if self.min_steps is None else self.min_steps
        return Recipe(
            score=self.score,
            last_steps=self.last_steps,
            augmentation=self.augmentation,
            max_points=self.max_points,
            max_log_condition=self.max_log_condition,
            noise_variance=self.noise_variance,
            learn_noise=self.learn_noise,
            time_kernel=self.time_kernel,
            refit_every=self.refit_every or 3 * max(1, ledger.space.dims),
            worst_reward=None if self.worst_value is None else -ledger.books.sign * self.worst_value,
            min_steps=ledger.max_steps if self.lengths == "full" else min(shortest, ledger.max_steps),
            max_steps=ledger.max_steps,
        )

    def _next(self, ledger: Ledger, table: Table, belief: Belief, rng: np.random.Generator) -> Decision:
        gp = self._with_open_orders(ledger, table, belief)
        why = _about(belief)
        search = Search(ledger, table, self.recipe(ledger), belief, gp, rng, self.candidates)
        found = search.best(continues=self.continue_runs)
        promising = self._recommended(ledger, belief, unfinished_only=found is None)
        price = 0.0 if promising is None else ledger.step_price(promising.number) * (promising.limit - promising.held)
        is_due = found is None or (price <= ledger.left < price + found.cost)
        if promising is not None and is_due:
            why |= {"phase": "recommended", "at": promising.steps}
            return _more(promising, promising.limit, why, belief.memo)
        if found is None:
            return end(ledger)
        choice = found.choice
        why |= {
            "phase": "chosen",
            "score": choice.mean,
            "std": choice.std,
            "ei": math.exp(choice.log_ei),
            "predicted_cost": found.cost,
        }
        if found.trial is not None:
            why |= {"phase": "continued", "at": found.trial.steps}
            order = _more(found.trial, choice.steps, why, belief.memo)
        else:
            order = _new(ledger, found.config, choice.steps, why, belief.memo)
        # Epochs are known without a model; and a plane may well dip below zero.
        return (
            order if ledger.budget.unit == "epochs" or found.cost <= 0.0 else replace(order, expected_cost=found.cost)
        )

    def _with_open_orders(self, ledger: Ledger, table: Table, belief: Belief) -> GP:
        shortest = self.recipe(ledger).min_steps
        orders = [opened.order for opened in ledger.open_orders.values()]
        x = [inputs(table.encoding, table.trials[order.trial])[0] for order in orders]
        times = [unit_time(max(shortest, order.until), shortest, ledger.max_steps) for order in orders]
        return belief.pretending(np.array(x), times)

    def _recommended(self, ledger: Ledger, belief: Belief, *, unfinished_only: bool) -> Trial | None:
        """The run that promises most at full length; None if it has been trained in full, or there is none."""
        runs = [
            i
            for i, run in enumerate(belief.runs)
            if not run.is_bad and not (unfinished_only and ledger.trials[run.trial].is_stuck)
        ]
        if not runs:
            return None
        trial = ledger.trials[belief.leader(runs)]
        return None if trial.is_stuck else trial


def _about(belief: Belief) -> dict[str, str | float | bool]:
    return {
        "leader": belief.leader([i for i, run in enumerate(belief.runs) if not run.is_bad] or range(len(belief.runs))),
        "midpoint": belief.parameters.midpoint,
        "growth": belief.parameters.growth,
        "added": belief.added,
        "points": len(belief.gp.x),
        "log_condition": log_condition(belief.gp, belief.gp.x[:0]),
    }


def _cut_short(ledger: Ledger) -> tuple[Trial, int] | None:
    """A run that did not come as far as this policy wanted it, and how far that is."""
    goals = {
        order.trial: order.memo["goal"] for order in ledger.orders[ledger.books.memo_from :] if "goal" in order.memo
    }
    for number, goal in goals.items():
        trial = ledger.trials[number]
        until = min(int(goal[0]), trial.limit)
        if trial.open_order is None and not trial.is_stuck and trial.steps < until:
            return trial, until
    return None


def _new(ledger: Ledger, config: Config, until: int, why: Why, memo: Memo) -> Train:
    memo = {**memo, "goal": [float(until)]}
    return Train(trial=len(ledger.trials), config=dict(config), until=until, why=why, memo=memo)


def _more(trial: Trial, until: int, why: Why, memo: Memo) -> Train:
    memo = {**memo, "goal": [float(until)]}
    return Train(trial=trial.number, config=trial.config, until=until, why=why, memo=memo)
