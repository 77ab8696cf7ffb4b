"""Freeze-thaw Bayesian optimisation: train the trial whose next loss has the most information about which one ends lowest.

Swersky, Snoek, Adams, "Freeze-Thaw Bayesian Optimization", arXiv:1406.3896, section 4. Like BHPT it pauses and resumes
trials, and it uses the same posterior, but it does not know the budget.

    paper    here       meaning                                                                        unit
    B_old    old        started trials in the shortlist ("basket"), by expected improvement at the end -
    B_new    new        new trials in the shortlist                                                    -
    n_fant   fantasies  simulated next losses of a trial                                               -
    P_min    -          probability of each trial in the shortlist to end lowest                       -

Differences from the paper: new trials come from a fixed set of arms. P_min covers only the shortlist and is estimated by counting
draws (`models.gp.information_gain`). A fantasy is one step long. With several parameter samples the gains are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior
from shoestring.models.gp.acquisition import log_expected_improvement
from shoestring.models.gp.information_gain import information_gain
from shoestring.policies.freeze_thaw.arm_table import ARM_LABELS, ArmLimits
from shoestring.policies.freeze_thaw.curve_policy import CurveForecast, CurvePolicy, ParametersSetting
from shoestring.policy import LOG_SPREAD, Labels, Why, compare_scores, find_best, require_whole, sort_best_first


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeThawBO(CurvePolicy):
    name: ClassVar[str] = "freeze_thaw_bo"
    why_labels: ClassVar[Labels] = {
        **ARM_LABELS,
        "asymptote": "value that the trial converges to (value)",
        "information": "information about which trial is best (nats)",
        "new": "whether the order starts a trial",
    }
    parameters: ParametersSetting = "most_probable"
    old: int = 10
    new: int = 3
    fantasies: int = 5

    def __post_init__(self) -> None:
        CurvePolicy.__post_init__(self)
        require_whole(self, "old", 1, "a started trial must be able to continue", "Try 10.")
        require_whole(self, "new", 1, "otherwise no trial is ever started", "Try 3.")
        require_whole(self, "fantasies", 1, "a gain is an expectation over simulated losses", "Try 5.")

    def choose_arm(self, forecast: CurveForecast, limits: ArmLimits, rng: np.random.Generator) -> tuple[int, Why]:
        arms, posteriors = forecast.arms, forecast.posteriors
        shortlist = self._make_shortlist(posteriors, np.flatnonzero(limits.room), arms.trained)
        step = arms.trained[shortlist]  # index of the next loss
        _, variance = forecast.predict()
        each = [
            self._gain(b, shortlist, step, v[shortlist, step], rng) for b, v in zip(posteriors, variance, strict=True)
        ]
        gains = np.mean(each, axis=0)
        chosen = find_best(gains, "highest")
        arm = int(shortlist[chosen])
        name = "information about which trial ends best (nats)"
        return arm, {
            **compare_scores(name, "highest", gains, chosen, lambda i: arms.identify(int(shortlist[i]))),
            "information": float(gains[chosen]),
            "asymptote": forecast.to_value(float(np.mean([posterior.asymptote_mean[arm] for posterior in posteriors]))),
            "new": arms.trial_of[arm] is None,
        }

    def _make_shortlist(self, posteriors: list[FreezeThawPosterior], free: Indices, trained: Indices) -> Indices:
        """Return the started and the new arms whose asymptotes have the largest expected improvement on the lowest mean."""
        started = trained > 0
        scores = []
        for posterior in posteriors:
            level = posterior.asymptote_mean[started].min() if started.any() else posterior.parameters.mean
            std = np.sqrt(posterior.asymptote_variance)
            scores.append(log_expected_improvement(posterior.asymptote_mean, std, float(level)))
        ranked = free[sort_best_first(np.mean(scores, axis=0)[free], "highest", spread=LOG_SPREAD)]
        return np.concatenate([ranked[started[ranked]][: self.old], ranked[~started[ranked]][: self.new]])

    def _gain(
        self,
        posterior: FreezeThawPosterior,
        shortlist: Indices,
        step: Indices,
        variance: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Return the information of the next loss of each arm in the shortlist about the asymptotes of all of them."""
        omega = posterior.omega[posterior.curves.row_of_step[step], shortlist]
        cov = posterior.asymptote_cov_of(shortlist)
        return information_gain(
            posterior.asymptote_mean[shortlist],
            cov,
            cov * omega,
            variance + posterior.parameters.diagonal,
            rng,
            self.fantasies,
        )
