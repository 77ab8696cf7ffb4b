"""Who runs a study: one row per study, refreshed by a heartbeat, taken over from the dead.

A holder is dead when its process is gone (which can be seen only from the machine it ran on) or when nothing was heard of
it for a minute. The row outlives its holder, since its last heartbeat says which steps were under way: whoever comes next
charges for them.

Charged exactly once. A heartbeat stores the number of entries in the ledger beside the seconds of the steps under way.
An entry about an order (or the loss of its trial) behind that number means that the step meant by the heartbeat is paid
for already: by its receipt, or as `lost` by somebody who took over and crashed in turn. And somebody who took over lets
the old heartbeat stand until the ledger has grown, so a crash before the charge is stored does not lose it either.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from shoestring.core.entries import Lost, Note, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.strict_json import dumps, loads
from shoestring.errors import Conflict, Leased, StoreError
from shoestring.stores.database import LEASES, Database

SILENCE_S = 60.0  # after twelve missed heartbeats a holder counts as dead


class Process(NamedTuple):
    host: str
    pid: int
    machine: str
    started: str

    @classmethod
    def this(cls) -> Process:
        """`machine` is this boot and this process namespace: containers may share a host's name, but not its pids."""
        boot = Path("/proc/sys/kernel/random/boot_id")
        try:
            machine = f"{boot.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"
        except OSError:  # no Linux
            machine = ""
        return cls(socket.gethostname(), os.getpid(), machine, _state_and_start(os.getpid())[1])

    def is_dead(self) -> bool:
        """Whether this process has certainly ended; False if that cannot be known from here."""
        here = Process.this()
        if (self.host, self.machine) != (
            here.host,
            here.machine,
        ) or os.name == "nt":  # on Windows signal 0 would end the process
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's, so it exists
        state, started = _state_and_start(self.pid)
        return state in ("Z", "X") or started != self.started


def _state_and_start(pid: int) -> tuple[str, str]:
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return after_name[0], after_name[19]
    except OSError:
        return "", ""


class SqlLease:
    """The right to run a study, as a row of the database."""

    def __init__(self, database: Database, study: str, load: Callable[[str], Ledger | None]) -> None:
        self.lost = False
        self.cut_off: Mapping[int, float] = {}
        self._database, self._study, self._holder = database, study, secrets.token_hex(8)
        self._entries = 0  # when the lease was taken
        last = self._take()
        try:
            running = {} if last is None else _parse_running(last.running)
            if last is not None and running and (ledger := load(study)) is not None:
                self.cut_off, self._entries = find_uncharged(ledger, last.entries, running), len(ledger)
        except BaseException:
            self._release()
            raise

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        said: dict[str, Any] = {"entries": entries, "running": dumps({str(n): s for n, s in running_s.items()})}
        if self.cut_off and entries <= self._entries:
            said = {}  # what the last holder left is not charged yet: its word stands
        # A lock that lasts, a server that is away: the next beat is soon.
        with suppress(StoreError), self._database.transaction() as connection:
            self.lost = self._update(connection, heard_at=self._database.now(connection), **said) == 0

    def __enter__(self) -> SqlLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _take(self) -> Row[Any] | None:
        """Take the lease; returns what the last holder left. Compare-and-swap, as in the ledger: one of two gets it."""
        wanted = select(LEASES).where(LEASES.c.study == self._study)
        me = Process.this()._asdict()
        while True:
            with suppress(Conflict), self._database.transaction() as connection:
                last = connection.execute(wanted).one_or_none()
                now = self._database.now(connection)
                mine = {**me, "holder": self._holder, "heard_at": now}
                if last is None:
                    connection.execute(insert(LEASES).values(study=self._study, entries=0, running="{}", **mine))
                    return None
                _check_free(last, now)
                same = (LEASES.c.holder == last.holder) & (LEASES.c.heard_at == last.heard_at)
                taken = update(LEASES).where(LEASES.c.study == self._study, same).values(**mine)
                if connection.execute(taken).rowcount == 1:
                    return last

    def _release(self) -> None:
        """Let go, but keep the last heartbeat. Failing to does no harm: after a minute of silence the study is free."""
        with suppress(StoreError), self._database.transaction() as connection:
            self._update(connection, holder="")

    def _update(self, connection: Connection, **values: Any) -> int:
        """How many rows were still ours: 1, or 0 when the lease is gone."""
        mine = (LEASES.c.study == self._study) & (LEASES.c.holder == self._holder)
        return connection.execute(update(LEASES).where(mine).values(**values)).rowcount


def _check_free(last: Row[Any], now: float) -> None:
    silent_s = abs(now - last.heard_at)  # a clock that was set back must not keep a dead holder alive
    if not last.holder or silent_s > SILENCE_S or Process(last.host, last.pid, last.machine, last.started).is_dead():
        return
    raise Leased(
        f"the study {last.study!r} is being run by process {last.pid} on {last.host}, last heard of {silent_s:.0f} s ago: "
        f"wait for its end or stop it; after {SILENCE_S:.0f} s of silence the study is free again"
    )


def _parse_running(text: str) -> dict[int, float]:
    try:
        return {int(number): float(seconds) for number, seconds in loads(text).items()}
    except (ValueError, TypeError, AttributeError):
        return {}  # unlike the ledger, a heartbeat has no checksum; a study must not hang on it


def find_uncharged(ledger: Ledger, entries: int, running_s: Mapping[int, float]) -> dict[int, float]:
    """Of the steps under way when the ledger had `entries`: those that no later entry speaks of."""
    orders: set[Any] = set()
    trials: set[int] = set()
    for entry in ledger.entries(entries):
        if isinstance(entry, Receipt):
            orders.add(entry.order)
        elif isinstance(entry, Note):
            orders.add(entry.facts.get("order"))
        elif isinstance(entry, Lost):
            trials.add(entry.trial)
    return {
        number: seconds
        for number, seconds in running_s.items()
        if seconds > 0
        and number in ledger.open_orders
        and number not in orders
        and ledger.orders[number].trial not in trials
    }
