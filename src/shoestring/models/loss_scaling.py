"""Scale losses to mean 0 and variance 1 for a model, and limit the influence of diverged and of very large losses.

Lu, Chiang, Sha, "Hyper-parameter Tuning under a Budget Constraint", arXiv:1902.00532, does not say how to scale real losses;
the rules below are ours.

    here        meaning                                                                            unit
    first       upper quartile over arms of their first finite loss                                loss (or its log)
    best        smallest finite loss                                                               loss (or its log)
    fence       first + 3 (first - best): a loss above it is replaced by it                        loss (or its log)
    bad         worst finite loss below the fence; a diverged loss is replaced by it               loss (or its log)

A trial at the fence is worse than an untrained model by three times the largest progress that any trial has made. Ordinary curves
stay below the fence even when most losses come from one good arm; a rule on the spread of all losses would cut them. Use
logarithms where more than a quarter of the arms reach large but finite losses at their first step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from shoestring.core.values.arrays import Flags, Floats, first_true

_FENCE = 3.0  # in units of first - best
_LARGEST = 1e150  # a loss beyond this has diverged, finite or not: its square would overflow


@dataclass(frozen=True, slots=True)
class Scaling:
    """`z = (min(g(loss), fence) - centre) / scale`, where g is the identity or `log(loss - floor)`."""

    centre: float
    scale: float
    fence: float
    bad: float
    floor: float | None  # None: no logarithm
    least: float  # smallest `loss - floor` above 0; a loss at the floor counts as this one

    def apply(self, losses: Floats) -> Floats:
        """Return scaled losses, any shape; nan, inf and huge losses become `bad`. Mask unreported entries afterwards."""
        losses = np.asarray(losses, dtype=np.float64)
        usable = _is_usable(losses)
        x = self._transform(np.where(usable, losses, 0.0))
        return np.asarray((np.minimum(np.where(usable, x, self.bad), self.fence) - self.centre) / self.scale)

    def undo(self, scaled: Floats) -> Floats:
        """Return scaled values, such as predicted means, in the units of the losses."""
        x = self.centre + self.scale * np.asarray(scaled, dtype=np.float64)
        return np.asarray(x if self.floor is None else np.exp(x) + self.floor)

    def _transform(self, losses: Floats) -> Floats:
        """Return g(loss), any shape."""
        if self.floor is None:
            return losses
        return np.log(np.maximum(losses - self.floor, self.least))


def fit_scaling(losses: Floats, reported: Flags, log: bool = False) -> Scaling:
    """Return the scaling of losses (n_arms, n_steps); only `reported` ones count, and a reported nan or inf has diverged.

    With `log`, positive losses enter as their logarithm. If some loss is not positive, each enters as the logarithm of its
    distance from the smallest loss, and the smallest loss is treated like the second smallest.
    """
    losses, reported = np.asarray(losses, dtype=np.float64), np.asarray(reported, dtype=bool)
    if losses.ndim != 2 or losses.shape != reported.shape:
        raise ValueError(
            f"losses has shape {losses.shape}, reported {reported.shape}: both must be the same (n_arms, n_steps)."
        )
    good = reported & _is_usable(losses)
    if not good.any():
        return Scaling(centre=0.0, scale=1.0, fence=0.0, bad=0.0, floor=None, least=0.0)
    x = losses[good]
    floor, least = None, 0.0
    if log:
        floor = min(0.0, float(x.min()))
        above = x[x > floor] - floor
        least = float(above.min()) if len(above) else 1.0
    transform = Scaling(centre=0.0, scale=1.0, fence=np.inf, bad=0.0, floor=floor, least=least)
    transformed = transform.apply(losses)
    rows = np.flatnonzero(good.any(axis=1))
    first = float(np.quantile(transformed[rows, first_true(good[rows])], 0.75))
    best = float(transformed[good].min())
    fence = first + _FENCE * (first - best) if first > best else float(transformed[good].max())
    fenced = np.minimum(transformed[good], fence)
    bad = float(fenced.max())
    pooled = np.where(good, np.minimum(transformed, fence), bad)[reported]
    scale = float(pooled.std())
    centre = float(pooled.mean())
    # losses that differ by rounding alone are constant
    if scale <= 1e-12 * abs(centre):
        scale = 1.0
    return Scaling(centre=centre, scale=scale, fence=fence, bad=bad, floor=floor, least=least)


def normal_quantile(
    mean: Floats, std: Floats, convert: Callable[[Floats], Floats] = np.asarray
) -> Callable[[float], Floats]:
    """Return the quantile function, level -> (m,), of losses that are normal with these moments, (m,) each.

    `convert` must be increasing. It returns the normal numbers in the unit of the losses; for scaled losses it is `Scaling.undo`.
    """
    return lambda level: convert(mean + ndtri(level) * std)


def _is_usable(losses: Floats) -> Flags:
    return np.abs(losses) < _LARGEST  # false for nan too
