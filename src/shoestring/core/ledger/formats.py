"""Reading ledgers of older formats: a study outlives the version of shoestring that began it.

The `opened` entry names the format it was written in. A newer shoestring that takes such a study up appends a note
`format`, so entries before the note are of the old format and entries after it of the new one. `MIGRATIONS[n]` turns a
body of format n into one of format n + 1; reading applies as many as are needed, and never rewrites what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from shoestring.core.ledger.entries import FORMAT, Entry, from_stored
from shoestring.core.space.parameters import infer
from shoestring.errors import StudyError

Migration = Callable[[str, Mapping[str, Any]], Mapping[str, Any]]  # (kind, body) -> body of the next format


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


def _write_scales(kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Format 2 says which columns of a listed space are on a log scale; format 1 put those there that spanned 100.

    It also added `worker`, `metrics`, `price_factor` and `death`, which older entries do without.
    """
    if kind != "opened":
        return body
    rows = body["space"].get("listed")
    if not isinstance(rows, list):
        return {**body, "format": 2}
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row[name] for row in rows if name in row] for name in names}
    log = [name for name, column in columns.items() if _was_on_log_scale(name, column)]
    return {**body, "format": 2, "space": {"listed": rows, **({"log": log} if log else {})}}


def _was_on_log_scale(name: str, column: list[Any]) -> bool:
    are_positive = all(type(value) in (int, float) and value > 0 for value in column)
    wide = are_positive and max(column) / min(column) >= 100
    return wide and bool(getattr(infer(name, column, log=True), "log", False))


MIGRATIONS: dict[int, Migration] = {1: _write_scales}
