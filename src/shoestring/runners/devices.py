"""The devices of this machine, and the workers that train on them.

Worker i trains on `devices[i % n]`. A process finds its device in CUDA_VISIBLE_DEVICES and SHOESTRING_DEVICE, which are set
before it imports anything. A device that is named twice is shared by two workers.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from shoestring.errors import RunnerError

Devices = str | Sequence[str | int]
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")


def parse_devices(given: Devices | None) -> tuple[str, ...]:
    """Return the names of devices given as `"0,1"` or `["0", 1]`; an empty tuple for None."""
    if given is None:
        return ()
    if not isinstance(given, str | Sequence):
        raise RunnerError(f"the devices {given!r} cannot be read: write 0,1 or a list of numbers")
    names = [str(name).strip() for name in (given.split(",") if isinstance(given, str) else given)]
    if not names:
        raise RunnerError("the devices are an empty list: name one or more, as in 0,1, or leave them out")
    for name in names:
        if not _DEVICE.fullmatch(name):
            raise RunnerError(
                f"the devices {given!r} hold {name!r}: a device is a number or a name like GPU-1a2b; write 0,1"
            )
    return tuple(names)


def count_workers(workers: int | None, devices: Sequence[str]) -> int:
    """Return the number of workers: as many as were asked for, else one for each named device."""
    return workers if workers is not None else max(1, len(devices))


def device_variables(device: str) -> dict[str, str]:
    """Return the environment variables of a process that trains on this device."""
    return {"CUDA_VISIBLE_DEVICES": device, "SHOESTRING_DEVICE": device} if device else {}


class NumberedWorkers:
    """The workers of this machine by number, from 0: their devices, and which of them are free."""

    def __init__(self, workers: int, devices: Sequence[str] = ()) -> None:
        self.devices = [devices[i % len(devices)] if devices else "" for i in range(workers)]
        self._busy: set[int] = set()

    def find_free(self, device: str | None = None, prefer: Container[str] = ()) -> int | None:
        """Return a free worker, on this `device` if one is named; None if there is none.

        Workers whose device is in `prefer` come first.
        """
        free = [
            worker
            for worker, own_device in enumerate(self.devices)
            if worker not in self._busy and (device is None or own_device == device)
        ]
        return min(free, key=lambda worker: (self.devices[worker] not in prefer, worker), default=None)

    def occupy(self, worker: int) -> None:
        assert worker not in self._busy
        self._busy.add(worker)

    def release(self, worker: int) -> None:
        self._busy.discard(worker)

    def name_of(self, worker: int) -> str:
        """Return the name of a worker for receipts: a number from 1, or nothing where there is only one worker."""
        return str(worker + 1) if len(self.devices) > 1 else ""
