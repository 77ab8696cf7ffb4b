"""Who runs a study: one row per study, refreshed by a heartbeat, taken over from the dead.

A holder is dead when its process is gone (which can be seen only from the machine it ran on) or when nothing was heard of
it for a minute. The row outlives its holder, since its last heartbeat says which steps were under way: whoever comes next
charges for them.

Charged in full. Every append of the holder stores a heartbeat in the same transaction, so the start of each step is known;
a thread repeats it every second. When the holder died after its last heartbeat is not known: whoever takes over adds the
time since then, but no more than one heartbeat. So nothing goes uncharged, and at most one heartbeat is charged too much.
A holder that stopped in peace has said its last word itself: nothing is added to that.

Charged exactly once. A heartbeat stores the number of entries in the ledger beside the seconds of the steps under way.
An entry about an order (or the loss of its trial) behind that number means that the step meant by the heartbeat is paid
for already: by its receipt, or as `lost` by somebody who took over and crashed in turn. Somebody who took over writes
down at once what is due, as `settled`, and lets that stand until an append of their own carries the charge: a crash before
it loses nothing, and the one who comes next adds nothing more.
"""

from __future__ import annotations

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
from shoestring.core.ledger.entries import Lost, Note, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import Conflict, Leased, StoreError
from shoestring.stores.database import LEASES, Database
from shoestring.stores.store import HEARTBEAT_S

SILENCE_S = 60.0  # after so many missed heartbeats a holder counts as dead
_SETTLED = "settled"  # among the orders under way: nothing more is to be added to them


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
        self._owes = False  # what the last holder left is not charged yet: its word stands
        entries, running_s = self._take()
        try:
            if running_s and (ledger := load(study)) is not None:
                self.cut_off = find_uncharged(ledger, entries, running_s)
                self._owes = bool(self.cut_off)
        except BaseException:
            self._release()
            raise

    def beat(self, entries: int, running_s: Mapping[int, float]) -> None:
        # A lock that lasts, a server that is away: the next beat is soon.
        with suppress(StoreError), self._database.transaction() as connection:
            self._say(connection, {} if self._owes else _word(entries, running_s))

    def beat_with(self, connection: Connection, entries: int, running_s: Mapping[int, float]) -> None:
        """The heartbeat of an append, in its transaction, which must not come to pass if the lease is gone."""
        self._say(connection, _word(entries, running_s))
        if self.lost:
            raise Leased(f"the study {self._study!r} was taken over by another process: this one stops")

    def charged(self) -> None:
        """An append of the holder's is stored: the first one holds all that the last holder left."""
        self._owes = False

    def _say(self, connection: Connection, word: Mapping[str, Any]) -> None:
        self.lost = self._update(connection, heard_at=self._database.now(connection), **word) == 0

    def __enter__(self) -> SqlLease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    def _take(self) -> tuple[int, Mapping[int, float]]:
        """Take the lease; returns (entries, {order: seconds}) of what was under way when the last holder ended.

        Compare-and-swap, as in the ledger: one of two gets it.
        """
        while True:
            with suppress(Conflict):
                if (found := self._database.attempt(self._try_to_take)) is not None:
                    return found

    def _try_to_take(self, connection: Connection) -> tuple[int, Mapping[int, float]] | None:
        last = connection.execute(select(LEASES).where(LEASES.c.study == self._study)).one_or_none()
        now = self._database.now(connection)
        mine = {**Process.this()._asdict(), "holder": self._holder, "heard_at": now}
        if last is None:
            connection.execute(insert(LEASES).values(study=self._study, entries=0, running="{}", **mine))
            return 0, {}
        if last.holder == self._holder:  # taken already, when the connection broke
            return last.entries, _settle(last, now)
        _check_free(last, now)
        running_s = _settle(last, now)
        if running_s:
            mine["running"] = dumps({**_by_name(running_s), _SETTLED: True})
        same = (LEASES.c.holder == last.holder) & (LEASES.c.heard_at == last.heard_at)
        taken = update(LEASES).where(LEASES.c.study == self._study, same).values(**mine)
        return (last.entries, running_s) if connection.execute(taken).rowcount == 1 else None

    def _release(self) -> None:
        """Let go, but keep the last heartbeat. Failing to does no harm: after a minute of silence the study is free."""
        with suppress(StoreError), self._database.transaction() as connection:
            self._update(connection, holder="")

    def _update(self, connection: Connection, **values: Any) -> int:
        """How many rows were still ours: 1, or 0 when the lease is gone."""
        told = {"of_study": self._study, "of_holder": self._holder, **{f"new_{name}": v for name, v in values.items()}}
        return connection.execute(_update_of(tuple(values)), told).rowcount


@cache
def _update_of(names: tuple[str, ...]) -> Update:
    """Of these columns, made once: it goes with every append, and making it takes longer than carrying it out."""
    mine = (LEASES.c.study == bindparam("of_study")) & (LEASES.c.holder == bindparam("of_holder"))
    return update(LEASES).where(mine).values({name: bindparam(f"new_{name}") for name in names})


def _check_free(last: Row[Any], now: float) -> None:
    silent_s = abs(now - last.heard_at)  # a clock that was set back must not keep a dead holder alive
    if not last.holder or silent_s > SILENCE_S or Process(last.host, last.pid, last.machine, last.started).is_dead():
        return
    raise Leased(
        f"the study {last.study!r} is being run by process {last.pid} on {last.host}, last heard of {silent_s:.0f} s ago: "
        f"wait for its end or stop it; after {SILENCE_S:.0f} s of silence the study is free again"
    )


def _word(entries: int, running_s: Mapping[int, float]) -> dict[str, Any]:
    return {"entries": entries, "running": dumps(_by_name(running_s))}


def _by_name(running_s: Mapping[int, float]) -> dict[str, Any]:
    """Seconds, with their price where that is not 1."""
    return {str(number): _tell(seconds, price_of(seconds)) for number, seconds in running_s.items()}


def _tell(seconds: float, price_factor: float) -> float | list[float]:
    return float(seconds) if price_factor == 1.0 else [float(seconds), price_factor]


def _settle(last: Row[Any], now: float) -> dict[int, float]:
    """Seconds of the steps under way when the last holder ended: as it said, and what it may have worked since."""
    try:
        said = loads(last.running)
        is_settled = said.pop(_SETTLED, False) or not last.holder
        unheard_s = 0.0 if is_settled else min(abs(now - last.heard_at), HEARTBEAT_S)
        under_way: dict[int, float] = {}
        for number, told in said.items():
            seconds, price_factor = told if isinstance(told, list) else (told, 1.0)
            under_way[int(number)] = PricedSeconds(float(seconds) + unheard_s, float(price_factor))
        return under_way
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
        and ledger.open_orders[number].order.trial not in trials
    }
