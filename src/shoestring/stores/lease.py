"""The lease: which process runs a study. It is one row per study, with heartbeats; the lease of a dead process is taken over.

A holder is dead if its process has ended (which can be seen only on its own machine), or if no heartbeat came for a minute.
The row is not deleted with its holder, because the last heartbeat says which steps were under way: the next holder charges for
them.

**Every second is charged.** Every append of the holder stores a heartbeat in the same transaction, so the start of each step is
known; a thread writes another one every second. It is not known when exactly the holder died after its last heartbeat, so the
next holder adds the time since then, but at most the time of one heartbeat, and no time after the cutoff: it is stored with the
heartbeat, and the steps end then, whoever lives. So no time is left uncharged, and for each step at most the time of one
heartbeat is charged too much. Nothing is added for a holder that stopped regularly, because it charged everything itself.

**No second is charged twice.** A heartbeat stores the number of entries in the ledger together with the seconds of the steps
under way. If an entry after that number is about the same order (or the loss of its trial), that step has been charged: by its
receipt, or by an earlier holder that took over and then crashed too. A holder that takes over first writes the seconds that are
to be charged, marked as `settled`, and does not change them until one of its own appends has charged them. If it crashes before
that, nothing is lost, and the next holder adds nothing to them.
"""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Update, bindparam, insert, select, update

from shoestring.core.ledger.budget import PricedSeconds, price_of
from shoestring.core.ledger.entries import Note, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import Conflict, StoreError, StudyInUse
from shoestring.stores.database import LEASES, Database, StoreLost
from shoestring.stores.ledger_store import HEARTBEAT_S

SILENCE_S = 60.0  # a holder without a heartbeat for longer than this counts as dead
_MAX_TRIES = 100  # to take a lease that changes between reading and writing it
# Keys beside the orders under way:
_SETTLED = "settled"  # no time may be added to them
_CUTOFF = "until cutoff"  # no more than these seconds


class Process(NamedTuple):
    """A process, identified so that it can be recognised later."""

    host: str
    pid: int
    machine: str
    started: str

    @classmethod
    def this(cls) -> Process:
        """Return this process; `machine` is its boot and process namespace, as containers may share a host name, but no pids."""
        boot = Path("/proc/sys/kernel/random/boot_id")
        try:
            machine = f"{boot.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
        except OSError:  # not Linux
            machine = ""
        return cls(socket.gethostname(), os.getpid(), machine, _state_and_start(os.getpid())[1])

    def is_dead(self) -> bool:
        """Return whether this process has certainly ended; False if that cannot be known from here."""
        if not self._can_be_seen():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # it belongs to another user, so it exists
        state, started = _state_and_start(self.pid)
        return state in ("Z", "X") or started != self.started

    def is_running(self) -> bool:
        """Return whether this process certainly exists; False if that cannot be known from here."""
        return self._can_be_seen() and not self.is_dead()

    def _can_be_seen(self) -> bool:
        here = Process.this()
        is_here = (self.host, self.machine) == (here.host, here.machine)
        return is_here and os.name != "nt"  # on Windows signal 0 would end the process


