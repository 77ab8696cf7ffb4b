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
    alpha/mu_c  rule                how improvement and cost are weighed: "log_ratio" or, as printed, "softplus"  —
    —           floor               what of a prefix must reach the noise variance + 1e-3: "variance" or "std"    —
    sy^2        noise_variance      of a standardised score                                            —
    m0, g0      midpoint, growth    of the logistic; fitted, see `why`                                 —
    —           initial_trials      configs trained in full before any model is asked                  trials

`why` of a chosen run: predicted_score and std (at its length), ei, predicted_cost, midpoint, growth, added (prefixes in the
model), points (rows in all), log_condition, leader (the run that would be recommended). The paper's baselines are settings:

    bo          lengths="full", augmentation="none", score="last_mean"     EI on the mean of the last values, no cost
    bo_l        lengths="full", augmentation="none"                        EI on compressed curves, no cost
    cm_tf_bo    augmentation="none"                                        config and length, one point per run

The default is a mixture that neither source used: the paper's sum of weighted rewards with the log ratio of the authors'
programs. Each source's own form is a setting, too:

    as printed  rule="softplus"                                            buys the shortest runs whatever they promise
    programs    score="tail_mean", min_steps=0.4 Tmax, max_points=10, max_log_condition=15, floor="std"

One option is ours: `continue_runs` lets runs go on that have stopped (`search`); the paper always begins a new one.

Departs from the paper:
- What the recommended run (largest posterior mean at full length) still lacks of a full training is kept back: it goes on
  where it stands, before an order that would eat into that. The paper trains it again from the start, beyond its budget.
- A config is trained in one trial; the search looks at configs not tried yet. When there are none left, unfinished runs go on,
  the most promising first.
- Fits are due every `refit_every` runs, 3 d unless given, and once after the initial design.
- In time and money the initial design ends with a third of the budget, once two runs are through.
- Prefixes cost what their steps really took. The paper asks the regression, and the authors' programs multiply by t~, which is
  zero at Tmin.
- Options of a choice are corners of a simplex, at distance 1.
- Of more than 500 points, parameters are fitted to runs spread over the study; of all runs together no more than 1000
  prefixes are added; the place of the largest mean is among those that the search begins from.
- Several workers: a run under way counts as if it had come out as predicted.
- A run that the wall cut short is finished first when there is money again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import numpy as np

from shoestring.core.deciding.decision import Decision, Memo, Train
from shoestring.core.deciding.memo import Refits, pick
from shoestring.core.deciding.policy import (
    ALL_TRIED,
    fresh_config,
    is_in_design,
    nothing_to_buy,
    train_further,
    train_new,
)
from shoestring.core.deciding.reproducible import reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.values.checks import require_between, require_one_of, require_whole
from shoestring.errors import PolicyError
from shoestring.models.boil.augmentation import Floor, tell_log_condition
from shoestring.models.boil.choice import Rule
from shoestring.models.boil.process import RunLengths, TimeKernel
from shoestring.policies.boil.next_run import NextRun, RunSearch
from shoestring.policies.boil.prefixes import AugmentationWay, PrefixRule
from shoestring.policies.boil.score_model import CARRIED, BeliefRecipe, Score, ScoreBelief, believe
from shoestring.policies.config_table import ConfigsView, ConfigTable

_SHORTEST = 5  # a run is at least a full training divided by this: 30 of 150 epochs in the paper


