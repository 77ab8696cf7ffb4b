"""Named random streams, and quasi-random points in the unit cube.

**Streams.** The same seed and name always give the same numbers, whatever was drawn elsewhere. A decision draws from
`stream(seed, "decide", number of orders)`; what is drawn once for a study (a pool of candidates, the scrambling of a
quasi-random sequence) draws from a stream with its own name. Nothing depends on how often a policy was called, so a study in
two runs equals the study in one run.

**Quasi-random points.** Halton's sequence with randomly permuted digits: J. H. Halton, "On the efficiency of certain quasi-random
sequences of points", Numerische Mathematik 2, 1960; digits are permuted position by position as in A. B. Owen, "A randomized
Halton algorithm in R", arXiv:1706.02808.

Point i in dimension j is the number 0.a₁a₂a₃… in base pⱼ (the j-th prime), where i = …a₃a₂a₁ in that base and every position of
every dimension has its own random permutation. Any single point can be computed without the points before it, which a policy
without memory needs. Scrambling removes the stripes that plain Halton sequences show in high dimensions.

The permutations of all dimensions together grow faster than the square of their number, and in base pⱼ only runs of pⱼ points
are spread evenly. So in more than `MAX_QUASI_RANDOM_DIMS` dimensions the points are independent uniform draws, and each point has
a stream of its own.
"""

from __future__ import annotations

import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


def stream(seed: int, name: str, *numbers: int) -> np.random.Generator:
    """Return a new generator of the stream with this seed, name and numbers."""
    # The count is part of the seed because NumPy pads seeds with zeros: ("x",) and ("x", 0) would be one stream.
    words = [seed, zlib.crc32(name.encode()), len(numbers), *numbers]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


# The last prime is then 1,223: few studies have as many trials as that dimension needs to be spread evenly. The tables of one
# sequence then need 18 MB; with 1,000 dimensions they would need 520 MB.
MAX_QUASI_RANDOM_DIMS = 200
_RESOLUTION = 2.0**-32  # digits below this are left out; they would matter only after 2**32 points


@lru_cache(maxsize=64)
def _scramble(seed: int, name: str, dims: int) -> list[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Return for each dimension: base p, permutations (digits, p), and the powers 1, p, p², … of its digits."""
    rng = stream(seed, name, dims)
    table = []
    for p in _primes(dims):
        digits = int(np.ceil(-np.log(_RESOLUTION) / np.log(p)))
        permutations = np.array([rng.permutation(p) for _ in range(digits)], dtype=np.int64)
        table.append((p, permutations, p ** np.arange(digits, dtype=np.int64)))  # ≤ 2³², far from overflow
    return table


def points(seed: int, name: str, dims: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the points with the numbers `indices` (n,) of the sequence (seed, name, dims), as (n, dims) in [0, 1)."""
    if dims > MAX_QUASI_RANDOM_DIMS:
        return np.array([_draw(seed, name, dims, int(index)) for index in indices]).reshape(len(indices), dims)
    out = np.empty((len(indices), dims))
    for j, (p, permutations, powers) in enumerate(_scramble(seed, name, dims)):
        digits = indices[:, None] // powers % p  # (n, digits), least significant first
        scrambled = permutations[np.arange(len(powers)), digits]
        # Whole numbers and one division: a sum of floats would round differently for another number of points.
        out[:, j] = scrambled @ powers[::-1] / (p * int(powers[-1]))
    return out


def point(seed: int, name: str, dims: int, index: int) -> NDArray[np.float64]:
    """Return one point, bit for bit equal to that of `points`, without the overhead of arrays: a new trial needs only one."""
    if dims > MAX_QUASI_RANDOM_DIMS:
        return _draw(seed, name, dims, index)
    out = []
    for p, permutations, weights, zeros, whole in _digit_table(seed, name, dims):
        total, k, rest = 0, 0, index
        while rest and k < len(weights):
            rest, digit = divmod(rest, p)
            total += permutations[k][digit] * weights[k]
            k += 1
        out.append((total + zeros[k]) / whole)
    return np.array(out)


def _draw(seed: int, name: str, dims: int, index: int) -> NDArray[np.float64]:
    """Return point `index` of a sequence whose points are independent, (dims,)."""
    return stream(seed, name, dims, index).random(dims)


_Digits = tuple[int, list[list[int]], list[int], list[int], int]


@lru_cache(maxsize=64)
def _digit_table(seed: int, name: str, dims: int) -> list[_Digits]:
    """Return the numbers that `point` needs, for each dimension.

    These are the base p, the permutations, the weights p^(digits-1-k) of the digits k, for each k the sum that the digits
    from k on contribute if all of them are 0, and p^digits.
    """
    table = []
    for p, permutations, powers in _scramble(seed, name, dims):
        weights = [int(power) for power in powers[::-1]]
        of_zero = [int(permutation[0]) * weight for permutation, weight in zip(permutations, weights, strict=True)]
        zeros = [sum(of_zero[k:]) for k in range(len(weights) + 1)]
        table.append((p, permutations.tolist(), weights, zeros, p * int(powers[-1])))
    return table


@lru_cache(maxsize=8)
def _primes(count: int) -> tuple[int, ...]:
    found: list[int] = []
    candidate = 2
    while len(found) < count:
        if all(candidate % p for p in found if p * p <= candidate):
            found.append(candidate)
        candidate += 1
    return tuple(found)
