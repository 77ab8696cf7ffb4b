"""The contract of a ledger store, `LedgerStore` and `Lease`, and the thread that writes heartbeats.

Entries of one study are numbered 0, 1, 2, …. `append` succeeds only if its entries get the next numbers, so at most one of two
writers succeeds. A `Lease` is the right to run a study. A process that takes it over from a dead process learns which steps
were under way, and charges for them.

**When entries reach the disk.** An entry is in the store as soon as it is appended, so nothing is lost when its process dies. But
entries that are not on the disk can be lost in a power cut. So an append waits until its entries are on the disk, but at most
ten times a second, because waiting for quick steps could take as long as training them. Appends in between do not wait: the next
heartbeat, within a tenth of a second, writes their entries to the disk while the next step is trained. So a power cut loses at
most the entries of a tenth of a second.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import NamedTuple, Protocol

from shoestring.core.ledger.entries import Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.errors import StoreError


class Lease(Protocol):
    """The right to run a study. It is a context manager, and ends with its block."""

    lost: bool  # whether another process has taken it over
    uncharged_s: Mapping[int, float]  # {order: seconds} of steps that were under way when the last holder died

    def beat(self, entries: int, running_s: Mapping[int, float], until_cutoff_s: float = math.inf) -> None:
        """Write a heartbeat.

        Parameters
        ----------
        entries : int
            Number of entries in the ledger now.
        running_s : mapping of int to float
            Seconds since the present step of each running order began.
        until_cutoff_s : float
            For how long these steps may go on at most: then they are ended, also if this process has died.
        """
        ...

    def __enter__(self) -> Lease: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Heartbeat(NamedTuple):
    """A heartbeat that is stored together with entries.

    Parameters
    ----------
    lease : Lease
        The lease of the process that runs the study.
    running_s : mapping of int to float
        Seconds since the present step of each running order began.
    until_cutoff_s : float
        For how long these steps may go on at most.
    """

    lease: Lease
    running_s: Mapping[int, float]
    until_cutoff_s: float = math.inf


class LedgerStore(Protocol):
    """Stores the ledgers of studies. This package has two: `MemoryStore` and `SqlStore`."""

    @property
    def where(self) -> str:
        """The address, for messages: without a password."""
        ...

    def studies(self) -> list[str]:
        """Return the names of all studies, in the order in which they were opened.

        Returns
        -------
        list of str
            The names.
        """
        ...

    def load(self, study: str) -> Ledger | None:
        """Return the ledger of a study, with every checksum verified.

        Parameters
        ----------
        study : str
            Name of the study.

        Returns
        -------
        Ledger or None
            The ledger; None if there is no such study.

        Raises
        ------
        DamagedStore
            If a stored entry cannot be trusted.
        """
        ...

    def refresh(self, study: str, ledger: Ledger) -> Ledger:
        """Return the ledger with all entries that others have appended since it was read.

        Parameters
        ----------
        study : str
            Name of the study.
        ledger : Ledger
            The ledger that was read or written last. It is consumed if there are new entries.

        Returns
        -------
        Ledger
            The newest ledger.
        """
        ...

    def append(
        self,
        study: str,
        ledger: Ledger | None,
        *entries: Entry,
        heartbeat: Heartbeat | None = None,
        durable: bool = True,
    ) -> Ledger:
        """Store all of these entries after the last entry of `ledger`, or none of them.

        Parameters
        ----------
        study : str
            Name of the study.
        ledger : Ledger or None
            The ledger on which the entries were decided; None for a new study. It is consumed if the entries are stored.
        *entries : Entry
            The entries to append.
        heartbeat : Heartbeat, optional
            The heartbeat to store together with the entries.
        durable : bool
            Wait until the entries are on the disk. Without it, they survive the end of this process, but the newest ones may
            be lost in a power cut.

        Returns
        -------
        Ledger
            The ledger with these entries.

        Raises
        ------
        Conflict
            If others have appended entries after those of `ledger`.
        StudyInUse
            If the lease of the heartbeat has been taken over by another process.
        """
        ...

    def finish_run(self, study: str, ledger: Ledger) -> None:
        """Prepare, at the end of a run, for the next time that the study is opened. This may do nothing.

        Parameters
        ----------
        study : str
            Name of the study.
        ledger : Ledger
            The newest ledger of the study.
        """
        ...

    def rename(self, study: str, new: str) -> None:
        """Give a study another name; its entries do not change. The caller has its lease, and releases it afterwards.

        Parameters
        ----------
        study : str
            Name of the study.
        new : str
            Its new name.

        Raises
        ------
        StoreError
            If there is no such study, or another one has the new name.
        """
        ...

    def delete(self, study: str) -> None:
        """Delete a study with all its entries. The caller has its lease.

        Parameters
        ----------
        study : str
            Name of the study.
        """
        ...

    def lease(self, study: str) -> Lease:
        """Take the right to run this study.

        Parameters
        ----------
        study : str
            Name of the study.

        Returns
        -------
        Lease
            The right, as a context manager.

        Raises
        ------
        StudyInUse
            If a living process has the right; the message names that process.
        """
        ...


def miss_study(study: str, store: LedgerStore) -> StoreError:
    """Return the error about a study that this process has read and that is not in the store any more."""
    return StoreError(
        f"the study {study!r} is not in {store.where} any more: it was deleted, renamed, or its file replaced"
    )


def refuse_name(study: str, new: str, store: LedgerStore) -> StoreError:
    """Return the error about a study that cannot be renamed."""
    if study not in store.studies():
        return miss_study(study, store)
    return StoreError(
        f"there is a study {new!r} in {store.where} already: choose another name, or delete that one first"
    )


HEARTBEAT_S = 1.0  # a crash is charged for at most this much time beyond the last heartbeat
# A little more often, so that with a slow disk no time between heartbeats is lost.
_HEARTBEAT_INTERVAL_S = 0.8 * HEARTBEAT_S
_DISK_INTERVAL_S = 0.1  # shortest time between two appends that wait for the disk


class HeartbeatThread(threading.Thread):
    """Calls `beat` about every second, also during a long step of the main thread, and soon after entries were stored."""

    def __init__(self, beat: Callable[[], None]) -> None:
        super().__init__(daemon=True, name="shoestring-heartbeat")
        self._beat, self._stopped, self._is_wanted = beat, threading.Event(), threading.Event()
        self._on_disk_at = -math.inf
        self.start()

    def should_wait_for_disk(self) -> bool:
        """Return whether the next append should wait for the disk; if not, a heartbeat will soon write its entries there."""
        now = time.monotonic()
        if now - self._on_disk_at >= _DISK_INTERVAL_S:
            self._on_disk_at = now
            return True
        self._is_wanted.set()
        return False

    def run(self) -> None:
        """Write heartbeats until `stop` is called."""
        while not self._stopped.is_set():
            if self._is_wanted.wait(_HEARTBEAT_INTERVAL_S):
                # After this time, one heartbeat is enough for all entries stored meanwhile.
                self._stopped.wait(_DISK_INTERVAL_S)
                self._is_wanted.clear()
            if not self._stopped.is_set():
                self._beat()

    def stop(self) -> None:
        """End the thread and wait for its end."""
        self._stopped.set()
        self._is_wanted.set()
        self.join()
