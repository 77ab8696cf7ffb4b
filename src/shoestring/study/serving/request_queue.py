"""A queue of requests from many threads; one thread answers them in the order in which they arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from shoestring.errors import StoreError
from shoestring.study.serving.session import ServeSession


class RequestQueue:
    """Runs the requests of a session in batches, in a thread of its own. Leaving the `with` block also closes the session."""

    def __init__(self, session: ServeSession) -> None:
        self.session = session
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed, self._is_closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="shoestring-serve", daemon=True)
        self._thread.start()

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *raised: object) -> None:
        """Finish the running batch, and answer the waiting requests with an error; their workers send them again later."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()
        for _, answer in self._waiting:
            answer.set_exception(
                StoreError("the server is closing: nothing was done, send the same request again later")
            )
        self.session.close()

    def call(self, request: Callable[[], Any], timeout_s: float) -> Any:
        """Run a method of the session in the thread, and return its answer; raise TimeoutError after `timeout_s`."""
        answer: Future[Any] = Future()
        with self._changed:
            self._waiting.append((request, answer))
            self._changed.notify()
        return answer.result(timeout=timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                requests = [request for request, _ in self._waiting]
            try:
                results = self.session.run_batch(requests)
            except Exception as error:  # nothing could be stored, so all of them fail
                results = [error] * len(requests)
            for result in results:
                with self._changed:
                    _, answer = self._waiting.popleft()
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
