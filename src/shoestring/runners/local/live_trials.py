"""The trials that are alive in this process: one is trained, the others rest in memory, as many as it comfortably holds.

Thawing a trial that rests here costs nothing; from disk it costs a save and a load. So a trial is saved and put away only
when there are more than the user's limit, or when less than a quarter of the memory would be left once another one of them
has come. How much one takes is measured: the growth of this process with each that began. Where memory cannot be measured
eight are kept. Training code that still runs out of memory is tried again without the others: see `Local`.

Trials that take turns do not disturb each other: each has the global random generators to itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from shoestring.runners.local.free_memory import Gauge, read_gauges
from shoestring.runners.runner import LIVE_UNMEASURED
from shoestring.runners.training.code import Live
from shoestring.runners.training.random_state import RandomState

_FREE_SHARE = 0.25  # of all memory: room for the peak of a step, and for others
_LOOK_SHARE = 100  # memory is looked at again after so many times the duration of the last look


class LiveTrials:
    """Live trials by number, the least recently used first."""

    def __init__(self, limit: int | None = None, read: Callable[[], list[Gauge]] = read_gauges) -> None:
        self._limit, self._read = limit, read
        self._by_trial: dict[int, Live] = {}
        self._random: dict[int, RandomState] = {}  # of those that rest
        self._training: int | None = None
        self._seen: list[Gauge] = []  # at the last look
        self._size: list[int] = []  # the most that one trial has taken, of each kind of memory
        self._began = 0  # trials since the last look
        self._looks = 0
        self._look_again_at = 0.0

    def start(self) -> None:
        """Look at memory before there are any trials."""
        if self._limit is None:
            self._seen = self._read()

    def __len__(self) -> int:
        return len(self._by_trial)

    def __iter__(self) -> Iterator[tuple[int, Live]]:
        return iter(list(self._by_trial.items()))

    def __reversed__(self) -> Iterator[tuple[int, Live]]:
        """The most recently used first."""
        return reversed(self._by_trial.items())

    def __getitem__(self, trial: int) -> Live:
        return self._by_trial[trial]

    def train(self, trial: int, held: int, thaw: Callable[[], Live]) -> Live:
        """The trial as it is after step `held`, from memory if it is there; all others rest."""
        live = self._by_trial.pop(trial, None)
        if self._training is not None and self._training != trial:
            self._random[self._training] = RandomState.take()
        if live is None or live.step != held:
            if live is not None:
                live.close()
            self._random.pop(trial, None)
            live = thaw()
            self._began += 1
        elif (random_state := self._random.pop(trial, None)) is not None:
            random_state.put_back()
        self._by_trial[trial], self._training = live, trial
        return live

    def drop(self, trial: int) -> None:
        """Forget it; one that was just put away is gone already."""
        if (live := self._by_trial.pop(trial, None)) is not None:
            live.close()
        self._random.pop(trial, None)
        if self._training == trial:
            self._training = None

    def clear(self) -> None:
        for trial, _ in self:
            self.drop(trial)

    def find_surplus(self) -> list[tuple[int, Live]]:
        """Those to be put away, the least recently used first; never the one that was trained last."""
        most = self._limit if self._limit is not None else self._count_comfortable()
        return list(self)[: max(0, len(self) - max(1, most))]

    def keep_fewer(self) -> None:
        """There was no memory for so many."""
        self._limit = max(1, len(self) - 1)

    def _count_comfortable(self) -> int:
        now = time.monotonic()
        if not self._began or now < self._look_again_at:
            return len(self)
        gauges = self._read()
        if not gauges:
            return LIVE_UNMEASURED
        self._measure_size(gauges)
        took_s = time.monotonic() - now
        self._look_again_at = now + took_s * (1 + _LOOK_SHARE)
        return len(self) - max(_count_over(gauge, size) for gauge, size in zip(gauges, self._size, strict=True))

    def _measure_size(self, gauges: list[Gauge]) -> None:
        """What the first trial takes may be data that all of them share: it counts until others have been seen."""
        self._looks += 1
        if self._looks <= 2 or len(self._size) != len(gauges):
            self._size = [0] * len(gauges)
        for kind, (old, new) in enumerate(zip(self._seen, gauges, strict=False)):
            self._size[kind] = max(self._size[kind], (new.used - old.used) // self._began)
        self._seen, self._began = gauges, 0


def _count_over(gauge: Gauge, size: int) -> int:
    """How many trials of this size must go so that another one would still leave enough."""
    lacking = _FREE_SHARE * gauge.total - (gauge.available - size)
    if lacking <= 0:
        return 0
    return max(1, int(-(-lacking // size))) if size > 0 else 1
