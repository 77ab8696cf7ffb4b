"""Measure the memory that is free for paused trials: of the machine, of its container, and of the GPUs that PyTorch uses.

On Linux it is read from system files; on other systems it is unknown. Frameworks other than PyTorch do not report how much of a
GPU's memory is free, so only an out-of-memory error shows that it is full.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_OUT_OF_MEMORY = ("out of memory", "resource_exhausted", "cannot allocate memory", "unable to allocate")


class MemoryState(NamedTuple):
    """One kind of memory, in bytes."""

    used: int  # by this process
    available: int  # to this process
    total: int


def read_memory() -> list[MemoryState]:
    """Return the state of main memory, then of each GPU; an empty list where main memory cannot be measured."""
    main = _read_main_memory()
    return [] if main is None else [main, *_read_gpus()]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether this error says that the machine or a GPU has no free memory."""
    text = f"{type(error).__name__} {error}".lower()
    return isinstance(error, MemoryError) or "outofmemory" in text or any(words in text for words in _OUT_OF_MEMORY)


def free_unused_memory() -> None:
    """Free the objects that nothing refers to any more, and the GPU memory that PyTorch caches."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def _read_main_memory() -> MemoryState | None:
    try:
        used = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
        machine = {line[0]: int(line[1]) * 1024 for line in lines}
        available, total = machine["MemAvailable:"], machine["MemTotal:"]
    except (OSError, ValueError, LookupError, AttributeError):  # not Linux, or a system that hides these files
        return None
    for limit, limit_used in _container_limits():
        available, total = min(available, limit - limit_used), min(total, limit)
    return MemoryState(used, max(0, available), total)


def _container_limits(
    root: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")
) -> Iterator[tuple[int, int]]:
    """Yield (limit, used) of each control group of this process; files that the system can drop from memory count as free."""
    try:
        lines = [line.split(":", 2) for line in groups.read_text().splitlines()]
    except OSError:
        return
    for _, controllers, path in lines:
        if controllers == "":
            top, limit, used, idle = root, "memory.max", "memory.current", "inactive_file"
        elif controllers == "memory":
            top, limit = root / "memory", "memory.limit_in_bytes"
            used, idle = "memory.usage_in_bytes", "total_inactive_file"
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
                    yield int(most), int((folder / used).read_text()) - int(stat.get(idle, 0))
            except (OSError, ValueError):  # a group whose files cannot be read from inside a container
                continue


def _read_gpus() -> list[MemoryState]:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():  # a query would start CUDA in a process that does not use it
        return []
    states = []
    for device in range(torch.cuda.device_count()):
        if used := torch.cuda.memory_allocated(device):
            free, total = torch.cuda.mem_get_info(device)
            states.append(MemoryState(used, free + torch.cuda.memory_reserved(device) - used, total))
    return states
