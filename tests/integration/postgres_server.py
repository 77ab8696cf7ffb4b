"""A PostgreSQL server to throw away: on loopback, on a free port, under a user without rights, gone with the tests."""

from __future__ import annotations

import atexit
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

START_S = 60.0


def new_database() -> str:
    """The address of an empty database on this process's server; skips the test, with the reason, if there is none."""
    psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")
    server = _server()
    if isinstance(server, str):
        pytest.skip(server)
    name = f"test_{uuid.uuid4().hex}"
    with psycopg.connect(_address(server, "postgres"), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return _address(server, name)


def _address(port: int, database: str) -> str:
    return f"postgresql://tester@127.0.0.1:{port}/{database}"


@lru_cache(maxsize=1)
def _server() -> int | str:
    """The port of the server, which is started on the first call; or the reason why there is none."""
    found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
    if found is None:
        return "PostgreSQL is not installed: no initdb on PATH or in /usr/lib/postgresql/*/bin"
    binaries = Path(found).resolve().parent
    whom: dict[str, Any] = {}
    folder = Path(tempfile.mkdtemp(prefix="shoestring-postgresql-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    if os.getuid() == 0:  # which PostgreSQL refuses to be
        user = next((u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody") and u.pw_uid), None)
        if user is None:
            return "PostgreSQL must not run as root, and there is no user postgres or nobody to run it as"
        os.chown(folder, user.pw_uid, user.pw_gid)
        whom = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    quiet: dict[str, Any] = {"cwd": folder, "stdin": subprocess.DEVNULL, "stderr": subprocess.STDOUT, **whom}
    data = folder / "data"
    made = subprocess.run(
        [binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=START_S,
        **quiet,
    )
    if made.returncode:
        return f"initdb failed: {' '.join(made.stdout.split())[-500:]}"
    port = _free_port()
    with open(folder / "log", "wb") as log:
        server = subprocess.Popen(
            [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"],
            stdout=log,
            **quiet,
        )
    atexit.register(_stop, server)
    return port if _answers(server, port) else f"postgres does not start: {(folder / 'log').read_text()[-500:]}"


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def _answers(server: subprocess.Popen[bytes], port: int) -> bool:
    import psycopg

    deadline = time.monotonic() + START_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(_address(port, "postgres")).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
        else:
            return True
    return False


def _stop(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGINT)  # a fast but clean end
    try:
        server.wait(START_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
