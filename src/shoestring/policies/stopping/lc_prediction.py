"""LC prediction: give a run up when its extrapolated curve is unlikely to end better than the best run.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of
Learning Curves", IJCAI 2015 (no arXiv version known to us); a baseline of BO-BOS. The forecasts are in
`models.stopping.forecasts`, the search is that of `gp_ucb`.

    paper   here         meaning                                                                    unit
    m       max_steps    a full training                                                            steps
    delta   threshold    a run is given up when Pr(y_m > y*) is below it                            probability
    p       every        steps between two forecasts                                                steps
    y*      incumbent    best loss of all other runs                                                loss
    —       n0           steps of a run before the first forecast                                   steps
    —       forecast     "families": eleven parametric curves by Markov chain; "process": the       —
                         decaying exponentials of `curve_paths`, a hundred times cheaper

The surrogate is told the forecast of a run that was given up, not what it had reached. `why`: prob_better, forecast (in the unit
of the values) and its deviation, incumbent; the order that opens the next run tells the same of the run just given up.

Departs from the paper: configs are chosen by GP-UCB instead of three other optimisers. Losses become errors as `error_range`
says; when the incumbent has left that range, no run is stopped.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.deciding.comparison import compare
from shoestring.core.deciding.decision import Why
from shoestring.core.deciding.prediction import BelievedCurve
from shoestring.core.deciding.reproducible import reaches
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Trial
from shoestring.core.space.parameters import Scalar
from shoestring.core.values.checks import require_between, require_one_of, require_whole
from shoestring.models.stopping.forecasts import FinalForecast, forecast_by_families, forecast_by_process
from shoestring.policies.stopping.active_runs import (
    WITH_GAPS,
    ActiveRun,
    GiveUp,
    GoOn,
    RunsUnderWay,
    curve_of,
    find_incumbent,
)
from shoestring.policies.stopping.error_range import RANGE_LEFT, pick_range, require_range
from shoestring.policies.stopping.ucb_policy import UcbPolicy, normal_end


@dataclass(frozen=True, slots=True, kw_only=True)
class LCPrediction(UcbPolicy):
    name: ClassVar[str] = "lc_prediction"
    n0: int = 8
    every: int = 2
    threshold: float = 0.05
    forecast: Literal["families", "process"] = "families"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_whole(self, "n0", 1, "a forecast needs a beginning", "Try 8.")
        require_whole(self, "every", 1, "a run can be judged after each step at most", "Try 2.")
        require_between(self, "threshold", 0.0, 1.0, "it is a probability", "Try 0.05.")
        require_one_of(self, "forecast", ("families", "process"))
        require_range(self, self.low, self.high)

    def first_goal(self, ledger: Ledger) -> int:
        return min(self.n0, ledger.max_steps)

    def judge(self, ledger: Ledger, run: ActiveRun, runs: RunsUnderWay) -> GoOn | GiveUp:
        trial = ledger.trials[run.trial]
        since = trial.steps - self.n0
        if since < 0 or since % self.every:  # the wall came between two forecasts
            rest = -since if since < 0 else self.every - since % self.every
            return GoOn(trial.steps + rest, {"phase": "between forecasts"})
        next_check = trial.steps + self.every
        losses = curve_of(trial)
        if not losses:
            return GoOn(next_check, WITH_GAPS)
        bounds = pick_range(ledger, self.low, self.high, runs.error_range)
        best, sign = find_incumbent(ledger, run.trial), ledger.books.sign
        why: dict[str, Scalar] = {"phase": "judged", "incumbent": sign * best}
        if bounds.is_left_by(best):
            return GoOn(next_check, {**why, "reason": RANGE_LEFT})
        errors = np.clip((np.array(losses) - bounds.low) / bounds.width, 0.0, 1.0)
        found = self._forecast(ledger, run, errors, (best - bounds.low) / bounds.width)
        predicted = bounds.low + bounds.width * found.mean_error
        why |= {
            "prob_better": found.prob_better,
            "forecast": sign * predicted,
            "forecast_std": bounds.width * found.std_error,
        }
        if not reaches(found.prob_better, self.threshold):
            return GiveUp(why, predicted)
        name, least = "probability of ending better than the best run", "the least that is trained on"
        return GoOn(next_check, {**compare(name, "highest", 2, found.prob_better, least, self.threshold), **why})

    def foresee(self, ledger: Ledger, trial: Trial, judged: Why) -> list[BelievedCurve]:
        """The end of the run: nothing else is forecast."""
        if "forecast" not in judged:
            return []
        sign = ledger.opened.sign
        quantile = normal_end(sign * float(str(judged["forecast"])), float(str(judged["forecast_std"])))
        return [BelievedCurve.of(trial.number, trial.config, [ledger.max_steps], quantile, sign)]

    def _forecast(self, ledger: Ledger, run: ActiveRun, errors: np.ndarray, best_error: float) -> FinalForecast:
        if self.forecast == "process":
            return forecast_by_process(errors, ledger.max_steps, best_error)
        rng = ledger.rng("forecast", run.trial, errors.size)
        return forecast_by_families(errors, ledger.max_steps, best_error, rng)
