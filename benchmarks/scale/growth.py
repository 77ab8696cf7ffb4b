"""Measure whether time and memory for an entry stay constant in one long study."""

from __future__ import annotations

import os
import tempfile
import time
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from benchmarks.scale.load import FallingCurves, begin
from shoestring import policies
from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.runners.simulated.simulated_runner import SimulatedRunner
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.sql import SqlStore
from shoestring.study.loop import run_in_memory

WORKERS = 100
_POINTS = 20  # of the figure


class Growth(NamedTuple):
    """One point for each twentieth of the study.

    A point holds the receipts so far, the milliseconds for each entry since the last point, and the bytes for each entry.
    """

    store: str
    receipts: list[int]
    ms: list[float]
    bytes: list[float]

    @property
    def time_growth(self) -> float:
        return _last_over_early(self.ms)

    @property
    def memory_growth(self) -> float:
        return _last_over_early(self.bytes)


def measure_growth(receipts: int, on_disk: bool) -> Growth:
    """Run the study in a new process, so that its memory can be measured."""
    with get_context("spawn").Pool(1) as pool:
        growth = pool.apply(_run, (receipts, on_disk))
    print(
        f"{receipts} receipts, {growth.store}: {growth.ms[0]:.3f} ms an entry at first, {growth.ms[-1]:.3f} at last "
        f"({growth.time_growth:.2f} times), {growth.bytes[-1]:.0f} bytes an entry ({growth.memory_growth:.2f} times)",
        flush=True,
    )
    return growth


def _run(receipts: int, on_disk: bool) -> Growth:
    """Run `asha`, which writes most entries per step, on SQLite; the memory is that of the whole process."""
    points: list[tuple[int, int, float, int]] = []

    def look(ledger: Ledger, entry: Entry | None) -> None:
        if ledger.state.receipts >= len(points) * receipts / _POINTS:
            points.append((ledger.state.receipts, len(ledger), time.process_time(), _resident_bytes()))

    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{Path(folder)}/scale.db") if on_disk else MemoryStore()
        runner = SimulatedRunner(FallingCurves(), WORKERS)
        run_in_memory(begin("asha", receipts, WORKERS), policies.make("asha"), runner, store=store, observe=look)
        if isinstance(store, SqlStore):
            store.close()
    start = points[0]
    return Growth(
        "sqlite" if on_disk else "memory",
        [point[0] for point in points[1:]],
        [1e3 * (after[2] - before[2]) / (after[1] - before[1]) for before, after in pairwise(points)],
        [(point[3] - start[3]) / (point[1] - start[1]) for point in points[1:]],
    )


def _last_over_early(numbers: list[float]) -> float:
    """Return the mean of the last fifth divided by that of the second one; the first fifth includes imports and caches."""
    fifth = max(1, len(numbers) // 5)
    early, last = _mean(numbers[fifth : 2 * fifth]), _mean(numbers[-fifth:])
    return last / early if early > 0 else 1.0


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / max(1, len(numbers))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
