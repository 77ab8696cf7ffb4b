"""The worker processes that have no trial: spare ones, and those that are about to end.

One spare process waits with its imports done, so that a trial need not wait for them. Where devices are named, there is one for
each device. A process that is not needed any more is asked to end; the runner does not wait for that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

from shoestring.core.ledger.order_closing import MAX_DEATHS
from shoestring.errors import RunnerError, WorkersDied
from shoestring.runners.process.process_group import GroupGuard
from shoestring.runners.process.worker import UNGUARDED, WorkerProcess, stop

STOP_GRACE_S = 0.3  # between SIGTERM and SIGKILL
_MAX_SPARES = 4  # idle processes of a device with all imports done: more would only hold memory
_END_GRACE_S = 1.0  # for processes with nothing to do
_POLL_S = 0.2  # how often to check whether a process that imports still lives


class SpareWorkers:
    """Spare worker processes, and those that are about to end."""

    def __init__(self, target: bytes) -> None:
        self._target = target
        self.spares: list[WorkerProcess] = []
        self._ending: list[WorkerProcess] = []
        self.guard = GroupGuard()

    def start_first(
        self, devices: Sequence[str], start_by: float = math.inf, hung_after_s: float | None = None
    ) -> tuple[bool | None, float]:
        """Start a process on each of these devices, all at once, and wait until they have imported the training code.

        Return whether that code can save, None if that is not known yet, and how many seconds the slowest process took.
        Code that cannot be imported raises a RunnerError here, before anything is trained. A process that dies meanwhile is
        replaced; the third death raises WorkersDied, and so does a process that imports for longer than `hung_after_s`. At the
        deadline `start_by`, a moment of the monotonic clock, this returns although processes are not ready.
        """
        can_save, longest_s, deaths = None, 0.0, 0
        self.spares += [self._start(device) for device in devices]
        waiting = list(self.spares)
        while waiting:
            spare = waiting.pop(0)
            if not _wait_for_answer(spare, start_by, hung_after_s):
                return can_save, longest_s
            message = spare.receive(0.0)
            if message is None:
                deaths += 1
                how = _explain_death(spare)
                self.remove(spare)
                if deaths >= MAX_DEATHS:
                    raise WorkersDied(how)
                waiting.append(self._start(spare.device))
                self.spares.append(waiting[-1])
                continue
            if message["is"] == "unusable":
                raise RunnerError(
                    f"the training code cannot be imported in a worker process: {message['text']}: make it importable"
                )
            spare.note_ready(message)
            can_save = message["can_save"]
            longest_s = max(longest_s, time.monotonic() - spare.started_at)
        return can_save, longest_s

    @property
    def ready_devices(self) -> set[str]:
        """The devices for which a spare process has its imports done."""
        return {spare.device for spare in self.spares if spare.ready and spare.alive}

    def take(self, device: str, **begin: Any) -> WorkerProcess:
        """Return a process in which a trial begins. The message to it waits until its imports are done."""
        fitting = [spare for spare in self.spares if spare.device == device]
        worker = next((w for w in fitting if w.ready and w.alive), None) or next(iter(fitting), None)
        if worker is None:
            worker = self._start(device)
        else:
            self.spares.remove(worker)
        self.guard.watch_files(worker.group, begin["logs"])
        worker.send("begin", **begin)
        return worker

    def refill(self, device: str) -> None:
        """Start a spare process for this device if there is none."""
        if not any(spare.device == device for spare in self.spares):
            self.spares.append(self._start(device))

    def take_back(self, worker: WorkerProcess) -> None:
        """Take back the process of a trial that is saved or lost: another trial can use it without waiting for imports."""
        if worker.alive and sum(spare.device == worker.device for spare in self.spares) < _MAX_SPARES:
            self.spares.append(worker)
        else:
            self.end_later(worker)

    def end_later(self, worker: WorkerProcess) -> None:
        """Ask a process to end, without waiting for it."""
        worker.send("end")
        self._ending.append(worker)

    def remove(self, worker: WorkerProcess) -> None:
        """Forget a spare process that died."""
        self.spares = [spare for spare in self.spares if spare is not worker]
        stop([worker], STOP_GRACE_S)

    def clear_ended(self) -> None:
        self._ending = [worker for worker in self._ending if not worker.join(0.0)]

    def close(self, others: Sequence[WorkerProcess]) -> None:
        """End all processes, `others` too."""
        for worker in [*self.spares, *others]:
            self.end_later(worker)
        self.spares = []
        deadline = time.monotonic() + _END_GRACE_S
        stop([worker for worker in self._ending if not worker.join(deadline - time.monotonic())], STOP_GRACE_S)
        self._ending = []
        self.guard.close()

    def _start(self, device: str) -> WorkerProcess:
        return WorkerProcess(self._target, self.guard, device)


def _wait_for_answer(spare: WorkerProcess, start_by: float, hung_after_s: float | None) -> bool:
    """Wait until a process answers or dies; return False at the deadline, and raise WorkersDied if it hangs."""
    hung_at = math.inf if hung_after_s is None else spare.started_at + hung_after_s
    while not spare.connection.poll(max(0.0, min(_POLL_S, start_by - time.monotonic()))):
        now = time.monotonic()
        if now >= start_by:
            return False
        if now >= hung_at:
            raise WorkersDied(
                f"a worker process has imported the training code for {now - spare.started_at:.3g} s, which is over its limit: "
                "find out where it waits, or raise --hung-after"
            )
        if not spare.alive:  # its own children keep the pipe open
            break
    return True


def _explain_death(spare: WorkerProcess) -> str:
    """Return why a process that never became ready has ended; raise RunnerError if its main script is the cause."""
    how = spare.describe_exit()
    if spare.exit_code == UNGUARDED:
        raise RunnerError(
            "the main script starts tuning when it is imported, and every worker process has to import it: "
            'put the call under  if __name__ == "__main__":'
        )
    return f"{MAX_DEATHS} worker processes died while they imported the training code; the last one {how}: see above for messages"
