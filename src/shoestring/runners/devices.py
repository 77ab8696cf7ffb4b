"""Workers by number: each is a slot that one order at a time may have, with a device of its own where devices are named.

Slot i works on `devices[i % n]`. The device is told through CUDA_VISIBLE_DEVICES and SHOESTRING_DEVICE, both set before
any import; a device named twice is shared by two slots.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence

from shoestring.core.ledger.entries import Order
from shoestring.core.space.space import Config
from shoestring.errors import RunnerError
from shoestring.runners.runner import News, note_release

Devices = str | Sequence[str | int]
_DEVICE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/-]*")


def parse_devices(given: Devices | None) -> tuple[str, ...]:
    """`"0,1"` or `["0", 1]` as names of devices; empty for None."""
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
    """As many as were asked for, else one for each device that is named."""
    return workers if workers is not None else max(1, len(devices))


def device_variables(device: str) -> dict[str, str]:
    """What a process that works on this device finds in its environment."""
    return {"CUDA_VISIBLE_DEVICES": device, "SHOESTRING_DEVICE": device} if device else {}


class Slots:
    """Which workers are free."""

    def __init__(self, workers: int, devices: Sequence[str] = ()) -> None:
        self.devices = [devices[i % len(devices)] if devices else "" for i in range(workers)]
        self._taken: set[int] = set()

    def find_free(self, device: str | None = None, prefer: Container[str] = ()) -> int | None:
        """A free slot, on this very device if one is named; one whose device is preferred comes first."""
        free = [
            slot
            for slot, own in enumerate(self.devices)
            if slot not in self._taken and (device is None or own == device)
        ]
        return min(free, key=lambda slot: (self.devices[slot] not in prefer, slot), default=None)

    def take(self, slot: int) -> None:
        assert slot not in self._taken
        self._taken.add(slot)

    def give_back(self, slot: int) -> None:
        self._taken.discard(slot)

    def name_worker(self, slot: int) -> str:
        """For receipts: a number from 1 where there are several workers."""
        return str(slot + 1) if len(self.devices) > 1 else ""


class WaitingOrders:
    """Orders for which no worker was free when they were submitted: a study that had more workers leaves more open."""

    def __init__(self) -> None:
        self._by_number: dict[int, tuple[Order, int, Sequence[Config]]] = {}

    def __iter__(self) -> Iterator[tuple[Order, int, Sequence[Config]]]:
        """(order, held, former configs), as they were submitted."""
        return iter(list(self._by_number.values()))

    def put(self, order: Order, held: int, former: Sequence[Config]) -> None:
        """Again, when its trial is lost meanwhile: what counts is the last time."""
        self._by_number[order.number] = (order, held, former)

    def remove(self, order: Order) -> None:
        del self._by_number[order.number]

    def release(self, why: str) -> list[News]:
        """Give them all up."""
        given_up: list[News] = [note_release(order, why) for order, _, _ in self]
        self.clear()
        return given_up

    def clear(self) -> None:
        self._by_number.clear()
