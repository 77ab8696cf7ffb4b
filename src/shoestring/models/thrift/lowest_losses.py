"""The output of the network for a study: for every arm, the distribution of the lowest loss that it can still reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.thrift.features import Arms, Scale, features, features_with_reach, scale_of
from shoestring.models.thrift.network import Network, probabilities
from shoestring.models.thrift.shapes import BINS, HIGH, LOW

_EDGES = np.linspace(LOW, HIGH, BINS + 1)
_MIDDLES = (_EDGES[1:] + _EDGES[:-1]) / 2  # (BINS,): u in the middle of each bin
_BETTER = _MIDDLES < 0
MAX_CONTEXT_ARMS = 256  # arms that all arms attend to: more than in training, and the time grows with their number


@dataclass(frozen=True, slots=True, eq=False)
class LowestLosses:
    """The distributions for all arms of a study at one moment."""

    scale: Scale
    chances: Floats  # (K, BINS): probability of each bin of u for the lowest loss within reach

    @property
    def losses(self) -> Floats:
        """Return the loss of each bin, (BINS,); a loss above the typical first loss counts as the typical one."""
        return np.asarray(self.scale.best + self.scale.from_u(np.minimum(_MIDDLES, 1.0)) * self.scale.unit)

    @property
    def gain(self) -> Floats:
        """Return the expected improvement on the best loss so far, (K,), in the unit of the losses."""
        return self.chances @ (np.where(_BETTER, -self.scale.from_u(_MIDDLES), 0.0) * self.scale.unit)

    @property
    def chance_better(self) -> Floats:
        """Return the probability of beating the best loss so far, (K,)."""
        return np.asarray(self.chances @ _BETTER.astype(float))

    @property
    def median(self) -> Floats:
        """Return the median of the lowest loss within reach, (K,)."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> Floats:
        """Return the quantiles of the lowest loss within reach, (K,)."""
        place = (np.cumsum(self.chances, axis=1) < share).sum(axis=1)
        u = _MIDDLES[np.minimum(place, BINS - 1)]
        return np.asarray(self.scale.best + self.scale.from_u(u) * self.scale.unit)


def predict_lowest_losses(networks: tuple[Network, ...], arms: Arms, chance_power: float = 1.0) -> LowestLosses:
    """Return the prediction of the networks; at least one arm must have been trained.

    The probabilities are raised to `chance_power` and scaled to sum 1.
    """
    scale = scale_of(arms)
    chances = probabilities(networks, features(arms, scale), _choose_context(arms))
    return LowestLosses(scale, _sharpen(chances, chance_power))


def predict_with_reach(
    networks: tuple[Network, ...], arms: Arms, arm: int | Indices, reach: Indices, chance_power: float = 1.0
) -> LowestLosses:
    """Return the prediction for one arm, or for each of these arms, with other reaches; `chances` is (len(reach), BINS)."""
    scale, context = scale_of(arms), _choose_context(arms)
    study = features(arms, scale)
    rows = np.vstack([study[context], features_with_reach(study[np.broadcast_to(arm, len(reach))], reach, arms.steps)])
    chances = probabilities(networks, rows, np.arange(len(context)))[len(context) :]
    return LowestLosses(scale, _sharpen(chances, chance_power))


def _sharpen(chances: Floats, chance_power: float) -> Floats:
    powers: Floats = chances**chance_power
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _choose_context(arms: Arms) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Return the trained arms; if there are too many, those with most steps, and then with the lowest newest loss."""
    trained = np.flatnonzero(arms.is_started)
    if len(trained) <= MAX_CONTEXT_ARMS:
        return trained
    newest = arms.losses[trained, arms.n[trained] - 1]
    by_loss = trained[sort_best_first(newest, "lowest", exact=True)]
    return np.sort(by_loss[sort_best_first(arms.n[by_loss].astype(float), "highest", MAX_CONTEXT_ARMS, exact=True)])
