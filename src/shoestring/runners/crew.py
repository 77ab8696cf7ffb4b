"""The worker processes that no trial has: spare ones, and those on their way out.

One spare process waits with its imports done, so that a trial need not wait for them. A process that is not needed any
more may end in its own time; it is cleared away when it has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoestring.core.space import Config
from shoestring.errors import RunnerError
from shoestring.runners.worker import UNGUARDED, Worker, stop

STOP_GRACE_S = 0.3  # between SIGTERM and SIGKILL
_MOST_SPARES = 4  # idle processes with all imports done: more would only hold memory
_END_GRACE_S = 1.0  # for processes with nothing to do


class Crew:
    """Spare worker processes, and those on their way out."""

    def __init__(self, target: bytes) -> None:
        self._target = target
        self.spares: list[Worker] = []
        self._leaving: list[Worker] = []

    def first(self, count: int) -> bool | None:
        """Wait for so many processes to import the training code; tells whether that code can save, if it is known.

        Code that cannot be had raises here, before anything is bought.
        """
        saves: bool | None = None
        self.spares += [Worker(self._target) for _ in range(count)]
        for spare in self.spares:
            message = spare.receive()
            if message is None or message["is"] == "unusable":
                raise RunnerError(_explain_unusable(spare, message))
            self.greet(spare, message)
            saves = message["can_save"]
        return saves

    @property
    def has_ready(self) -> bool:
        return any(spare.ready and spare.alive for spare in self.spares)

    def greet(self, worker: Worker, message: Mapping[str, Any]) -> None:
        worker.ready, worker.reusable = True, message["reusable"]

    def take(self, config: Config, step: int, checkpoint: Path | None) -> Worker:
        """A process in which a trial goes on from `step`; what it is told waits until its imports are done."""
        worker = next((w for w in self.spares if w.ready and w.alive), None) or next(iter(self.spares), None)
        if worker is None:
            worker = Worker(self._target)
        else:
            self.spares.remove(worker)
        worker.send("begin", config=config, step=step, checkpoint=str(checkpoint) if checkpoint else None)
        return worker

    def refill(self) -> None:
        if not self.spares:
            self.spares.append(Worker(self._target))

    def take_back(self, worker: Worker) -> None:
        """Its trial is frozen on disk, or lost: another trial may have its process, with all imports done."""
        if worker.alive and len(self.spares) < _MOST_SPARES:
            self.spares.append(worker)
        else:
            self.dismiss(worker)

    def dismiss(self, worker: Worker) -> None:
        worker.send("end")
        self._leaving.append(worker)

    def bury(self, worker: Worker) -> None:
        """A spare process that died."""
        self.spares = [spare for spare in self.spares if spare is not worker]
        stop([worker], STOP_GRACE_S)

    def clear_away(self) -> None:
        self._leaving = [worker for worker in self._leaving if not worker.join(0.0)]

    def close(self, others: Sequence[Worker]) -> None:
        """End everybody, `others` too; no process is left."""
        for worker in [*self.spares, *others]:
            self.dismiss(worker)
        self.spares = []
        deadline = time.monotonic() + _END_GRACE_S
        stop([worker for worker in self._leaving if not worker.join(deadline - time.monotonic())], STOP_GRACE_S)
        self._leaving = []


def _explain_unusable(spare: Worker, message: Mapping[str, Any] | None) -> str:
    if message is not None:
        return f"the training code cannot be imported in a worker process: {message['text']}: make it importable"
    how = spare.how_it_ended()
    if spare.exit_code == UNGUARDED:
        return (
            "the main script tunes while it is imported, which every worker process has to do: "
            'put the call under  if __name__ == "__main__":'
        )
    return f"a worker process {how} while it imported the main script: see its message above"
