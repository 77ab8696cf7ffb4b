"""What the network believes about a study: for every arm, the distribution of the lowest loss that it can still reach."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from shoestring.core.deciding.reproducible import sort_best_first
from shoestring.core.values.arrays import Floats, Indices
from shoestring.models.thrift.features import Arms, Scale, features, features_with_reach, scale_of
from shoestring.models.thrift.network import Network, probabilities
from shoestring.models.thrift.shapes import BINS, HIGH, LOW

_EDGES = np.linspace(LOW, HIGH, BINS + 1)
_MIDDLES = (_EDGES[1:] + _EDGES[:-1]) / 2  # (BINS,): of u
_BETTER = _MIDDLES < 0
MOST_ANSWERS = 256  # arms that are attended to: more than in training, and time grows with them


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """Of all arms of a study at one moment."""

    scale: Scale
    chances: Floats  # (K, BINS): of u of the lowest loss within reach

    @property
    def losses(self) -> Floats:
        """(BINS,): those that the chances are of; above the typical first loss as bad as it, however far."""
        return np.asarray(self.scale.best + self.scale.stretch(np.minimum(_MIDDLES, 1.0)) * self.scale.unit)

    @property
    def gain(self) -> Floats:
        """(K,): expected improvement on the best loss so far, in the losses' unit."""
        return self.chances @ (np.where(_BETTER, -self.scale.stretch(_MIDDLES), 0.0) * self.scale.unit)

    @property
    def chance_better(self) -> Floats:
        """(K,): chance to beat the best loss so far."""
        return np.asarray(self.chances @ _BETTER.astype(float))

    @property
    def middle(self) -> Floats:
        """(K,): median of the lowest loss within reach."""
        return self.quantile(0.5)

    def quantile(self, share: float) -> Floats:
        """(K,): the loss below which the lowest within reach falls with this chance."""
        place = (np.cumsum(self.chances, axis=1) < share).sum(axis=1)
        u = _MIDDLES[np.minimum(place, BINS - 1)]
        return np.asarray(self.scale.best + self.scale.stretch(u) * self.scale.unit)


def believe(networks: tuple[Network, ...], arms: Arms, sureness: float = 1.0) -> Belief:
    """Ask the networks; at least one arm must have been trained. `sureness`: power of their chances."""
    scale = scale_of(arms)
    return Belief(scale, _sharpen(probabilities(networks, features(arms, scale), _answering(arms)), sureness))


def believe_with_reach(
    networks: tuple[Network, ...], arms: Arms, arm: int | Indices, reach: Indices, sureness: float = 1.0
) -> Belief:
    """What one arm, or each of these, would come to with so many steps; (len(reach), BINS). The study stays as it is."""
    scale, answering = scale_of(arms), _answering(arms)
    study = features(arms, scale)
    told = np.vstack(
        [study[answering], features_with_reach(study[np.broadcast_to(arm, len(reach))], reach, arms.steps)]
    )
    chances = probabilities(networks, told, np.arange(len(answering)))[len(answering) :]
    return Belief(scale, _sharpen(chances, sureness))


def _sharpen(chances: Floats, sureness: float) -> Floats:
    powers: Floats = chances**sureness
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _answering(arms: Arms) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
    """Arms that were trained; of too many, those trained furthest, then those with the lowest newest loss."""
    trained = np.flatnonzero(arms.is_opened)
    if len(trained) <= MOST_ANSWERS:
        return trained
    newest = arms.losses[trained, arms.n[trained] - 1]
    by_loss = trained[sort_best_first(newest, "lowest", exact=True)]
    return np.sort(by_loss[sort_best_first(arms.n[by_loss].astype(float), "highest", MOST_ANSWERS, exact=True)])
