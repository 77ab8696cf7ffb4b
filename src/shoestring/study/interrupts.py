"""Let Ctrl-C end a run in order: the first one asks the run to stop, and the second one raises KeyboardInterrupt.

The first signal raises nothing. So training code that catches KeyboardInterrupt cannot swallow it, and the step under way is
finished as if nothing had happened. The loop then ends the run and pauses the trials.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any


@contextlib.contextmanager
def stop_on_signals(
    received: list[int], numbers: Sequence[int], announce: Callable[[str], None], *, finishes_step: bool
) -> Iterator[None]:
    """Append these signals to `received` when they come; raise KeyboardInterrupt at the second one and at all later ones.

    The run reads `received` and ends: at once, or after the present step if it runs in this process (`finishes_step`).
    """

    def handle(number: int, frame: Any) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        # The signal may come while the same stream is written to. Then no line is shown, but the training code must go on.
        with contextlib.suppress(Exception):
            announce("stopping after this step; press Ctrl-C again to stop at once" if finishes_step else "stopping")

    former = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def find_free_signals() -> tuple[int, ...]:
    """Return the signals that a call from Python may handle: Ctrl-C, if nothing else than Python itself handles it.

    Only the main thread can handle signals. An event loop (asyncio), a server or a GUI may have a handler of its own, which
    stays in place.
    """
    is_main = threading.current_thread() is threading.main_thread()
    return (signal.SIGINT,) if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler else ()
