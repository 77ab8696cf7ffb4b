"""The row format: how one entry is written in a table, and how a damaged row is recognised. Pure functions.

    study   name of the study
    seq     number of the entry: 0, 1, 2, …
    kind    opened, order, receipt, lost, amended, note
    body    the entry's fields as strict JSON
    sum     checksum of this row and of the row before it
    at      seconds since 1970 on the writer's clock; nothing depends on it

    sum = blake2b, 16 bytes in hex, of the compact ASCII JSON list [sum of the row before ("" for the first), study, seq,
          kind, body, at]

So a row that was changed, lost, repeated or moved is noticed, and all rows in front of it are known to be good.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from shoestring.core.ledger.entries import Entry, from_stored
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import ShoestringError, StoreError, UnknownFormat


class Row(NamedTuple):
    """One row of the table of entries."""

    study: str
    seq: int
    kind: str
    body: str
    sum: str
    at: float


class BadRow(Exception):
    """A row that cannot be trusted; the text says what is wrong with it."""


NO_SUM = ""  # in place of the checksum of the row before the first
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def checksum(previous: str, study: str, seq: int, kind: str, body: str, at: float) -> str:
    """Return the checksum of a row with these fields behind a row with the checksum `previous`."""
    return blake2b(_encode([previous, study, seq, kind, body, at]).encode(), digest_size=16).hexdigest()


def write(study: str, seq: int, entry: Entry, previous: str, at: float) -> Row:
    """Return the row of an entry behind a row with the checksum `previous`."""
    try:
        body = dumps(entry.body(), in_order=True)  # a config keeps the order of its space
    except TypeError as error:
        raise StoreError(f"entry {seq} ({entry.kind}) of the study {study!r}: {error}") from None
    return Row(study, seq, entry.kind, body, checksum(previous, study, seq, entry.kind, body, at), at)


_CANNOT_FOLLOW = (ShoestringError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def verify(study: str, rows: Iterable[Row], seq: int = 0, previous: str = NO_SUM) -> Iterator[tuple[Row, Entry]]:
    """Yield each row with its entry, for rows that begin at `seq` behind a row with the checksum `previous`.

    Raises BadRow at the first row that cannot be trusted. A study of another format is not damaged: that is UnknownFormat.
    """
    for number, row in enumerate(rows, seq):
        body = _read_body(row, study, number, previous)
        try:
            entry = from_stored(row.kind, body)
        except UnknownFormat:
            raise
        except _CANNOT_FOLLOW as error:
            raise _cannot_follow(number, error) from error
        previous = row.sum
        yield row, entry


def follow(
    study: str, rows: Iterable[Row], ledger: Ledger | None = None, previous: str = NO_SUM
) -> Iterator[tuple[Row, Ledger]]:
    """Verify rows one by one and yield each with the ledger that it completes; raises as `verify` does.

    `ledger` holds the entries before these rows, and `previous` is the checksum of its last row. This ledger itself is not
    consumed (see `Ledger.propose`), so that it can still be used if a row is bad.
    """
    first = ledger
    for row, entry in verify(study, rows, len(ledger) if ledger is not None else 0, previous):
        try:
            if ledger is None:
                ledger = Ledger([entry])
            else:
                ledger = ledger.propose(entry) if ledger is first else ledger.append(entry)
        except _CANNOT_FOLLOW as error:
            raise _cannot_follow(row.seq, error) from error
        yield row, ledger


def _cannot_follow(seq: int, error: Exception) -> BadRow:
    return BadRow(f"entry {seq} cannot be followed: {type(error).__name__}: {' '.join(str(error).split())}")


def _read_body(row: Row, study: str, seq: int, previous: str) -> Mapping[str, Any]:
    if row.seq != seq:
        raise BadRow(f"entry {seq} is missing")
    try:
        if row.sum != checksum(previous, study, seq, row.kind, row.body, row.at):
            raise BadRow(f"entry {seq} does not match its checksum")
        body = loads(row.body)
    except TypeError:  # SQLite keeps what it is given: a damaged field may be of another type
        raise BadRow(f"entry {seq} does not match its checksum") from None
    except ValueError:
        raise BadRow(f"entry {seq} is not JSON") from None
    if not isinstance(body, dict):
        raise BadRow(f"entry {seq} is not a JSON object")
    return body
