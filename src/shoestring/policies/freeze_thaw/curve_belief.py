"""What the policies that freeze and thaw have in common: their arms, and a belief about where every curve is heading.

The belief is the freeze-thaw process of `models.freeze_thaw.belief`. Its parameters are given, most probable, or slice sampled
(`models.freeze_thaw.fit`); they are refreshed by the number of receipts, and what they are and where the Markov chain
stands travels in the memo of each order, so a study that was cut off goes on with the very numbers it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from shoestring.core.decision import Memo
from shoestring.core.ledger import Ledger
from shoestring.core.memo import Refits
from shoestring.errors import PolicyError
from shoestring.models.freeze_thaw.belief import Belief
from shoestring.models.freeze_thaw.curves import Curves, Parameters
from shoestring.models.freeze_thaw.fit import (
    N_PARAMETERS,
    LogPosterior,
    Prior,
    most_probable,
    pack,
    sample_parameters,
    unpack,
)
from shoestring.models.loss_scaling import Scaling, scaling
from shoestring.policies.freeze_thaw.arms import Arms, ArmsView, Choices, Flags, Floats, choices

# Early on every loss tells much; later a fit costs more and moves the parameters less.
REFITS = Refits(often=50, every=5, key="receipts")
SOME_PARAMETERS = (1.0, 5.0, 1.0, 0.01, 1.0, 0.0)  # what standardised losses of real tables gave, roughly
_AS_THEY_ARE = Scaling(centre=0.0, scale=1.0, fence=np.inf, bad=0.0, floor=None, least=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Outlooks:
    """The belief at one moment, once for each set of parameters."""

    arms: Arms
    scaling: Scaling  # the belief lives on scaled losses
    beliefs: list[Belief]
    memo: Memo

    def predict(self) -> tuple[Floats, Floats]:
        """Mean and variance (n_samples, n_arms, max_steps) of scaled losses at steps 1, 2, …; nan where they are past."""
        each = [belief.predict() for belief in self.beliefs]
        return np.stack([mean for mean, _ in each]), np.stack([variance for _, variance in each])

    def value(self, scaled: float) -> float:
        """A scaled loss as the training code would report it."""
        return self.arms.sign * float(self.scaling.undo(np.array(scaled)))

    @property
    def best_scaled_loss(self) -> float:
        """The smallest loss so far on the belief's scale; infinite before the first."""
        seen = self.beliefs[0].curves.losses
        return float(np.nanmin(seen)) if not np.isnan(seen).all() else np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveBelief:
    """Settings.

    arms             how many configs to choose among; None: 100, or every row of a listed space
    parameters       "sampled", "most_probable", or six numbers: alpha, beta (epochs), curve variance, noise variance,
                     asymptote variance, asymptote mean; a seventh is how far curves are expected to fall
    samples          how many parameter samples to average over
    scale            "standard": mean 0 and variance 1 over the losses so far; "log": of their logarithms; "none"
    lengthscale      of the similarity of configs in the unit cube, one number or one a dimension; None: unrelated arms
    epochs_per_step  what a step is to the curve's kernel
    start            the value that every curve has before its first step, if that is known
    falling          whether curves are expected to fall, by how much being fitted too; in the paper they are as likely to rise
    """

    arms: int | None = None
    parameters: Literal["sampled", "most_probable"] | Sequence[float] = "sampled"
    samples: int = 10
    scale: Literal["standard", "log", "none"] = "standard"
    lengthscale: float | Sequence[float] | None = None
    epochs_per_step: float = 1.0
    start: float | None = None
    falling: bool = False

    def __post_init__(self) -> None:
        name = type(self).__name__
        if self.arms is not None and self.arms < 1:
            raise PolicyError(f"{name}(arms={self.arms}) must be 1 or more: there is nothing to choose among. Try 100.")
        if isinstance(self.parameters, str):
            if self.parameters not in ("sampled", "most_probable"):
                raise PolicyError(
                    f"{name}(parameters={self.parameters!r}) must be 'sampled', 'most_probable' or six numbers."
                )
        elif len(self.parameters) not in (N_PARAMETERS, N_PARAMETERS + 1):
            raise PolicyError(
                f"{name}(parameters={list(self.parameters)}) must be six numbers: alpha, beta, curve variance, "
                "noise variance, asymptote variance, asymptote mean; or seven, with the fall of a curve."
            )
        else:
            try:
                Parameters(*self.parameters)
            except ValueError as rule:
                raise PolicyError(f"{name}: {rule}") from None
        if self.samples < 1:
            raise PolicyError(f"{name}(samples={self.samples}) must be 1 or more: the belief needs parameters. Try 10.")
        if self.scale not in ("standard", "log", "none"):
            raise PolicyError(f"{name}(scale={self.scale!r}) must be 'standard', 'log' or 'none'.")
        if not self.epochs_per_step > 0.0:
            raise PolicyError(f"{name}(epochs_per_step={self.epochs_per_step}) must be above 0. Try 1.")
        if self.lengthscale is not None and not np.min(self.lengthscale) > 0.0:
            raise PolicyError(f"{name}(lengthscale={self.lengthscale}) must be above 0. Try 0.5.")

    def now(self, ledger: Ledger) -> tuple[Arms, Choices]:
        arms = ledger.view(ArmsView(self.arms))
        return arms, choices(ledger, arms)

    def outlooks(self, ledger: Ledger, arms: Arms) -> Outlooks:
        reported = ~np.isnan(arms.losses)
        if self.scale == "none":
            scale = _AS_THEY_ARE if np.isfinite(arms.losses[reported]).all() else _only_bad_moved(arms.losses, reported)
        else:
            scale = scaling(arms.losses, reported, log=self.scale == "log")
        losses = np.where(reported, scale.apply(arms.losses), np.nan)
        start = None if self.start is None else float(scale.apply(np.array(arms.sign * self.start)))
        curves = Curves.of(losses, unit=self.epochs_per_step, start=start)
        kernel = None if self.lengthscale is None else arms.kernel(self.lengthscale)
        parameters, memo = self._parameters(ledger, curves, kernel)
        return Outlooks(arms, scale, [Belief.given(curves, p, kernel) for p in parameters], memo)

    def _parameters(self, ledger: Ledger, curves: Curves, kernel: Floats | None) -> tuple[list[Parameters], Memo]:
        """The parameters of this moment, and the memo by which the next decision knows them.

        Between two refreshes the number of receipts decides, not the number of decisions: several workers may ask often.
        """
        if not isinstance(self.parameters, str):
            return [Parameters(*self.parameters)], {}
        receipts, memo, n = ledger.books.receipts, ledger.memo, N_PARAMETERS + self.falling
        fit = REFITS.look(memo, receipts)
        if "theta" in memo and not fit.is_due:
            return [unpack(theta) for theta in np.reshape(memo["theta"], (-1, n))], memo
        posterior = LogPosterior(curves, Prior.of(curves, self.falling), kernel)
        position = memo["theta"][-n:] if "theta" in memo else None
        if self.parameters == "most_probable":
            found = [most_probable(posterior, position)]
        else:
            found, _ = sample_parameters(posterior, ledger.rng("parameters", receipts), self.samples, position)
        theta = [float(x) for p in found for x in pack(p)]
        return [unpack(t) for t in np.reshape(theta, (-1, n))], {"theta": theta, **fit.marks}


def _only_bad_moved(losses: Floats, reported: Flags) -> Scaling:
    """Losses as they are, but for the diverged ones, which enter as bad ones do."""
    found = scaling(losses, reported)
    return Scaling(centre=0.0, scale=1.0, fence=found.fence, bad=found.bad, floor=None, least=0.0)
