"""The row format: what one entry looks like in a table, and how to tell a sound row from a damaged one. Pure functions.

    study   name of the study
    seq     number of the entry: 0, 1, 2, …
    kind    opened, order, receipt, lost, amended, note
    body    the entry's fields as strict JSON
    sum     checksum of this row, chained to the row before
    at      seconds since 1970 on the writer's clock; nothing depends on it

    sum = blake2b, 16 bytes in hex, of the compact ASCII JSON list [sum of the row before ("" for the first), study, seq,
          kind, body, at]

So a row that was changed, lost, repeated or moved shows, and everything in front of it is known to be good.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from shoestring.core.ledger import formats
from shoestring.core.ledger.entries import FORMAT, Entry
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps, loads
from shoestring.errors import ShoestringError, StoreError, StudyError


class Row(NamedTuple):
    study: str
    seq: int
    kind: str
    body: str
    sum: str
    at: float


class Link(NamedTuple):
    """What the next row must be chained to, and the format it is written in."""

    sum: str
    format: int | None


class Unsound(Exception):
    """A row that cannot be trusted; the text says what is wrong with it."""


BEGIN = Link("", None)  # in front of the first row
_flat = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode


def checksum(previous: str, study: str, seq: int, kind: str, body: str, at: float) -> str:
    return blake2b(_flat([previous, study, seq, kind, body, at]).encode(), digest_size=16).hexdigest()


def write(study: str, seq: int, entry: Entry, link: Link, at: float) -> tuple[Row, Link]:
    """The row of an entry that follows `link`, and the link for the next one."""
    try:
        body = dumps(entry.body(), in_order=True)  # a config keeps the order of its space
    except TypeError as error:
        raise StoreError(f"entry {seq} ({entry.kind}) of the study {study!r}: {error}") from None
    row = Row(study, seq, entry.kind, body, checksum(link.sum, study, seq, entry.kind, body, at), at)
    return row, Link(row.sum, FORMAT)


_CANNOT_FOLLOW = (ShoestringError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def verify(study: str, rows: Iterable[Row], seq: int = 0, link: Link = BEGIN) -> Iterator[tuple[Row, Entry, Link]]:
    """The entries of rows that begin at `seq`, behind a row that left `link`. Raises Unsound at the first bad row.

    A study of a newer format is not damaged: that raises the StudyError of `core.formats`.
    """
    for number, row in enumerate(rows, seq):
        body = _body(row, study, number, link)
        try:
            (entry,) = formats.read([(row.kind, body)], link.format)
        except StudyError:
            raise
        except _CANNOT_FOLLOW as error:
            raise _unfollowed(number, error) from error
        link = Link(row.sum, _format(row.kind, body, link.format))
        yield row, entry, link


def follow(
    study: str, rows: Iterable[Row], ledger: Ledger | None = None, link: Link = BEGIN
) -> Iterator[tuple[Row, Ledger, Link]]:
    """Verify rows one by one and add them to the ledger, whose last row left `link`. Raises as `verify` does."""
    for row, entry, after in verify(study, rows, len(ledger) if ledger is not None else 0, link):
        try:
            ledger = Ledger([entry]) if ledger is None else ledger.append(entry)
        except _CANNOT_FOLLOW as error:
            raise _unfollowed(row.seq, error) from error
        yield row, ledger, after


def _unfollowed(seq: int, error: Exception) -> Unsound:
    return Unsound(f"entry {seq} cannot be followed: {type(error).__name__}: {' '.join(str(error).split())}")


def _body(row: Row, study: str, seq: int, link: Link) -> Mapping[str, Any]:
    if row.seq != seq:
        raise Unsound(f"entry {seq} is missing")
    try:
        if row.sum != checksum(link.sum, study, seq, row.kind, row.body, row.at):
            raise Unsound(f"entry {seq} does not match its checksum")
        body = loads(row.body)
    except TypeError:  # SQLite keeps what it is given: a damaged field may be of another type
        raise Unsound(f"entry {seq} does not match its checksum") from None
    except ValueError:
        raise Unsound(f"entry {seq} is not JSON") from None
    if not isinstance(body, dict):
        raise Unsound(f"entry {seq} is not a JSON object")
    return body


def _format(kind: str, body: Mapping[str, Any], before: int | None) -> int | None:
    """The format that holds after this row: the opening row names one, and so does a note of the topic `format`."""
    names_it = kind == "opened" or (kind == "note" and body.get("topic") == "format")
    return int(body["format"]) if names_it else before
