"""Reading ledgers of older formats: a study outlives the version of shoestring that began it.

The `opened` entry names the format it was written in. A newer shoestring that takes such a study up appends a note
`format`, so entries before the note are of the old format and entries after it of the new one. `MIGRATIONS[n]` turns a
body of format n into one of format n + 1; reading applies as many as are needed, and never rewrites what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from shoestring.core.entries import FORMAT, Entry, from_stored
from shoestring.errors import StudyError

Migration = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # (kind, body) -> body of the next format
MIGRATIONS: dict[int, Migration] = {}  # format 1 is the first


def read(rows: Iterable[tuple[str, Mapping[str, Any]]], found: int | None = None) -> Iterator[Entry]:
    """Entries from (kind, body) in the order stored. `found`: the format to begin with, when the rows begin later."""
    for kind, body in rows:
        if kind == "opened":
            found = int(body["format"])
        if kind == "note" and body.get("topic") == "format":
            found = int(body["format"])
        if found is None:
            raise StudyError("the ledger does not begin with an `opened` entry: it is no study")
        if found > FORMAT:
            raise StudyError(
                f"the study is of format {found}, this shoestring reads up to {FORMAT}: install a newer one"
            )
        for version in range(found, FORMAT):
            body = MIGRATIONS[version](kind, body)
        yield from_stored(kind, body)
