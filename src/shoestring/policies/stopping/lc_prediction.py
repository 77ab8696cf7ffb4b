"""LC prediction: stop a trial when its extrapolated curve is unlikely to end better than the best trial.

Domhan, Springenberg and Hutter, "Speeding Up Automatic Hyperparameter Optimization of Deep Neural Networks by Extrapolation of
Learning Curves", IJCAI 2015 (no arXiv version known to us); a baseline of BO-BOS. The forecasts are in
`models.stopping.forecasts`, the search is that of `gp_ucb`.

    paper   here         meaning                                                                    unit
    m       max_steps    a full training                                                            steps
    delta   threshold    a trial is stopped when Pr(y_m > y*) is below it                           probability
    p       every        steps between two forecasts                                                steps
    y*      incumbent    best loss of all other trials                                              loss
    -       n0           steps of a trial before the first forecast                                 steps
    -       forecast     "families": eleven parametric curves by Markov chain; "process": the       -
                         decaying exponentials of `curve_paths`, a hundred times cheaper

For a stopped trial the surrogate uses the forecast, not the loss that was reached. `why` holds prob_better, the forecast (in the
unit of the values), its deviation and the incumbent. The order that starts the next trial holds the same numbers for the trial
that was just stopped.

Differences from the paper: configurations are chosen by GP-UCB instead of three other optimisers. Losses are converted to errors
as in `error_range`. No trial is stopped while the incumbent is below that range.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.space.parameters import Scalar
from shoestring.models.loss_scaling import normal_quantile
from shoestring.models.stopping.forecasts import FinalForecast, forecast_by_families, forecast_by_process
from shoestring.policies.stopping.active_trials import (
    INCOMPLETE_CURVE,
    ActiveTrial,
    ActiveTrials,
    ContinueTrial,
    StopTrial,
    curve_of,
    find_incumbent,
)
from shoestring.policies.stopping.error_range import BELOW_RANGE, is_below_range, pick_range, require_range
from shoestring.policies.stopping.ucb_policy import UcbPolicy, label_stopping_check
from shoestring.policy import (
    CurvePrediction,
    Labels,
    Ledger,
    Trial,
    Why,
    compare,
    reaches,
    require_between,
    require_one_of,
    require_whole,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LCPrediction(UcbPolicy):
    name: ClassVar[str] = "lc_prediction"
    why_labels: ClassVar[Labels] = label_stopping_check(
        {
            "forecast": "value forecast for the end of the trial (value)",
            "forecast_std": "standard deviation of the forecast (value)",
            "prob_better": "probability of ending better than the best other trial",
            "reason": "reason",
        }
    )
    n0: int = 8
    every: int = 2
    threshold: float = 0.05
    forecast: Literal["families", "process"] = "families"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        UcbPolicy.__post_init__(self)
        require_whole(self, "n0", 1, "a forecast needs a beginning", "Try 8.")
        require_whole(self, "every", 1, "a forecast can follow each step at most", "Try 2.")
        require_between(self, "threshold", 0.0, 1.0, "it is a probability", "Try 0.05.")
        require_one_of(self, "forecast", ("families", "process"))
        require_range(self, self.low, self.high)

    def first_goal(self, ledger: Ledger) -> int:
        return min(self.n0, ledger.max_steps)

    def continue_or_stop(self, ledger: Ledger, checked: ActiveTrial, active: ActiveTrials) -> ContinueTrial | StopTrial:
        trial = ledger.trials[checked.number]
        since = trial.steps - self.n0
        if since < 0 or since % self.every:  # the budget ended between two forecasts
            rest = -since if since < 0 else self.every - since % self.every
            return ContinueTrial(trial.steps + rest, {"phase": "between forecasts"})
        next_check = trial.steps + self.every
        losses = curve_of(trial)
        if not losses:
            return ContinueTrial(next_check, INCOMPLETE_CURVE)
        bounds = pick_range(ledger, self.low, self.high, active.error_range)
        best, sign = find_incumbent(ledger, trial.number), ledger.state.sign
        why: dict[str, Scalar] = {"phase": "stopping check", "incumbent": sign * best}
        if is_below_range(best, bounds):
            return ContinueTrial(next_check, {**why, "reason": BELOW_RANGE})
        errors = np.clip((np.array(losses) - bounds.low) / bounds.width, 0.0, 1.0)
        found = self._forecast(ledger, trial, errors, (best - bounds.low) / bounds.width)
        predicted = bounds.low + bounds.width * found.mean_error
        why |= {
            "prob_better": found.prob_better,
            "forecast": sign * predicted,
            "forecast_std": bounds.width * found.std_error,
        }
        if not reaches(found.prob_better, self.threshold):
            return StopTrial(why, predicted)
        name, least = "probability of ending better than the best trial", "the threshold for continuing"
        return ContinueTrial(
            next_check, {**compare(name, "highest", 2, found.prob_better, least, self.threshold), **why}
        )

    def forecast_trial(self, ledger: Ledger, trial: Trial, check: Why) -> list[CurvePrediction]:
        """Return the forecast of the end of the trial; there are none for other steps."""
        if "forecast" not in check:
            return []
        sign = ledger.definition.sign
        mean, std = (float(str(check[name])) for name in ("forecast", "forecast_std"))
        quantile = normal_quantile(np.array([sign * mean]), np.array([std]))
        return [CurvePrediction.of(trial.number, trial.config, [ledger.max_steps], quantile, sign)]

    def _forecast(self, ledger: Ledger, trial: Trial, errors: np.ndarray, best_error: float) -> FinalForecast:
        if self.forecast == "process":
            return forecast_by_process(errors, ledger.max_steps, best_error)
        rng = ledger.rng("forecast", trial.number, errors.size)
        return forecast_by_families(errors, ledger.max_steps, best_error, rng)
