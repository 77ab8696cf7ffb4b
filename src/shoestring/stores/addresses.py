"""From an address to a store."""

from __future__ import annotations

from pathlib import Path

from shoestring.errors import StoreError
from shoestring.stores.in_memory import Memory
from shoestring.stores.store import Store

DEFAULT_STORE = "sqlite:///shoestring.db"  # in the present folder
PASSWORD_VARIABLE = "SHOESTRING_STORE_PASSWORD"  # of a server whose address leaves it out; the driver knows PGPASSWORD


def open_store(where: str | Store | None, *, must_exist: bool = False) -> Store:
    """`sqlite:///file.db` (or just `file.db`), `postgresql://…`, or None for memory."""
    if where is None:
        return Memory()
    if isinstance(where, Path):
        where = str(where)
    if not isinstance(where, str):
        if isinstance(where, type) or not all(hasattr(where, part) for part in ("load", "append", "lease")):
            raise StoreError(f"store={where!r} must be an address, as sqlite:///file.db, or an object that is a store")
        return where
    if not where.isprintable():
        raise StoreError(f"the store {where!r} must be an address of printable characters, as sqlite:///file.db")
    if "://" not in where:
        where = f"sqlite:///{where}"
    scheme = where.split("://", 1)[0]
    if scheme.split("+", 1)[0] not in ("sqlite", "postgresql"):
        raise StoreError(f"the store {where!r} must begin with sqlite:/// or postgresql://")
    file = where.removeprefix("sqlite:///").partition("?")[0]
    if must_exist and scheme == "sqlite" and not _exists(Path(file)):
        raise StoreError(f"there is no store {file!r}: give its place with --store")
    from shoestring.stores.sql import Sql

    return Sql(where)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long, or a folder on the way is closed
        return False
