"""One thread for the linear algebra of a decision.

A policy's matrices are small, and training keeps the cores busy. OpenBLAS would still split every product over all
cores and let its threads spin while they wait for one another: on a busy machine that made decisions four to forty times
slower. So its number of threads is turned down while a policy decides, and put back for the training code.

Only OpenBLAS on Linux is known here, which is what NumPy and SciPy bring along; elsewhere nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from pathlib import Path

_PREFIXES = ("scipy_openblas", "openblas")  # the first is the copy that the wheels of NumPy and SciPy bring
_SUFFIXES = ("64_", "")  # with and without 64-bit indices
_GetSet = tuple[Callable[[], int], Callable[[int], None]]


class OneThread:
    """`with one_thread: …`; the libraries are looked for once, when it is made: after the policy was imported."""

    def __init__(self) -> None:
        self._libraries = list(_loaded())
        self._before: list[int] = []

    def __enter__(self) -> None:
        self._before = [count() for count, _ in self._libraries]
        for _, limit in self._libraries:
            limit(1)

    def __exit__(self, *raised: object) -> None:
        for before, (_, limit) in zip(self._before, self._libraries, strict=True):
            limit(before)


def _loaded() -> Iterator[_GetSet]:
    """How to read and set the number of threads of each OpenBLAS in this process."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # no Linux
        return
    for file in sorted({line.split()[-1] for line in maps.splitlines() if "openblas" in line}):
        with contextlib.suppress(OSError):  # a file that was replaced since it was loaded
            library = ctypes.CDLL(file)
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    if hasattr(library, f"{prefix}_set_num_threads{suffix}"):
                        yield (
                            getattr(library, f"{prefix}_get_num_threads{suffix}"),
                            getattr(library, f"{prefix}_set_num_threads{suffix}"),
                        )
