"""How much memory is left for frozen trials that stay alive: of the machine, of the container, of GPUs that PyTorch uses.

Read from Linux's own accounts; elsewhere it is not known. Other frameworks take a GPU's memory as they like and do not say
what of it is free: there only running out of it tells.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_OUT_OF_MEMORY = ("out of memory", "resource_exhausted", "cannot allocate memory", "unable to allocate")


class Gauge(NamedTuple):
    """One kind of memory, in bytes."""

    used: int  # by this process
    available: int  # to it, as things are
    total: int


def read_gauges() -> list[Gauge]:
    """Main memory first, then GPUs; empty where main memory cannot be measured."""
    main = _main_memory()
    return [] if main is None else [main, *_gpus()]


def is_out_of_memory(error: BaseException) -> bool:
    """Whether training code has found no memory, of the machine or of a GPU: by what Python and the frameworks say."""
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, MemoryError) or "outofmemory" in text or any(words in text for words in _OUT_OF_MEMORY)


def give_memory_back() -> None:
    """What nobody refers to any more, and what PyTorch keeps for later."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _main_memory() -> Gauge | None:
    try:
        used = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        machine = {line[0]: int(line[1]) * 1024 for line in lines}
        available, total = machine["MemAvailable:"], machine["MemTotal:"]
    except (OSError, ValueError, LookupError, AttributeError):  # not Linux, or one that hides it
        return None
    for limit, taken in _container_limits():
        available, total = min(available, limit - taken), min(total, limit)
    return Gauge(used, max(0, available), total)


def _container_limits(
    root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")
) -> Iterator[tuple[int, int]]:
    """(limit, taken) of each control group that we are in; files that the system would give up again count as free."""
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers == "":
            top, limit, taken, idle = root, "memory.max", "memory.current", "inactive_file"
        elif controllers == "memory":
            top, limit, taken, idle = (
                root / "memory",
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "total_inactive_file",
            )
        else:
            continue
        own = top / path.lstrip("/")
        for folder in (own, *own.parents):
            if folder == top.parent:
                break
            try:
                most = (folder / limit).read_text().strip()
                if most != "max":
                    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
                    yield int(most), int((folder / taken).read_text()) - int(stat.get(idle, 0))
            except (OSError, ValueError):  # a group that cannot be looked at from inside
                continue


def _gpus() -> list[Gauge]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():  # asking would start CUDA in a process that does not use it
        return []
    gauges = []
    for device in range(torch.cuda.device_count()):
        if used := torch.cuda.memory_allocated(device):
            free, total = torch.cuda.mem_get_info(device)
            gauges.append(Gauge(used, free + torch.cuda.memory_reserved(device) - used, total))
    return gauges
