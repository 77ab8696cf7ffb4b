"""Turn the address of a ledger store into the store."""

from __future__ import annotations

from pathlib import Path

from shoestring.core.values.credentials import hide_credentials
from shoestring.errors import StoreError, show_argument
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.ledger_store import LedgerStore

IN_MEMORY = ":memory:"
DEFAULT_STORE = "sqlite:///shoestring.db"  # in the current folder
PASSWORD_VARIABLE = "SHOESTRING_STORE_PASSWORD"  # used if the address has no password; the driver also reads PGPASSWORD


def open_store(where: str | LedgerStore | None, *, must_exist: bool = False) -> LedgerStore:
    """Return the store at an address.

    Parameters
    ----------
    where : str or path or LedgerStore or None
        `sqlite:///file.db` (or `file.db`), `postgresql://…`, a store, or None or ":memory:" for a store in memory.
    must_exist : bool
        Raise an error if the file of a SQLite address does not exist.

    Returns
    -------
    LedgerStore
        The store.

    Raises
    ------
    StoreError
        If the address cannot be used.
    """
    if isinstance(where, Path):
        where = str(where)
    if where is None or (isinstance(where, str) and where == IN_MEMORY):
        if must_exist and where is not None:
            raise StoreError(f"the store {where!r} is a new one in memory, so there is no study in it to open")
        return MemoryStore()
    if not isinstance(where, str):
        if isinstance(where, type) or not all(hasattr(where, part) for part in ("load", "append", "lease")):
            raise StoreError(
                f"{show_argument('store', where)} must be an address, such as sqlite:///file.db, or a ledger store"
            )
        return where
    where = _complete(where)
    scheme = where.split("://", 1)[0]
    if scheme.split("+", 1)[0] not in ("sqlite", "postgresql"):
        raise StoreError(f"the store {hide_credentials(where)!r} must begin with sqlite:/// or postgresql://")
    file = where.removeprefix("sqlite:///").partition("?")[0]
    if must_exist and scheme == "sqlite" and not _exists(Path(file)):
        from shoestring.stores.nearby import describe_stores

        others = describe_stores()
        remedy = f"give one that exists, with {show_argument('store')}"
        raise StoreError(f"there is no store {file!r}: {remedy}{f' ({others})' if others else ''}")
    from shoestring.stores.sql import SqlStore

    return SqlStore(where)


def _complete(address: str) -> str:
    """Return an address with its scheme: without one it is the name of a file."""
    shown = hide_credentials(address)
    if not address.isprintable():
        raise StoreError(f"the store {shown!r} must be an address of printable characters, such as sqlite:///file.db")
    if "://" in address:
        return address
    if shown != address:  # a file of that name would show the password to everyone
        raise StoreError(
            f"the store {shown!r} looks like the address of a server, which begins with postgresql://; for a file of that "
            "name write sqlite:/// before it"
        )
    return f"sqlite:///{address}"


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # its name is too long, or one of its folders cannot be read
        return False
