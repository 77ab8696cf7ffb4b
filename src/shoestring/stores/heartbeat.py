"""The heartbeat of a running study: says every second that its process is alive, and takes to the disk what was stored.

What a run appends is in the store at once, so the death of its process loses nothing. Whoever trains for a tenth of a second or
longer waits until it is on the disk. Quicker steps do so ten times a second; what comes between goes to the disk with a beat,
within that tenth, while the next step is trained: waiting each time would cost as much as the training. That tenth of a second
is what a power cut may take of a study with such steps.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable

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
