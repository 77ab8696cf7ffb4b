"""Requests from many threads, answered by one thread in the order in which they arrive."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from shoestring.errors import StoreError
from shoestring.study.serving.session import ServeSession


class RequestQueue:
    """A thread that runs the requests of a session in batches. Leaving the `with` block closes the session too."""

    def __init__(self, session: ServeSession) -> None:
        self.session = session
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._changed, self._is_closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="shoestring-serve", daemon=True)
        self._thread.start()

    def __enter__(self) -> RequestQueue:
        return self

    def __exit__(self, *raised: object) -> None:
        """Answer the requests of the running batch, and refuse the others: their workers send them again later."""
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
        """Return the answer of a method of the session; TimeoutError when it takes longer than `timeout_s`."""
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
            except Exception as error:  # nothing could be stored: all of them fail
                results = [error] * len(requests)
            for result in results:
                with self._changed:
                    _, answer = self._waiting.popleft()
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
