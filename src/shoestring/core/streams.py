"""Named random streams: the same seed and name always give the same numbers, whatever was drawn elsewhere.

A decision draws from `stream(seed, "decide", number of orders)`; what is drawn once for a study (a pool of candidates,
the scrambling of a quasi-random sequence) draws from a stream with a name of its own. Nothing depends on how often
anybody asked, so a study cut in two equals the study in one piece.
"""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, name: str, *numbers: int) -> np.random.Generator:
    # The count is part of the seed because NumPy pads seeds with zeros: ("x",) and ("x", 0) would be one stream.
    words = [seed, zlib.crc32(name.encode()), len(numbers), *numbers]
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
