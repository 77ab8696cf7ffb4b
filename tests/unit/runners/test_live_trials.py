"""Paused trials stay in memory, as many as there is room for, each with its own random generators."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shoestring.runners.local import free_memory as memory
from shoestring.runners.local.free_memory import MemoryState, is_out_of_memory, read_memory
from shoestring.runners.local.live_trials import LiveTrials
from shoestring.runners.runner import DEFAULT_LIVE_TRIALS
from shoestring.runners.training.code import LiveTrial

MB = 2**20


def counting(config: Any) -> Iterator[float]:
    while True:
        yield 1.0


class Machine:
    """A machine of 1000 MB. Trials take `sizes` when they begin; memory of dropped trials is free again."""

    def __init__(self, *sizes: int, others: int = 0) -> None:
        self.sizes, self.others = sizes, others
        self.lives = LiveTrials(read=self.read)
        self.lives.start()
        self.lives._read_again_at = float("-inf")

    def read(self) -> list[MemoryState]:
        used = sum(self.sizes[trial] for trial, _ in self.lives) if hasattr(self, "lives") else 0
        return [MemoryState(100 * MB + used * MB, (1000 - self.others - used) * MB, 1000 * MB)]

    def train_all(self) -> list[int]:
        """Return how many trials were in memory after the first order of each trial."""
        alive = []
        for trial in range(len(self.sizes)):
            self.lives.switch_to(trial, 0, lambda: LiveTrial(counting, {}))
            self.lives._read_again_at = float("-inf")  # reading the memory takes no time on this machine
            for surplus, _ in self.lives.find_surplus():
                self.lives.drop(surplus)
            alive.append(len(self.lives))
        return alive


def test_a_quarter_of_the_memory_stays_free_after_one_more_trial() -> None:
    assert Machine(*[100] * 10).train_all() == [1, 2, 3, 4, 5, 6, 6, 6, 6, 6]


def test_small_trials_all_stay_in_memory() -> None:
    assert Machine(*[1] * 200).train_all()[-1] == 200


def test_a_trial_of_half_the_memory_stays_alone() -> None:
    assert Machine(500, 500, 500).train_all() == [1, 1, 1]


def test_shared_data_loaded_by_the_first_trial_stops_counting() -> None:
    assert Machine(300, *[20] * 12).train_all()[-1] == 13


def test_one_trial_stays_when_other_processes_use_the_memory() -> None:
    assert Machine(*[10] * 5, others=800).train_all() == [1, 1, 1, 1, 1]


def test_the_least_recently_used_are_moved_first() -> None:
    lives = LiveTrials(limit=2)
    for trial, resumable_step in ((0, 0), (1, 0), (0, 0), (2, 0)):
        lives.switch_to(trial, resumable_step, lambda: LiveTrial(counting, {}))
    assert [trial for trial, _ in lives.find_surplus()] == [1]


def test_eight_trials_stay_where_memory_cannot_be_measured() -> None:
    lives = LiveTrials(read=list)
    lives.start()
    for trial in range(DEFAULT_LIVE_TRIALS + 3):
        lives.switch_to(trial, 0, lambda: LiveTrial(counting, {}))
    assert [trial for trial, _ in lives.find_surplus()] == [0, 1, 2]


def test_reading_memory_takes_a_hundredth_of_the_time() -> None:
    reads: list[None] = []

    def read() -> list[MemoryState]:
        reads.append(None)
        return [MemoryState(1, 900, 1000)]

    lives = LiveTrials(read=read)
    for trial in range(50):
        lives.switch_to(trial, 0, lambda: LiveTrial(counting, {}))
        lives.find_surplus()
        lives._read_again_at = float("inf")  # as if reading had taken long
    assert len(reads) == 1


def test_each_trial_has_the_random_generators_to_itself() -> None:
    def noisy(config: Any) -> Iterator[float]:
        random.seed(config["seed"])
        np.random.seed(config["seed"])
        while True:
            yield random.random() + np.random.random()

    def train(*trials: int) -> dict[int, list[float | None]]:
        lives, values = LiveTrials(limit=9), dict[int, list[float | None]]()
        for trial in trials:
            values_of_trial = values.setdefault(trial, [])
            live = lives.switch_to(trial, len(values_of_trial), lambda seed=trial: LiveTrial(noisy, {"seed": seed}))  # type: ignore[misc]
            values_of_trial.append(live.advance({"seed": trial}, 9, True).value)
        return values

    assert train(0, 1, 0, 2, 2, 1, 0, 1) == {0: train(0, 0, 0)[0], 1: train(1, 1, 1)[1], 2: train(2, 2)[2]}


# how memory is measured ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="only Linux shows how much memory is left")
def test_the_memory_of_this_process_is_measured() -> None:
    (before, *_) = read_memory()
    array = np.ones(64 * MB // 8)
    (after, *_) = read_memory()
    assert after.used - before.used > 0.9 * array.nbytes
    assert 0 < after.available < after.total


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        (
            "0::/job",
            {"job/memory.max": "1000", "job/memory.current": "700", "job/memory.stat": "inactive_file 100"},
            [(1000, 600)],
        ),
        (
            "0::/job",
            {"job/memory.max": "max", "memory.max": "500", "memory.current": "50", "memory.stat": "anon 1"},
            [(500, 50)],
        ),
        (
            "4:memory:/job\n3:cpuset:/",
            {
                "memory/job/memory.limit_in_bytes": "800",
                "memory/job/memory.usage_in_bytes": "300",
                "memory/job/memory.stat": "total_inactive_file 30\ncache 7",
            },
            [(800, 270)],
        ),
        ("0::/elsewhere", {}, []),
    ],
)
def test_the_limits_of_containers_are_read(
    groups: str, files: dict[str, str], expected: list[tuple[int, int]], tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(content)
    (tmp_path / "own").write_text(groups)
    assert list(memory._container_limits(tmp_path / "fs", tmp_path / "own")) == expected


def test_gpus_are_read_when_pytorch_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_allocated=lambda device: (30, 0)[device],
        memory_reserved=lambda device: 50,
        mem_get_info=lambda device: (40, 100),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert memory._read_gpus() == [MemoryState(used=30, available=60, total=100)]
    cuda.is_initialized = lambda: False
    assert memory._read_gpus() == []


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (type("OutOfMemoryError", (RuntimeError,), {})("no room"), True),
        (RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), True),
        (OSError(12, "Cannot allocate memory"), True),
        (RuntimeError("shapes (3,) and (4,) do not match"), False),
    ],
)
def test_out_of_memory_errors_are_recognised(error: BaseException, expected: bool) -> None:
    assert is_out_of_memory(error) is expected
