"""The network over arms, in NumPy: where does each arm end, if the money left is spent on it?

A transformer without positions: tokens are arms, whatever the number of steps they had. Every arm asks, only arms that were
trained answer, so candidates that were not opened cost little. Its weights ship with the package in half precision, are
read when first used, and carry a checksum. Several networks may be in the file; their answers are averaged.

    d   width         h   heads         K   arms         A   arms that answer
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.arrays import Floats
from shoestring.errors import StudyError
from shoestring.models.thrift.shapes import BINS, FEATURES

Singles = NDArray[np.float32]
_FILE = "weights.npz"
_SMALL = 1e-5  # of a layer norm, as in training


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One block: attention and a small network, each added to what it was given."""

    norm_1: tuple[Singles, Singles]
    q: tuple[Singles, Singles]
    kv: tuple[Singles, Singles]
    o: tuple[Singles, Singles]
    norm_2: tuple[Singles, Singles]
    up: tuple[Singles, Singles]
    down: tuple[Singles, Singles]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    heads: int
    enter: tuple[Singles, Singles]
    layers: tuple[Layer, ...]
    norm: tuple[Singles, Singles]
    bins: tuple[Singles, Singles]

    def log_odds(self, f: Singles, answering: NDArray[np.intp]) -> Singles:
        """(K, BINS) of the features (K, FEATURES); `answering` (A,): arms that were trained, at least one."""
        x = _linear(f, self.enter)
        for layer in self.layers:
            x = self._attend(x, layer, answering)
            inner = _linear(_normalise(x, layer.norm_2), layer.up)
            inner /= 1 + np.exp(-inner)
            x += _linear(inner, layer.down)
        return _linear(_normalise(x, self.norm), self.bins)

    def _attend(self, x: Singles, layer: Layer, answering: NDArray[np.intp]) -> Singles:
        arms, width = x.shape
        size = width // self.heads
        a = _normalise(x, layer.norm_1)
        q = _linear(a, layer.q).reshape(arms, self.heads, size).transpose(1, 0, 2)  # (h, K, d/h)
        kv = _linear(a[answering], layer.kv).reshape(len(answering), 2, self.heads, size)
        k, v = kv[:, 0].transpose(1, 2, 0), kv[:, 1].transpose(1, 0, 2)  # (h, d/h, A), (h, A, d/h)
        share = np.matmul(q * np.float32(size**-0.5), k)  # (h, K, A)
        share -= share.max(axis=2, keepdims=True)
        np.exp(share, out=share)
        found = np.matmul(share, v) / share.sum(axis=2, keepdims=True)
        return x + _linear(np.ascontiguousarray(found.transpose(1, 0, 2)).reshape(arms, width), layer.o)


def _linear(x: Singles, weights: tuple[Singles, Singles]) -> Singles:
    y: Singles = x @ weights[0]
    y += weights[1]
    return y


def _normalise(x: Singles, weights: tuple[Singles, Singles]) -> Singles:
    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.einsum("ij,ij->i", centred, centred) / np.float32(x.shape[1]) + np.float32(_SMALL))
    centred *= (1 / spread)[:, None]
    return np.asarray(centred * weights[0] + weights[1], dtype=np.float32)


def probabilities(networks: tuple[Network, ...], f: Singles, answering: NDArray[np.intp]) -> Floats:
    """(K, BINS): the mean of what the networks say."""
    total = np.zeros((len(f), BINS))
    for network in networks:
        odds = network.log_odds(f, answering).astype(float)
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        total += odds / odds.sum(axis=1, keepdims=True)
    return total / len(networks)


# the file ------------------------------------------------------------------------------------------------------------


def unpack(flat: Singles, width: int, layers: int, heads: int) -> Network:
    """A network from all its numbers in one row, in the order in which `Network` and `Layer` name them."""
    at = 0

    def take(*shape: int) -> Singles:
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return np.ascontiguousarray(flat[at - size : at], dtype=np.float32).reshape(shape)

    def linear(a: int, b: int) -> tuple[Singles, Singles]:
        return take(a, b), take(b)

    def norm() -> tuple[Singles, Singles]:
        return take(width), take(width)

    enter = linear(FEATURES, width)
    blocks = tuple(
        Layer(
            norm_1=norm(),
            q=linear(width, width),
            kv=linear(width, 2 * width),
            o=linear(width, width),
            norm_2=norm(),
            up=linear(width, 2 * width),
            down=linear(2 * width, width),
        )
        for _ in range(layers)
    )
    network = Network(heads, enter, blocks, norm(), linear(width, BINS))
    if at != len(flat):
        raise StudyError(f"the weights have {len(flat)} numbers, a network of this shape {at}: install shoestring anew")
    return network


def checksum(flat: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(flat).tobytes()).hexdigest()


def read(path: Any) -> tuple[Network, ...]:
    """The networks of a file that `training` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        flat, facts = stored["weights"], json.loads(str(stored["facts"]))
    if checksum(flat) != facts["sha256"]:
        raise StudyError(f"the weights in {str(path)!r} do not match their checksum: install shoestring anew")
    return tuple(unpack(row, facts["width"], facts["layers"], facts["heads"]) for row in flat.astype(np.float32))


@lru_cache(maxsize=1)
def shipped() -> tuple[Network, ...]:
    """The networks that come with the package, read once."""
    with as_file(files("shoestring.models.thrift").joinpath(_FILE)) as path:
        return read(path)
