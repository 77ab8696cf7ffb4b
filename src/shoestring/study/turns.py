"""Requests from many threads take turns at a desk: first come, first served, by one thread that decides for all."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from shoestring.errors import StoreError
from shoestring.study.desk import Desk


class Turns:
    """`with Turns(desk) as turns`: closes the desk too."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._news, self._is_closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="shoestring-desk", daemon=True)
        self._thread.start()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *raised: object) -> None:
        """Those whose turn has begun are answered; the others are to ask again when somebody serves again."""
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join()
        for _, answer in self._waiting:
            answer.set_exception(StoreError("the server is closing: send the same again later, nothing was done"))
        self.desk.close()

    def take(self, work: Callable[[], Any], timeout_s: float) -> Any:
        """What a method of the desk answers, when its turn has come; TimeoutError if that takes too long."""
        answer: Future[Any] = Future()
        with self._news:
            self._waiting.append((work, answer))
            self._news.notify()
        return answer.result(timeout=timeout_s)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                works = [work for work, _ in self._waiting]
            try:
                answers = self.desk.take_turns(works)
            except Exception as error:  # nothing could be stored: all of them are told
                answers = [error] * len(works)
            for result in answers:
                with self._news:
                    _, answer = self._waiting.popleft()
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
