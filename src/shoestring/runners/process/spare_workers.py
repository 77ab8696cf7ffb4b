"""The worker processes that no trial has: spare ones, and those on their way out.

One spare process waits with its imports done, so that a trial need not wait for them; where devices are named, one for
each device. A process that is not needed any more may end in its own time; it is cleared away when it has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from shoestring.errors import RunnerError
from shoestring.runners.process.process_group import Watch
from shoestring.runners.process.worker import UNGUARDED, Worker, stop

STOP_GRACE_S = 0.3  # between SIGTERM and SIGKILL
_MOST_SPARES = 4  # idle processes of a device with all imports done: more would only hold memory
_END_GRACE_S = 1.0  # for processes with nothing to do


class Crew:
    """Spare worker processes, and those on their way out."""

    def __init__(self, target: bytes) -> None:
        self._target = target
        self.spares: list[Worker] = []
        self._leaving: list[Worker] = []
        self._watch = Watch()

    def first(self, devices: Sequence[str]) -> tuple[bool | None, float]:
        """Start a process for each of these, all at once, and wait until they have imported the training code.

        Tells whether that code can save, if it is known, and how long the slowest took. Code that cannot be had raises
        here, before anything is bought.
        """
        saves, longest_s = None, 0.0
        self.spares += [self._hire(device) for device in devices]
        for spare in self.spares:
            message = spare.receive()
            if message is None or message["is"] == "unusable":
                raise RunnerError(_explain_unusable(spare, message))
            self.greet(spare, message)
            saves = message["can_save"]
            longest_s = max(longest_s, time.monotonic() - spare.started_at)
        return saves, longest_s

    @property
    def ready_devices(self) -> set[str]:
        """Devices for which a spare process has its imports done."""
        return {spare.device for spare in self.spares if spare.ready and spare.alive}

    def greet(self, worker: Worker, message: Mapping[str, Any]) -> None:
        worker.ready, worker.reusable = True, message["reusable"]

    def take(self, device: str, **begin: Any) -> Worker:
        """A process in which a trial begins; what it is told waits until its imports are done."""
        fitting = [spare for spare in self.spares if spare.device == device]
        worker = next((w for w in fitting if w.ready and w.alive), None) or next(iter(fitting), None)
        if worker is None:
            worker = self._hire(device)
        else:
            self.spares.remove(worker)
        worker.send("begin", **begin)
        return worker

    def refill(self, device: str) -> None:
        if not any(spare.device == device for spare in self.spares):
            self.spares.append(self._hire(device))

    def take_back(self, worker: Worker) -> None:
        """Its trial is frozen on disk, or lost: another trial may have its process, with all imports done."""
        if worker.alive and sum(spare.device == worker.device for spare in self.spares) < _MOST_SPARES:
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
        self._watch.close()

    def _hire(self, device: str) -> Worker:
        return Worker(self._target, self._watch, device)


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