def _state_and_start(pid: int) -> tuple[str, str]:
    """Return the state of a process and the time of its start as Linux shows them; empty texts if they cannot be read."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return after_name[0], after_name[19]
    except OSError:
        return "", ""


class SqlLease:
    """The right to run a study, as a row of the database."""

    def __init__(self, database: Database, study: str, load: Callable[[str], Ledger | None]) -> None:
        self.lost = False
        self.uncharged_s: Mapping[int, float] = {}
        self._database, self._study, self._holder = database, study, secrets.token_hex(8)
        self._has_uncharged = False  # whether the row still has seconds of the last holder that are not charged yet
        entries, running_s = self._take()
        try:
            if running_s and (ledger := load(study)) is not None:
                self.uncharged_s = find_uncharged(ledger, entries, running_s)
                self._has_uncharged = bool(self.uncharged_s)
        except BaseException:
            self._release()
            raise

    def beat(self, entries: int, running_s: Mapping[int, float], until_cutoff_s: float = math.inf) -> None:
        """Write a heartbeat; see `Lease.beat`."""
        try:
            with self._database.transaction() as connection:
                beat = {} if self._has_uncharged else _encode_heartbeat(entries, running_s, until_cutoff_s)
                self._write(connection, beat)
        except StoreLost:  # the next access to the store raises this error too
            self.lost = True
        except StoreError:
            pass  # this does no harm, because the next heartbeat follows soon

    def beat_with(
        self, connection: Connection, entries: int, running_s: Mapping[int, float], until_cutoff_s: float = math.inf
    ) -> None:
        """Write the heartbeat of an append in its transaction; raise StudyInUse if the lease was lost, to undo the append."""
        self._write(connection, _encode_heartbeat(entries, running_s, until_cutoff_s))
        if self.lost:
            raise StudyInUse(f"the study {self._study!r} was taken over by another process: this one stops")

    def mark_charged(self) -> None:
        """Record that an append was stored; the first one charges all seconds of the last holder."""
        self._has_uncharged = False

    def _write(self, connection: Connection, columns: Mapping[str, Any]) -> None:
        self.lost = self._update(connection, heard_at=self._database.now(connection), **columns) == 0

    def __enter__(self) -> SqlLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _take(self) -> tuple[int, Mapping[int, float]]:
        """Take the lease; return the number of entries and {order: seconds} of the steps under way when the last holder ended.

        The row is changed only if it has not changed since it was read, so only one of two processes gets the lease.
        """
        for _ in range(_MAX_TRIES):
            with suppress(Conflict):
                if (found := self._database.attempt(self._try_to_take)) is not None:
                    return found
        raise StudyInUse(
            f"the study {self._study!r} cannot be taken: its lease changed {_MAX_TRIES} times meanwhile; give the command again"
        )

    def _try_to_take(self, connection: Connection) -> tuple[int, Mapping[int, float]] | None:
        last = connection.execute(select(LEASES).where(LEASES.c.study == self._study)).one_or_none()
        now = self._database.now(connection)
        mine = {**Process.this()._asdict(), "holder": self._holder, "heard_at": now}
        if last is None:
            connection.execute(insert(LEASES).values(study=self._study, entries=0, running="{}", **mine))
            return 0, {}
        if last.holder == self._holder:  # an earlier attempt succeeded, and then the connection broke
            return last.entries, _seconds_under_way(last, now)
        _check_free(last, now)
        running_s = _seconds_under_way(last, now)
        if running_s:
            mine["running"] = dumps({**_encode_seconds(running_s), _SETTLED: True})
        same = (LEASES.c.holder == last.holder) & (LEASES.c.heard_at == last.heard_at)
        statement = update(LEASES).where(LEASES.c.study == self._study, same).values(**mine)
        return (last.entries, running_s) if connection.execute(statement).rowcount == 1 else None

    def _release(self) -> None:
        """Release the lease. If that fails, the study is free after a minute without heartbeats."""
        with suppress(StoreError), self._database.transaction() as connection:
            self._update(connection, holder="")

    def _update(self, connection: Connection, **values: Any) -> int:
        """Update the row of this lease and return the number of updated rows: 1, or 0 if the lease was lost."""
        parameters = {
            "of_study": self._study,
            "of_holder": self._holder,
            **{f"new_{name}": v for name, v in values.items()},
        }
        return connection.execute(_update_of(tuple(values)), parameters).rowcount


@cache
def _update_of(names: tuple[str, ...]) -> Update:
    """Return the statement that updates these columns; it is cached, because making it takes longer than executing it."""
    mine = (LEASES.c.study == bindparam("of_study")) & (LEASES.c.holder == bindparam("of_holder"))
    return update(LEASES).where(mine).values({name: bindparam(f"new_{name}") for name in names})


def _check_free(last: Row[Any], now: float) -> None:
    silent_s = abs(now - last.heard_at)  # absolute, because a clock that was set back must not hide a death
    if not last.holder or silent_s > SILENCE_S or Process(last.host, last.pid, last.machine, last.started).is_dead():
        return
    raise StudyInUse(
        f"the study {last.study!r} is being run by process {last.pid} on {last.host}, last heartbeat {silent_s:.0f} s ago: "
        f"wait for its end or stop it; after {SILENCE_S:.0f} s of silence the study is free again"
    )


def _encode_heartbeat(entries: int, running_s: Mapping[int, float], until_cutoff_s: float) -> dict[str, Any]:
    cutoff = {_CUTOFF: float(until_cutoff_s)} if running_s and until_cutoff_s < HEARTBEAT_S else {}
    return {"entries": entries, "running": dumps(_encode_seconds(running_s) | cutoff)}


def _encode_seconds(running_s: Mapping[int, float]) -> dict[str, Any]:
    """Return the seconds by order as they are stored, with their price factor if it is not 1."""
    return {str(number): _with_price(seconds, price_of(seconds)) for number, seconds in running_s.items()}


def _with_price(seconds: float, price_factor: float) -> float | list[float]:
    return float(seconds) if price_factor == 1.0 else [float(seconds), price_factor]


def _seconds_under_way(last: Row[Any], now: float) -> dict[int, float]:
    """Return the seconds of the steps under way when the last holder ended, its time after the last heartbeat included."""
    try:
        stored = loads(last.running)
        is_settled, most_s = stored.pop(_SETTLED, False) or not last.holder, stored.pop(_CUTOFF, HEARTBEAT_S)
        unheard_s = 0.0 if is_settled else min(abs(now - last.heard_at), most_s)
        under_way: dict[int, float] = {}
        for number, running in stored.items():
            seconds, price_factor = running if isinstance(running, list) else (running, 1.0)
            under_way[int(number)] = PricedSeconds(float(seconds) + unheard_s, float(price_factor))
        return under_way
    except (ValueError, TypeError, AttributeError):
        return {}  # unlike the ledger, a heartbeat has no checksum; a damaged one must not block the study


def find_uncharged(ledger: Ledger, entries: int, running_s: Mapping[int, float]) -> dict[int, float]:
    """Return those of the steps under way, as {order: seconds}, that no entry after the first `entries` has charged."""
    orders: set[Any] = set()
    trials: set[int] = set()
    for entry in ledger.entries(entries):
        if isinstance(entry, Receipt):
            orders.add(entry.order)
        elif isinstance(entry, Note):
            orders.add(entry.facts.get("order"))
        elif isinstance(entry, StateLoss):
            trials.add(entry.trial)
    return {
        number: seconds
        for number, seconds in running_s.items()
        if seconds > 0
        and number in ledger.open_orders
        and number not in orders
        and ledger.open_orders[number].order.trial not in trials
    }
