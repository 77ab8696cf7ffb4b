"""The heartbeat of a running study: says every second that its process is alive, and takes to the disk what was stored.

What a run appends is in the store at once, so the death of its process loses nothing. It is on the disk a tenth of a second
later, with a heartbeat, while the next step is trained: waiting for it would cost short steps as much as training does. That
tenth is what a power cut may take.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

HEARTBEAT_S = 1.0  # a crash is charged for no more than this beyond what was last heard
_EVERY_S = 0.8 * HEARTBEAT_S  # a little quicker, so that a slow disk leaves no time between two beats uncharged
_TO_DISK_S = 0.1  # after something was stored


class Heart(threading.Thread):
    """Beats every second, also while a long step keeps the main thread busy, and soon after something was stored."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="shoestring-heartbeat")
        self._beat, self._stopped, self._is_wanted = beat, threading.Event(), threading.Event()
        self.start()

    def beat_soon(self) -> None:
        self._is_wanted.set()

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
