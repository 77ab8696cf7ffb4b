"""A PostgreSQL server for tests: one per test process, started at the first call, stopped when the process ends."""

from __future__ import annotations

from functools import lru_cache

import pytest
from throwaway_postgresql import NoServer, Server

__all__ = ["Server", "new_database"]


def new_database() -> str:
    """Return the address of an empty database on this process's server; skip the test with the reason if there is no server."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    server = _server()
    if isinstance(server, str):
        pytest.skip(server)
    return server.new_database()


@lru_cache(maxsize=1)
def _server() -> Server | str:
    """Return the server, or the reason why there is none."""
    try:
        return Server.start()
    except NoServer as error:
        return str(error)