@dataclass(frozen=True, slots=True, kw_only=True)
class BOIL:
    name: ClassVar[str] = "boil"
    score: Score = "compressed"
    augmentation: AugmentationWay = "selected"
    lengths: Literal["chosen", "full"] = "chosen"
    min_steps: int | None = None
    initial_trials: int = 3
    last_steps: int = 10
    max_points: int = 15
    max_log_condition: float = 20.0
    rule: Rule = "log_ratio"
    floor: Floor = "variance"
    noise_variance: float = 5e-4
    learn_noise: bool = False
    time_kernel: TimeKernel = "se"
    continue_runs: bool = False
    worst_value: float | None = None
    refit_every: int | None = None
    candidates: int = 2000

    def __post_init__(self) -> None:
        require_one_of(self, "score", get_args(Score))
        require_one_of(self, "augmentation", get_args(AugmentationWay))
        require_one_of(self, "lengths", ("chosen", "full"))
        require_one_of(self, "rule", get_args(Rule))
        require_one_of(self, "floor", get_args(Floor))
        require_one_of(self, "time_kernel", get_args(TimeKernel))
        require_one_of(self, "learn_noise", (True, False))
        require_one_of(self, "continue_runs", (True, False))
        require_whole(
            self, "min_steps", 1, "a run has a step", "Leave it out for a fifth of a full training.", optional=True
        )
        require_whole(
            self, "refit_every", 1, "a fit can follow each run at most", "Leave it out for 3 d.", optional=True
        )
        require_whole(self, "initial_trials", 1, "a model needs at least one run", "Try 3.")
        require_whole(self, "last_steps", 1, "it is a number of values to average", "Try 10.")
        require_whole(self, "max_points", 0, "it is a number of points", "Try 15.")
        require_whole(self, "candidates", 1, "there must be something to choose from", "Try 2000.")
        require_between(self, "max_log_condition", 0.0, math.inf, "a condition number is at least 1", "Try 20.")
        require_between(self, "noise_variance", 1e-12, 1.0, "scores have variance 1 and some noise", "Try 0.0005.")
        require_between(
            self, "worst_value", -math.inf, math.inf, "rewards count from there", "Leave it out.", optional=True
        )
        if self.lengths == "full" and self.augmentation != "none":
            raise PolicyError(
                f"BOIL(lengths='full', augmentation={self.augmentation!r}) cannot learn from shorter prefixes: with one "
                "length there is no time to model. Set augmentation='none'."
            )

    # deciding --------------------------------------------------------------------------------------------------------

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        memo, full = pick(ledger.memo, CARRIED), ledger.max_steps
        if ledger.queue:
            return train_new(ledger, ledger.queue[0], full, why={"phase": "queued"}, memo=_aim(memo, full))
        if (cut := _find_cut_short(ledger)) is not None:
            trial, goal = cut
            return train_further(trial, goal, why={"phase": "cut short", "at": trial.steps}, memo=_aim(memo, goal))
        table = ledger.view(ConfigsView())
        in_design = is_in_design(ledger, self.initial_trials)
        belief = None if in_design else believe(self.recipe(ledger), ledger, table, rng)
        if belief is not None:
            return self._buy_by_belief(ledger, table, belief, rng)
        config = fresh_config(ledger)
        if config is None:
            return nothing_to_buy(ledger, ALL_TRIED)
        return train_new(ledger, config, full, why={"phase": "initial design"}, memo=_aim(memo, full))

    def recipe(self, ledger: Ledger) -> BeliefRecipe:
        """The settings as they apply to this study."""
        shortest = math.ceil(ledger.max_steps / _SHORTEST) if self.min_steps is None else self.min_steps
        shortest = ledger.max_steps if self.lengths == "full" else min(shortest, ledger.max_steps)
        return BeliefRecipe(
            lengths=RunLengths(shortest, ledger.max_steps),
            score=self.score,
            last_steps=self.last_steps,
            prefix_rule=PrefixRule(
                way=self.augmentation,
                max_points=self.max_points,
                max_log_condition=self.max_log_condition,
                floor=self.floor,
            ),
            noise_variance=self.noise_variance,
            learn_noise=self.learn_noise,
            time_kernel=self.time_kernel,
            refits=Refits(every=self.refit_every or 3 * max(1, ledger.space.dims)),
            worst_reward=None if self.worst_value is None else -ledger.books.sign * self.worst_value,
        )

    def _buy_by_belief(
        self, ledger: Ledger, table: ConfigTable, belief: ScoreBelief, rng: np.random.Generator
    ) -> Decision:
        search = RunSearch(ledger, table, self.recipe(ledger).lengths, belief, rng, self.candidates, self.rule)
        found = search.best(may_continue=self.continue_runs)
        if found is None:
            going = [place for place in _good_runs(belief) if not ledger.trials[belief.runs[place].trial].is_stuck]
            return _finish(ledger, belief, going) if going else nothing_to_buy(ledger, ALL_TRIED)
        good = _good_runs(belief)
        recommended = ledger.trials[belief.leader(good)] if good else None
        if recommended is not None and not recommended.is_stuck:
            lacking = ledger.step_price(recommended.number) * (recommended.limit - recommended.held)
            affordable_later = reaches(ledger.left, lacking + found.cost, spread=lacking + found.cost)
            if lacking <= ledger.left and not affordable_later:  # affordable now, and no longer after what was found
                return _finish(ledger, belief, good)
        return _begin_or_continue(ledger, found, belief)


# the runs that a belief points to ------------------------------------------------------------------------------------


def _good_runs(belief: ScoreBelief) -> list[int]:
    """Places of the runs that neither diverged nor failed."""
    return [place for place, run in enumerate(belief.runs) if not run.is_bad]


def _find_cut_short(ledger: Ledger) -> tuple[Trial, int] | None:
    """A run that did not come as far as this policy wanted it, and how far that is."""
    goals = {
        order.trial: order.memo["goal"] for order in ledger.orders[ledger.books.memo_from :] if "goal" in order.memo
    }
    for number, goal in goals.items():
        trial = ledger.trials[number]
        until = min(int(goal[0]), trial.limit)
        if trial.can_go_on and trial.steps < until:
            return trial, until
    return None


# orders --------------------------------------------------------------------------------------------------------------


def _finish(ledger: Ledger, belief: ScoreBelief, among: Sequence[int]) -> Train:
    """The run, of these places, that promises most at full length is trained to its end."""
    trial = ledger.trials[belief.leader(among)]
    why = {**_describe(belief), **belief.say_leader(among), "phase": "recommended", "at": trial.steps}
    return train_further(trial, trial.limit, why=why, memo=_aim(belief.memo, trial.limit))


def _begin_or_continue(ledger: Ledger, found: NextRun, belief: ScoreBelief) -> Train:
    why = {
        **_describe(belief),
        **found.compared,
        "phase": "chosen",
        "predicted_score": found.promise.score,
        "std": found.promise.std,
        "ei": math.exp(found.promise.log_ei),
        "predicted_cost": found.cost,
    }
    memo = _aim(belief.memo, found.until)
    if found.trial is None:
        order = train_new(ledger, found.config, found.until, why=why, memo=memo)
    else:
        why |= {"phase": "continued", "at": found.trial.steps}
        order = train_further(found.trial, found.until, why=why, memo=memo)
    # The core prices epochs exactly; and where the plane of costs has dipped below zero, its own guess is better.
    is_worth_telling = ledger.budget.unit != "epochs" and found.cost > 0.0
    return replace(order, expected_cost=found.cost) if is_worth_telling else order


def _aim(memo: Memo, goal: int) -> Memo:
    """The memo of an order up to `goal`: by it a run that the wall cuts short will be known."""
    return {**memo, "goal": [float(goal)]}


def _describe(belief: ScoreBelief) -> dict[str, str | float | bool]:
    return {
        "leader": belief.leader(_good_runs(belief) or range(len(belief.runs))),
        "midpoint": belief.parameters.midpoint,
        "growth": belief.parameters.growth,
        "added": belief.added,
        "points": len(belief.gp.x),
        "log_condition": tell_log_condition(belief.gp),
    }
