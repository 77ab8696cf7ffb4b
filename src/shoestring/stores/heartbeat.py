"""The heartbeat of a running study: says every second that its process is alive."""

from __future__ import annotations

import threading
from collections.abc import Callable

HEARTBEAT_S = 1.0  # a crash is charged for no more than this beyond what was last heard
_EVERY_S = 0.8 * HEARTBEAT_S  # a little quicker, so that a slow disk leaves no time between two beats uncharged


class Heart(threading.Thread):
    """Says every second that this process is alive, also while a long step keeps the main thread busy."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="shoestring-heartbeat")
        self._beat, self._stopped = beat, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(_EVERY_S):
            self._beat()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
