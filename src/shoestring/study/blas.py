"""Use one thread for the linear algebra of a decision.

The matrices of a policy are small, and training keeps the cores busy. OpenBLAS would still split every product over all cores,
and its threads would use the processor while they wait for one another. On a busy machine this made decisions 4 to 40 times
slower. So the number of threads is set to one while a policy decides, and restored for the training code.

Only OpenBLAS on Linux is supported, which the wheels of NumPy and SciPy contain. On other systems nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

_PREFIXES = ("scipy_openblas", "openblas")  # the first is the copy in the wheels of NumPy and SciPy
_SUFFIXES = ("64_", "")  # with and without 64-bit indices
_Set = Callable[[int], None]
_GetSet = tuple[Callable[[], int], _Set]


_lock = threading.Lock()
_decisions_under_way = 0  # in all threads, because the number of BLAS threads is a setting of the whole process
# The numbers of threads before these decisions, each with the function that sets it.
_former_limits: list[tuple[_Set, int]] = []


class OneThread:
    """Context manager for any thread; the last one to exit restores the number of BLAS threads.

    The libraries are searched when it is first entered. By then the policy has been imported, and with it the OpenBLAS of SciPy.
    """

    def __init__(self) -> None:
        self._libraries: list[_GetSet] | None = None

    def __enter__(self) -> None:
        global _decisions_under_way, _former_limits
        if self._libraries is None:
            self._libraries = list(_find_loaded())
        with _lock:
            _decisions_under_way += 1
            if _decisions_under_way == 1:
                _former_limits = [(limit, count()) for count, limit in self._libraries]
                for limit, _ in _former_limits:
                    limit(1)

    def __exit__(self, *raised: object) -> None:
        global _decisions_under_way
        with _lock:
            _decisions_under_way -= 1
            if _decisions_under_way == 0:
                for limit, threads in _former_limits:
                    limit(threads)


def _find_loaded() -> Iterator[_GetSet]:
    """Yield the functions that read and set the number of threads, for each OpenBLAS in this process."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return
    for file in sorted({line.split()[-1] for line in maps.splitlines() if "openblas" in line}):
        with contextlib.suppress(OSError):  # the file was replaced since it was loaded
            library = ctypes.CDLL(file)
            for prefix in _PREFIXES:
                for suffix in _SUFFIXES:
                    if hasattr(library, f"{prefix}_set_num_threads{suffix}"):
                        yield (
                            getattr(library, f"{prefix}_get_num_threads{suffix}"),
                            getattr(library, f"{prefix}_set_num_threads{suffix}"),
                        )
