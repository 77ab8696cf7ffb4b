"""Base class of the freeze-thaw policies: arms, predictions of their curves, and one step per order.

A subclass only chooses the arm that gets the next step (`choose_arm`). The predictions come from the freeze-thaw posterior
of `models.freeze_thaw.curve_posterior`. Its parameters are given, most probable, or slice sampled
(`models.freeze_thaw.parameter_fit`). The number of receipts determines when they are updated. The memo of each order holds them,
and with them the position of the Markov chain, so a study that was interrupted continues with exactly the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.deciding.comparison import find_runner_up
from shoestring.core.deciding.prediction import put_first
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import is_number, to_plain
from shoestring.errors import PolicyError
from shoestring.models.freeze_thaw.arm_curves import CurveParameters, Curves
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawPosterior
from shoestring.models.freeze_thaw.parameter_fit import (
    N_PARAMETERS,
    CurvePrior,
    LogPosterior,
    find_most_probable,
    pack,
    sample_parameters,
    unpack,
)
from shoestring.models.loss_scaling import Scaling, fit_scaling, normal_quantile
from shoestring.policies.freeze_thaw.arm_table import (
    REFITS,
    SINGLE_SAMPLE_REFITS,
    ArmLimits,
    ArmsView,
    ArmTable,
    compute_limits,
    decide_without_choice,
    train_arm,
)
from shoestring.policy import (
    NO_MEMO,
    CurvePrediction,
    Decision,
    Ledger,
    Memo,
    Order,
    Prediction,
    Why,
    require_between,
    require_one_of,
    require_whole,
    sort_best_first,
)

ParametersSetting = Literal["sampled", "most_probable"] | Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class CurveForecast:
    """Predicted curves of all arms at one moment: one posterior for each set of parameters."""

    arms: ArmTable
    scaling: Scaling  # the posteriors are those of scaled losses
    posteriors: list[FreezeThawPosterior]
    memo: Memo  # holds the parameters for the next decision

    def predict(self) -> tuple[Floats, Floats]:
        """Return mean and variance (n_samples, n_arms, max_steps) of scaled losses at steps 1, 2, ...; nan for past steps."""
        each = [posterior.predict() for posterior in self.posteriors]
        return np.stack([mean for mean, _ in each]), np.stack([variance for _, variance in each])

    def to_value(self, scaled: float) -> float:
        """Convert a scaled loss to a value in the unit of the training code."""
        return self.arms.sign * float(self.scaling.undo(np.array(scaled)))

    @property
    def best_scaled_loss(self) -> float:
        """Return the smallest scaled loss so far, or inf before the first loss."""
        seen = self.posteriors[0].curves.losses
        return float(np.nanmin(seen)) if not np.isnan(seen).all() else math.inf


def mix(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Return mean and standard deviation of a mixture of normals with equal weights; the first axis counts the normals."""
    return mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePolicy:
    """Base class with the settings of all freeze-thaw policies.

    arms         number of configurations to choose from; None: 100, or every row of a listed space
    parameters   "sampled", "most_probable", or six numbers: alpha, beta (steps), curve variance, noise variance,
                 asymptote variance, asymptote mean; a seventh number is how far curves are expected to fall
    samples      number of parameter samples to average over
    scale        "standard": scale the losses so far to mean 0 and variance 1; "none": use losses as they are
    lengthscale  length-scale of the similarity of configurations in the unit cube, one number or one per dimension; None:
                 configurations are independent
    start        value of every curve before its first step, if it is known
    falling      whether curves are expected to fall, by an amount that is fitted; in the paper they are as likely to rise
    """

    name: ClassVar[str]
    arms: int | None = None
    parameters: ParametersSetting = "sampled"
    samples: int = 10
    scale: Literal["standard", "none"] = "standard"
    lengthscale: float | Sequence[float] | None = None
    start: float | None = None
    falling: bool = False

    def __post_init__(self) -> None:
        require_whole(self, "arms", 1, "there must be arms to choose from", "Try 100.", optional=True)
        self._require_parameters()
        require_whole(self, "samples", 1, "the model needs parameters", "Try 10.")
        require_one_of(self, "scale", ("standard", "none"))
        require_between(
            self,
            "start",
            -math.inf,
            math.inf,
            "it is a value that the training code reports",
            "Leave it out.",
            optional=True,
        )
        require_one_of(self, "falling", (True, False))
        self._require_lengthscale()

    def _require_lengthscale(self) -> None:
        given = to_plain(self.lengthscale)
        each = given if isinstance(given, list) else [given]
        if given is not None and not (each and all(is_number(one) and 0.0 < one < math.inf for one in each)):
            raise PolicyError(
                f"{self.name}(lengthscale={given!r}) must be a number above 0, or one for each parameter: it is a "
                "distance in the unit cube. Try 0.5."
            )

    def _require_parameters(self) -> None:
        policy, given = self.name, self.parameters
        if isinstance(given, str):
            if given not in ("sampled", "most_probable"):
                raise PolicyError(f"{policy}(parameters={given!r}) must be 'sampled', 'most_probable' or six numbers.")
            return
        if len(given) not in (N_PARAMETERS, N_PARAMETERS + 1):
            raise PolicyError(
                f"{policy}(parameters={list(given)}) must be six numbers: alpha, beta, curve variance, noise variance, "
                "asymptote variance, asymptote mean; or seven, with the fall of a curve."
            )
        try:
            CurveParameters(*given)
        except ValueError as rule:
            raise PolicyError(f"{policy}: {rule}") from None

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        arms = ledger.view(ArmsView(self.arms))
        limits = compute_limits(ledger, arms)
        if (decision := decide_without_choice(ledger, arms, limits)) is not None:
            return decision
        forecast = self.forecast_curves(ledger, arms, ledger.memo)
        arm, why = self.choose_arm(forecast, limits, rng)
        return train_arm(ledger, arms, arm, why={"arm": arm, **why}, memo=forecast.memo)

    def choose_arm(self, forecast: CurveForecast, limits: ArmLimits, rng: np.random.Generator) -> tuple[int, Why]:
        """Return the arm that gets the next step, which must have room for it, and the numbers behind the choice."""
        raise NotImplementedError

    def predict(self, ledger: Ledger, order: Order) -> Prediction | None:
        """Return the predicted curves of the chosen arm and of the arms with the best predicted ends."""
        if not order.why.get("compared") or "arm" not in order.why:
            return None
        arms = ledger.view(ArmsView(self.arms))
        forecast = self.forecast_curves(ledger, arms, order.memo)
        noise = np.array([posterior.parameters.noise for posterior in forecast.posteriors])
        mean, variance = forecast.predict()
        mean, std = mix(mean, variance + noise[:, None, None])  # (n_arms, max_steps)
        ends = [ledger.max_steps if t is None else ledger.trials[t].limit for t in arms.trial_of]
        room = compute_limits(ledger, arms).room
        ranked = [int(arm) for arm in sort_best_first(mean[:, -1], "lowest") if room[arm]]
        curves = []
        for arm in put_first(ranked, int(str(order.why["arm"])), find_runner_up(order.why, ranked, arms.identify)):
            steps = np.arange(arms.trained[arm] + 1, ends[arm] + 1)
            quantile = normal_quantile(mean[arm, steps - 1], std[arm, steps - 1], forecast.scaling.undo)
            curves.append(CurvePrediction.of(arms.trial_of[arm], arms.configs[arm], steps, quantile, arms.sign))
        return Prediction(curves)

    def forecast_curves(self, ledger: Ledger, arms: ArmTable, memo: Memo) -> CurveForecast:
        """Return the forecast given all losses so far; `memo` holds the parameters of the last decision."""
        reported = ~np.isnan(arms.losses)
        scale = self._find_scale(arms.losses, reported)
        losses = np.where(reported, scale.apply(arms.losses), np.nan)
        start = None if self.start is None else float(scale.apply(np.array(arms.sign * self.start)))
        curves = Curves.of(losses, start=start)
        kernel = None if self.lengthscale is None else arms.similarity(self.lengthscale)
        parameters, memo = self._carry_parameters(ledger, memo, curves, kernel)
        return CurveForecast(
            arms, scale, [FreezeThawPosterior.from_curves(curves, p, kernel) for p in parameters], memo
        )

    def _find_scale(self, losses: Floats, reported: np.ndarray) -> Scaling:
        found = fit_scaling(losses, reported)
        if self.scale != "none":
            return found
        # Losses stay as they are. But if a trial diverged, its loss must become finite, and no loss may be larger than that.
        fence = math.inf if np.isfinite(losses[reported]).all() else found.fence
        return replace(found, centre=0.0, scale=1.0, fence=fence)

    def _carry_parameters(
        self, ledger: Ledger, memo: Memo, curves: Curves, kernel: Floats | None
    ) -> tuple[list[CurveParameters], Memo]:
        """Return the parameters for this decision, fitted again if that is due, and the next memo."""
        if not isinstance(self.parameters, str):
            return [CurveParameters(*self.parameters)], NO_MEMO
        receipts, n = ledger.state.receipts, N_PARAMETERS + self.falling
        is_single = self.parameters == "sampled" and self.samples == 1
        fit = (SINGLE_SAMPLE_REFITS if is_single else REFITS).check_fit(memo, receipts)
        theta = list(memo.get("theta", ()))
        if len(theta) != n * (self.samples if self.parameters == "sampled" else 1):
            theta = []  # there are none yet, or they belong to other settings: a chain of another shape cannot continue
        if fit.is_due or not theta:
            posterior = LogPosterior(curves, CurvePrior.of(curves, self.falling), kernel)
            position = theta[-n:] or None
            if self.parameters == "most_probable":
                found = [find_most_probable(posterior, position)]
            else:
                found = sample_parameters(posterior, ledger.rng("parameters", receipts), self.samples, position)
            theta = [float(x) for p in found for x in pack(p)]
        # Right after a fit, too, the parameters are read from the memo: packing rounds them, and later decisions must see the
        # same numbers.
        return [unpack(theta[i : i + n]) for i in range(0, len(theta), n)], {"theta": theta, **fit.marks}
