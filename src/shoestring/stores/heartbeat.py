"""The heartbeat of a running study: says every few seconds that its process is alive."""

from __future__ import annotations

import threading
from collections.abc import Callable

HEARTBEAT_S = 5.0  # at most this much of a step that a crash cuts off goes uncharged


class Heart(threading.Thread):
    """Says every few seconds that this process is alive, also while a long step keeps the main thread busy."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="shoestring-heartbeat")
        self._beat, self._stopped = beat, threading.Event()
        self.start()

    def run(self) -> None:
        while not self._stopped.wait(HEARTBEAT_S):
            self._beat()

    def stop(self) -> None:
        self._stopped.set()
        self.join()
