"""The trials that are alive in this process: one is trained, the others are paused in memory, as many as there is room for.

Resuming a trial from memory costs nothing; resuming it from disk costs a save and a load. So a trial is moved to disk only when
there are more than the user's limit, or when less than a quarter of the memory would be left after one more trial has begun. The
size of a trial is measured: it is the growth of this process with each trial that began. Where memory cannot be measured,
eight are kept. If training code runs out of memory all the same, it is tried again without the others: see `LocalRunner`.

Trials that take turns do not disturb each other: each has its own state of the global random generators.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from shoestring.runners.local.free_memory import MemoryState, read_memory
from shoestring.runners.runner import DEFAULT_LIVE_TRIALS
from shoestring.runners.training.code import LiveTrial
from shoestring.runners.training.random_state import RandomState

_FREE_SHARE = 0.25  # of all memory: room for the peak of a step, and for other processes
# Memory is read again after this many times the duration of the last reading, so readings take at most 1 % of the time.
_PAUSE_PER_READING = 100


class LiveTrials:
    """Live trials by number, the least recently used first."""

    def __init__(self, limit: int | None = None, read: Callable[[], list[MemoryState]] = read_memory) -> None:
        self._limit, self._read = limit, read
        self._by_trial: dict[int, LiveTrial] = {}
        self._random: dict[int, RandomState] = {}  # of the paused trials
        self._training: int | None = None
        self._last_states: list[MemoryState] = []  # at the last reading
        self._size: list[int] = []  # the largest size of a trial, in each kind of memory
        self._begun = 0  # trials that began since the last reading
        self._readings = 0
        self._read_again_at = 0.0

    def start(self) -> None:
        """Read the memory before there are any trials."""
        if self._limit is None:
            self._last_states = self._read()

    def __len__(self) -> int:
        return len(self._by_trial)

    def __iter__(self) -> Iterator[tuple[int, LiveTrial]]:
        return iter(list(self._by_trial.items()))

    def __reversed__(self) -> Iterator[tuple[int, LiveTrial]]:
        """Iterate over the trials, the most recently used first."""
        return reversed(self._by_trial.items())

    def __getitem__(self, trial: int) -> LiveTrial:
        return self._by_trial[trial]

    def has(self, trial: int, step: int) -> bool:
        """Return whether this trial is alive after this step."""
        return trial in self._by_trial and self._by_trial[trial].step == step

    def switch_to(self, trial: int, resumable_step: int, resume: Callable[[], LiveTrial]) -> LiveTrial:
        """Pause the trial in training. Return this one after `resumable_step`, from memory if it is there, else from `resume`."""
        live = self._by_trial.pop(trial, None)
        if self._training is not None and self._training != trial:
            self._random[self._training] = RandomState.take()
        if live is None or live.step != resumable_step:
            if live is not None:
                live.close()
            self._random.pop(trial, None)
            live = resume()
            self._begun += 1
        elif (random_state := self._random.pop(trial, None)) is not None:
            random_state.restore()
        self._by_trial[trial], self._training = live, trial
        return live

    def drop(self, trial: int) -> None:
        """Forget a trial, if it is alive."""
        if (live := self._by_trial.pop(trial, None)) is not None:
            live.close()
        self._random.pop(trial, None)
        if self._training == trial:
            self._training = None

    def clear(self) -> None:
        for trial, _ in self:
            self.drop(trial)

    def find_surplus(self) -> list[tuple[int, LiveTrial]]:
        """Return the trials for which there is no room, the least recently used first; never the trial that was trained last."""
        most = self._limit if self._limit is not None else self._count_fitting()
        return list(self)[: max(0, len(self) - max(1, most))]

    def lower_limit(self) -> None:
        """Keep fewer trials alive from now on, because there was not enough memory for all of them."""
        self._limit = max(1, len(self) - 1)

    def _count_fitting(self) -> int:
        now = time.monotonic()
        if not self._begun or now < self._read_again_at:
            return len(self)
        states = self._read()
        if not states:
            return DEFAULT_LIVE_TRIALS
        self._measure_size(states)
        took_s = time.monotonic() - now
        self._read_again_at = now + took_s * (1 + _PAUSE_PER_READING)
        return len(self) - max(_count_surplus(state, size) for state, size in zip(states, self._size, strict=True))

    def _measure_size(self, states: list[MemoryState]) -> None:
        """Measure the largest trial. The second reading replaces the first, which may include data that all trials share."""
        self._readings += 1
        if self._readings <= 2 or len(self._size) != len(states):
            self._size = [0] * len(states)
        for kind, (old, new) in enumerate(zip(self._last_states, states, strict=False)):
            self._size[kind] = max(self._size[kind], (new.used - old.used) // self._begun)
        self._last_states, self._begun = states, 0


def _count_surplus(state: MemoryState, size: int) -> int:
    """Return how many trials of this size must go so that one more would still leave enough memory."""
    lacking = _FREE_SHARE * state.total - (state.available - size)
    if lacking <= 0:
        return 0
    return max(1, int(-(-lacking // size))) if size > 0 else 1
