"""What the policies that freeze and thaw have in common: arms, a belief about their curves, and one step at a time.

Each of them only says which arm gets the next step (`choose_arm`). The belief is the freeze-thaw process of
`models.freeze_thaw.belief`. Its parameters are given, most probable, or slice sampled (`models.freeze_thaw.fit`). They are
refreshed by the number of receipts; what they are, and with them where the Markov chain stands, travels in the memo of
each order, so a study that was cut off goes on with the very numbers it had.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from shoestring.core.deciding.comparison import find_runner_up
from shoestring.core.deciding.decision import NO_MEMO, Decision, Memo, Why
from shoestring.core.deciding.prediction import Believed, BelievedCurve, put_first
from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.arrays import Floats
from shoestring.core.values.checks import require_between, require_one_of, require_whole
from shoestring.errors import PolicyError
from shoestring.models.freeze_thaw.curve_posterior import FreezeThawBelief
from shoestring.models.freeze_thaw.curves import CurveParameters, Curves
from shoestring.models.freeze_thaw.fit import (
    N_PARAMETERS,
    CurvePrior,
    LogPosterior,
    find_most_probable,
    pack,
    sample_parameters,
    unpack,
)
from shoestring.models.loss_scaling import Scaling, fit_scaling
from shoestring.policies.freeze_thaw.arms import (
    REFITS,
    SINGLE_DRAWS,
    ArmsView,
    ArmTable,
    Reach,
    buy_steps,
    measure_reach,
    settle_without_choice,
)

ParametersSetting = Literal["sampled", "most_probable"] | Sequence[float]


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """Where the curves of all arms are heading, as seen at one moment: one belief for each set of parameters."""

    arms: ArmTable
    scaling: Scaling  # the beliefs live on scaled losses
    beliefs: list[FreezeThawBelief]
    memo: Memo  # by which the next decision knows the parameters

    def predict(self) -> tuple[Floats, Floats]:
        """Mean and variance (n_samples, n_arms, max_steps) of scaled losses at steps 1, 2, …; nan where they are past."""
        each = [belief.predict() for belief in self.beliefs]
        return np.stack([mean for mean, _ in each]), np.stack([variance for _, variance in each])

    def to_value(self, scaled: float) -> float:
        """A scaled loss as the training code would report it."""
        return self.arms.sign * float(self.scaling.undo(np.array(scaled)))

    @property
    def best_scaled_loss(self) -> float:
        """The smallest loss so far; infinite before the first."""
        seen = self.beliefs[0].curves.losses
        return float(np.nanmin(seen)) if not np.isnan(seen).all() else math.inf


def mix(mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of an even mixture of normals, by their first axis."""
    return mean.mean(axis=0), np.sqrt(variance.mean(axis=0) + mean.var(axis=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePolicy:
    """Settings.

    arms             how many configs to choose among; None: 100, or every row of a listed space
    parameters       "sampled", "most_probable", or six numbers: alpha, beta (epochs), curve variance, noise variance,
                     asymptote variance, asymptote mean; a seventh is how far curves are expected to fall
    samples          how many parameter samples to average over
    scale            "standard": mean 0 and variance 1 over the losses so far; "log": of their logarithms; "none"
    lengthscale      of the similarity of configs in the unit cube, one number or one per dimension; None: unrelated arms
    epochs_per_step  what a step is to the curve's kernel
    start            the value that every curve has before its first step, if that is known
    falling          whether curves are expected to fall, by how much being fitted too; in the paper they are as likely to rise
    """

    name: ClassVar[str]
    arms: int | None = None
    parameters: ParametersSetting = "sampled"
    samples: int = 10
    scale: Literal["standard", "log", "none"] = "standard"
    lengthscale: float | Sequence[float] | None = None
    epochs_per_step: float = 1.0
    start: float | None = None
    falling: bool = False

    def __post_init__(self) -> None:
        require_whole(self, "arms", 1, "there is nothing to choose among", "Try 100.", optional=True)
        self._require_parameters()
        require_whole(self, "samples", 1, "the belief needs parameters", "Try 10.")
        require_one_of(self, "scale", ("standard", "log", "none"))
        require_between(self, "epochs_per_step", 0.0, math.inf, "a step takes a curve forward", "Try 1.")
        require_between(
            self, "start", -math.inf, math.inf, "it is a value of the training code", "Leave it out.", optional=True
        )
        require_one_of(self, "falling", (True, False))
        if self.lengthscale is not None and not np.min(self.lengthscale) > 0.0:
            raise PolicyError(
                f"{type(self).__name__}(lengthscale={self.lengthscale}) must be above 0: it is a distance. Try 0.5."
            )

    def _require_parameters(self) -> None:
        policy, given = type(self).__name__, self.parameters
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
        reach = measure_reach(ledger, arms)
        if (settled := settle_without_choice(ledger, arms, reach)) is not None:
            return settled
        outlook = self.look_ahead(ledger, arms, ledger.memo)
        arm, why = self.choose_arm(outlook, reach, rng)
        return buy_steps(ledger, arms, arm, why={"arm": arm, **why}, memo=outlook.memo)

    def choose_arm(self, outlook: Outlook, reach: Reach, rng: np.random.Generator) -> tuple[int, Why]:
        """The arm that gets the next step, one with room for it, and the numbers behind that."""
        raise NotImplementedError

    def believe(self, ledger: Ledger, order: Order) -> Believed | None:
        """The curves of the arm bought and of those whose ends are expected to be best."""
        if not order.why.get("compared") or "arm" not in order.why:
            return None
        arms = ledger.view(ArmsView(self.arms))
        outlook = self.look_ahead(ledger, arms, order.memo)
        noise = np.array([belief.parameters.noise for belief in outlook.beliefs])
        mean, variance = outlook.predict()
        mean, std = mix(mean, variance + noise[:, None, None])  # (n_arms, max_steps)
        ends = [ledger.max_steps if t is None else ledger.trials[t].limit for t in arms.trial_of]
        room = measure_reach(ledger, arms).room
        ranked = [int(arm) for arm in sort_best_first(mean[:, -1], "lowest") if room[arm]]
        told = []
        for arm in put_first(ranked, int(str(order.why["arm"])), find_runner_up(order.why, ranked, arms.say)):
            steps = np.arange(arms.trained[arm] + 1, ends[arm] + 1)
            quantile = outlook.scaling.quantile_of(mean[arm, steps - 1], std[arm, steps - 1])
            told.append(BelievedCurve.of(arms.trial_of[arm], arms.configs[arm], steps, quantile, arms.sign))
        return Believed(told)

    def look_ahead(self, ledger: Ledger, arms: ArmTable, memo: Memo) -> Outlook:
        """The belief given all losses so far; `memo`: what is known of its parameters."""
        reported = ~np.isnan(arms.losses)
        scale = self._find_scale(arms.losses, reported)
        losses = np.where(reported, scale.apply(arms.losses), np.nan)
        start = None if self.start is None else float(scale.apply(np.array(arms.sign * self.start)))
        curves = Curves.of(losses, unit=float(self.epochs_per_step), start=start)
        kernel = None if self.lengthscale is None else arms.similarity(self.lengthscale)
        parameters, memo = self._carry_parameters(ledger, memo, curves, kernel)
        return Outlook(arms, scale, [FreezeThawBelief.given(curves, p, kernel) for p in parameters], memo)

    def _find_scale(self, losses: Floats, reported: np.ndarray) -> Scaling:
        found = fit_scaling(losses, reported, log=self.scale == "log")
        if self.scale != "none":
            return found
        # as they are; but where runs diverged, bad ones must enter as something finite, and nothing as worse than that
        fence = math.inf if np.isfinite(losses[reported]).all() else found.fence
        return replace(found, centre=0.0, scale=1.0, fence=fence)

    def _carry_parameters(
        self, ledger: Ledger, memo: Memo, curves: Curves, kernel: Floats | None
    ) -> tuple[list[CurveParameters], Memo]:
        """The parameters of this moment, fitted again if that is due, and the next memo."""
        if not isinstance(self.parameters, str):
            return [CurveParameters(*self.parameters)], NO_MEMO
        receipts, n = ledger.books.receipts, N_PARAMETERS + self.falling
        is_single = self.parameters == "sampled" and self.samples == 1
        fit = (SINGLE_DRAWS if is_single else REFITS).check_due(memo, receipts)
        theta = list(memo.get("theta", ()))
        if len(theta) != n * (self.samples if self.parameters == "sampled" else 1):
            theta = []  # none yet, or another version's defaults: a chain of another shape has nothing to go on from
        if fit.is_due or not theta:
            posterior = LogPosterior(curves, CurvePrior.of(curves, self.falling), kernel)
            position = theta[-n:] or None
            if self.parameters == "most_probable":
                found = [find_most_probable(posterior, position)]
            else:
                found = sample_parameters(posterior, ledger.rng("parameters", receipts), self.samples, position)
            theta = [float(x) for p in found for x in pack(p)]
        # also right after a fit they come from the memo: packing rounds, and later decisions must see the same numbers
        return [unpack(theta[i : i + n]) for i in range(0, len(theta), n)], {"theta": theta, **fit.marks}
