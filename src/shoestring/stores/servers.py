"""PostgreSQL: from an address to an engine, where its password comes from, and which errors mean that it went away."""

from __future__ import annotations

import os

from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, OperationalError

from shoestring.errors import MissingExtra, StoreError
from shoestring.stores.opening import PASSWORD_VARIABLE

_HIDDEN = "***"  # what other programs print in place of a password
_CONNECT_S = 30
_GONE = ("57P01", "57P02", "57P03", "08")  # SQLSTATE: shutting down, crashed, starting up, connection lost


def read_server_address(address: str) -> URL:
    """The address with its password: its own, or that of the environment."""
    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        raise StoreError(
            f"the store {address!r} is not an address: write sqlite:///file.db or postgresql://…"
        ) from None
    if url.get_backend_name() != "postgresql":
        raise StoreError(f"the store {address!r} must begin with sqlite:/// or postgresql://")
    if url.password in (None, "", _HIDDEN):
        password = os.environ.get(PASSWORD_VARIABLE)
        if password is None and url.password == _HIDDEN:
            raise StoreError(f"the store {address!r} hides its password: put it into {PASSWORD_VARIABLE}")
        url = url.set(password=password)
    return url.set(drivername="postgresql+psycopg")


def make_server_engine(url: URL) -> Engine:
    try:
        return create_engine(url, connect_args={"connect_timeout": _CONNECT_S})
    except ModuleNotFoundError:
        raise MissingExtra("the PostgreSQL store", "psycopg", "postgresql") from None


def is_gone(error: DBAPIError) -> bool:
    """Whether the server has gone away, and may come back: not when it answers that it will not do something."""
    state = getattr(error.orig, "sqlstate", None)
    if state is not None:
        return str(state).startswith(_GONE)
    return error.connection_invalidated or isinstance(error, OperationalError | InterfaceError)
