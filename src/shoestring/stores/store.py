"""What a study asks of a store.

Entries of one study are numbered 0, 1, 2, …; `append` is compare-and-swap on that number, so two writers can never both
be right. A `Lease` says who runs a study; whoever takes it over from the dead learns which steps were cut off.

The heartbeat of a running study: says every second that its process is alive, and takes to the disk what was stored.

What a run appends is in the store at once, so the death of its process loses nothing. Whoever trains for a tenth of a second or
longer waits until it is on the disk. Quicker steps do so ten times a second; what comes between goes to the disk with a beat,
within that tenth, while the next step is trained: waiting each time would cost as much as the training. That tenth of a second
is what a power cut may take of a study with such steps.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger


class Lease(Protocol):
    lost: bool  # somebody else has taken it over
    cut_off: Mapping[int, float]  # {order: seconds, some priced} of steps under way when its holder was last heard of

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        """Still here: the ledger has `entries`, and these orders have been at their present step so long."""
        ...

    def __enter__(self) -> Lease: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Heartbeat(NamedTuple):
    """What whoever runs the study says with an append: it is me, and these orders have been at their step so long."""

    lease: Lease
    running_s: Mapping[int, float]


class Store(Protocol):
    @property
    def where(self) -> str:
        """The address, for messages: without a password."""
        ...

    def studies(self) -> list[str]:
        """Names of all studies, in the order they were opened."""
        ...

    def load(self, study: str) -> Ledger | None:
        """The study's ledger with every checksum verified; None if there is no such study."""
        ...

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        """The ledger with whatever others have appended since."""
        ...

    def append(
        self, study: str, ledger: Ledger | None, *entries: Entry, beat: Heartbeat | None = None, durable: bool = True
    ) -> Ledger:
        """All entries or none, behind the last entry of `ledger` (None: a new study). Raises Conflict if it is not last.

        `beat` is stored with them, as a whole; if that lease is gone, nothing is stored and Leased is raised. What is not
        `durable` survives the end of this process, but a power cut may take the newest entries: for what can be computed
        again.
        """
        ...

    def settle(self, study: str, ledger: Ledger) -> None:
        """A run is over: do what makes the next opening of this ledger quick. May do nothing."""
        ...

    def lease(self, study: str) -> Lease:
        """Take the right to run this study. Raises Leased, naming the holder, if somebody alive has it."""
        ...


HEARTBEAT_S = 1.0  # a crash is charged for no more than this beyond what was last heard
_EVERY_S = 0.8 * HEARTBEAT_S  # a little quicker, so that a slow disk leaves no time between two beats uncharged
_TO_DISK_S = 0.1  # between two entries that wait for the disk


class Heart(threading.Thread):
    """Beats every second, also while a long step keeps the main thread busy, and soon after something was stored."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="shoestring-heartbeat")
        self._beat, self._stopped, self._is_wanted = beat, threading.Event(), threading.Event()
        self._on_disk_at = -math.inf
        self.start()

    def wait_for_disk(self) -> bool:
        """Whether the next entry is to wait for the disk; if not, a beat takes it there soon."""
        now = time.monotonic()
        if now - self._on_disk_at >= _TO_DISK_S:
            self._on_disk_at = now
            return True
        self._is_wanted.set()
        return False

    def run(self) -> None:
        while not self._stopped.is_set():
            if self._is_wanted.wait(_EVERY_S):
                self._stopped.wait(_TO_DISK_S)  # what comes meanwhile goes to the disk with it
                self._is_wanted.clear()
            if not self._stopped.is_set():
                self._beat()

    def stop(self) -> None:
        self._stopped.set()
        self._is_wanted.set()
        self.join()
