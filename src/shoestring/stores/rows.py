"""The row format: how an entry is written as a row of a table, and how a damaged row is recognised.

    study   name of the study
    seq     number of the entry: 0, 1, 2, …
    kind    opened, order, receipt, lost, amended, note
    body    the entry's fields as strict JSON
    sum     checksum of this row and of the row before it
    at      seconds since 1970 on the clock of the writer; only the order of `studies` depends on it

    sum = blake2b, 16 bytes in hex, of the compact ASCII JSON list [sum of the row before ("" for the first), study, seq,
          kind, body, at]

So a row that was changed, lost, repeated or moved is noticed, and all rows before it are known to be good.
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


NO_SUM = ""  # stands for the checksum of the row before, for the first row
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def checksum(previous: str, study: str, seq: int, kind: str, body: str, at: float) -> str:
    """Return the checksum of a row with these fields; `previous` is the checksum of the row before it."""
    return blake2b(_encode([previous, study, seq, kind, body, at]).encode(), digest_size=16).hexdigest()


def write(study: str, seq: int, entry: Entry, previous: str, at: float) -> Row:
    """Return the row of an entry; `previous` is the checksum of the row before it."""
    try:
        body = dumps(entry.body(), in_order=True)  # the parameters of a config stay in the order of its space
    except TypeError as error:
        raise StoreError(f"entry {seq} ({entry.kind}) of the study {study!r}: {error}") from None
    return Row(study, seq, entry.kind, body, checksum(previous, study, seq, entry.kind, body, at), at)


# What the ledger and its entries raise on a row that has the right checksum but wrong contents.
_CONTENT_ERRORS = (ShoestringError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def verify(study: str, rows: Iterable[Row], seq: int = 0, previous: str = NO_SUM) -> Iterator[tuple[Row, Entry]]:
    """Yield each row with its entry; the first row has the number `seq`, and the row before it the checksum `previous`.

    Raise BadRow at the first row that cannot be trusted. A study of another format is not damaged, and raises UnknownFormat.
    """
    for number, row in enumerate(rows, seq):
        body = _read_body(row, study, number, previous)
        try:
            entry = from_stored(row.kind, body)
        except UnknownFormat:
            raise
        except _CONTENT_ERRORS as error:
            raise _make_bad_row(number, error) from error
        previous = row.sum
        yield row, entry


def follow(
    study: str, rows: Iterable[Row], ledger: Ledger | None = None, previous: str = NO_SUM
) -> Iterator[tuple[Row, Ledger]]:
    """Verify the rows one by one, and yield each with the ledger up to this row; raise the same errors as `verify`.

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
        except _CONTENT_ERRORS as error:
            raise _make_bad_row(row.seq, error) from error
        yield row, ledger


def _make_bad_row(seq: int, error: Exception) -> BadRow:
    return BadRow(f"entry {seq} cannot be applied: {type(error).__name__}: {' '.join(str(error).split())}")


def _read_body(row: Row, study: str, seq: int, previous: str) -> Mapping[str, Any]:
    if row.seq != seq:
        raise BadRow(f"entry {seq} is missing")
    try:
        if row.sum != checksum(previous, study, seq, row.kind, row.body, row.at):
            raise BadRow(f"entry {seq} does not match its checksum")
        body = loads(row.body)
    except TypeError:  # SQLite stores values of any type, so a damaged field may have another type
        raise BadRow(f"entry {seq} does not match its checksum") from None
    except ValueError:
        raise BadRow(f"entry {seq} is not JSON") from None
    if not isinstance(body, dict):
        raise BadRow(f"entry {seq} is not a JSON object")
    return body
