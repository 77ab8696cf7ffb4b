"""The network over arms in NumPy. It predicts how low the loss of each arm gets if the remaining budget is spent on it.

It is a transformer without positions, whose tokens are arms. All arms attend to the arms that were trained (the context), so
candidates that were not started cost little. The weights ship with the package in half precision and with a checksum, and are
read when they are first used. The file may hold several networks; their probabilities are averaged.

The network computes in double precision. Single precision (`to_single_precision`) takes half the time, but its results differ
from processor to processor: expected gains differ by up to 9e-7 of their spread.

    d   width         h   heads         K   arms         A   arms of the context
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoestring.core.values.arrays import Floats
from shoestring.errors import StudyError
from shoestring.models.thrift.shapes import BINS, FEATURES

_FILE = "weights.npz"
_SMALL = 1e-5  # added to the variance in a layer norm, as in training


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """One block: attention and a small network, each added to its input."""

    norm_1: tuple[Floats, Floats]
    q: tuple[Floats, Floats]
    kv: tuple[Floats, Floats]
    o: tuple[Floats, Floats]
    norm_2: tuple[Floats, Floats]
    up: tuple[Floats, Floats]
    down: tuple[Floats, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """The weights of one transformer, and its output for the arms of a study."""

    heads: int
    enter: tuple[Floats, Floats]
    layers: tuple[Layer, ...]
    norm: tuple[Floats, Floats]
    bins: tuple[Floats, Floats]

    def log_odds(self, f: NDArray[np.float32], context: NDArray[np.intp]) -> Floats:
        """Return log odds (K, BINS) from features (K, FEATURES); `context` (A,) has the indices of trained arms, at least one."""
        x = _linear(f.astype(self.enter[0].dtype), self.enter)
        for layer in self.layers:
            x = self._attend(x, layer, context)
            inner = _linear(_normalise(x, layer.norm_2), layer.up)
            inner /= 1 + np.exp(-inner)
            x += _linear(inner, layer.down)
        return _linear(_normalise(x, self.norm), self.bins)

    def _attend(self, x: Floats, layer: Layer, context: NDArray[np.intp]) -> Floats:
        arms, width = x.shape
        size = width // self.heads
        a = _normalise(x, layer.norm_1)
        q = _linear(a, layer.q).reshape(arms, self.heads, size).transpose(1, 0, 2)  # (h, K, d/h)
        kv = _linear(a[context], layer.kv).reshape(len(context), 2, self.heads, size)
        k, v = kv[:, 0].transpose(1, 2, 0), kv[:, 1].transpose(1, 0, 2)  # (h, d/h, A), (h, A, d/h)
        share = np.matmul(q * size**-0.5, k)  # (h, K, A)
        share -= share.max(axis=2, keepdims=True)
        np.exp(share, out=share)
        found = np.matmul(share, v) / share.sum(axis=2, keepdims=True)
        return x + _linear(np.ascontiguousarray(found.transpose(1, 0, 2)).reshape(arms, width), layer.o)


def _linear(x: Floats, weights: tuple[Floats, Floats]) -> Floats:
    y: Floats = x @ weights[0]
    y += weights[1]
    return y


def _normalise(x: Floats, weights: tuple[Floats, Floats]) -> Floats:
    centred = x - x.mean(axis=1, keepdims=True)
    spread = np.sqrt(np.einsum("ij,ij->i", centred, centred) / x.shape[1] + _SMALL)
    centred *= (1 / spread)[:, None]
    return np.asarray(centred * weights[0] + weights[1])


def probabilities(networks: tuple[Network, ...], f: NDArray[np.float32], context: NDArray[np.intp]) -> Floats:
    """Return the mean of the networks' probabilities, (K, BINS)."""
    total = np.zeros((len(f), BINS))
    for network in networks:
        odds = network.log_odds(f, context).astype(np.float64)
        odds = np.exp(odds - odds.max(axis=1, keepdims=True))
        total += odds / odds.sum(axis=1, keepdims=True)
    return total / len(networks)


# the file ------------------------------------------------------------------------------------------------------------


def unpack(flat: NDArray[Any], width: int, layers: int, heads: int) -> Network:
    """Return a network from all its numbers in one row, in the order of the fields of `Network` and `Layer`."""
    at = 0

    def take(*shape: int) -> Floats:
        nonlocal at
        size = int(np.prod(shape))
        at += size
        return np.ascontiguousarray(flat[at - size : at], dtype=np.float64).reshape(shape)

    def linear(a: int, b: int) -> tuple[Floats, Floats]:
        return take(a, b), take(b)

    def norm() -> tuple[Floats, Floats]:
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
        raise StudyError(f"the weights have {len(flat)} numbers, a network of this shape {at}: reinstall shoestring")
    return network


def checksum(flat: NDArray[Any]) -> str:
    return hashlib.sha256(np.ascontiguousarray(flat).tobytes()).hexdigest()


def read(path: Any) -> tuple[Network, ...]:
    """Return the networks of a file that `training` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        flat, facts = stored["weights"], json.loads(str(stored["facts"]))
    if checksum(flat) != facts["sha256"]:
        raise StudyError(f"the weights in {str(path)!r} do not match their checksum: reinstall shoestring")
    return tuple(unpack(row, facts["width"], facts["layers"], facts["heads"]) for row in flat.astype(np.float64))


@lru_cache(maxsize=4)
def to_single_precision(networks: tuple[Network, ...]) -> tuple[Network, ...]:
    """Return the same networks in single precision, for results that need not be exact."""

    def shorten(pair: tuple[Floats, Floats]) -> tuple[Any, Any]:
        return pair[0].astype(np.float32), pair[1].astype(np.float32)

    def shorten_all(part: Network | Layer) -> dict[str, Any]:
        return {f.name: shorten(getattr(part, f.name)) for f in fields(part) if f.name not in ("heads", "layers")}

    return tuple(
        replace(one, **shorten_all(one), layers=tuple(replace(layer, **shorten_all(layer)) for layer in one.layers))
        for one in networks
    )


@lru_cache(maxsize=1)
def load_shipped_networks() -> tuple[Network, ...]:
    """Return the networks that come with the package; they are read once."""
    with as_file(files("shoestring.models.thrift").joinpath(_FILE)) as path:
        return read(path)
