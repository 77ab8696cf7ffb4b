"""A PostgreSQL server for tests: started on the first call, one for each test process, gone with it."""

from __future__ import annotations

from functools import lru_cache

import pytest
from throwaway_postgresql import NoServer, Server

__all__ = ["Server", "new_database"]


def new_database() -> str:
    """The address of an empty database on this process's server; skips the test, with the reason, if there is none."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    server = _server()
    if isinstance(server, str):
        pytest.skip(server)
    return server.new_database()


@lru_cache(maxsize=1)
def _server() -> Server | str:
    """The server, or the reason why there is none."""
    try:
        return Server.start()
    except NoServer as error:
        return str(error)
