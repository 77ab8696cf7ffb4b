"""A temporary PostgreSQL server on 127.0.0.1, on a free port and under an unprivileged user; it ends with this process."""

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
from pathlib import Path
from typing import Any

START_S = 60.0  # longest time to start or to stop; a busy machine needs several seconds


class NoServer(Exception):
    """No server can be started here; the message is the reason."""


class Server:
    """A running server, created by `start`. `stop` ends it and all connections; `launch` starts it again with its data."""

    def __init__(self, command: list[str], user: dict[str, Any], folder: Path, port: int) -> None:
        self.port = port
        self._command, self._user, self._folder = command, user, folder
        self.launch()
        atexit.register(self.stop)

    @classmethod
    def start(cls) -> Server:
        found = shutil.which("initdb") or max(glob.glob("/usr/lib/postgresql/*/bin/initdb"), default=None)
        if found is None:
            raise NoServer("PostgreSQL is not installed: no initdb on PATH or in /usr/lib/postgresql/*/bin")
        binaries = Path(found).resolve().parent
        folder = Path(tempfile.mkdtemp(prefix="shoestring-postgresql-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        user = _choose_user(folder)
        data = folder / "data"
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_S,
            **user,
        )
        if made.returncode:
            raise NoServer(f"initdb failed: {' '.join(made.stdout.split())[-500:]}")
        port = _free_port()
        command = [f"{binaries}/postgres", "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        return cls(command, user, folder, port)

    def address(self, database: str) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create an empty database and return its address."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.address(name)

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # fast but clean
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def launch(self) -> None:
        with open(self._folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C in the terminal must not reach the server
                **self._user,
            )
        if not self._answers():
            raise NoServer(f"postgres does not start: {(self._folder / 'log').read_text()[-500:]}")

    def _answers(self) -> bool:
        import psycopg

        deadline = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                psycopg.connect(self.address("postgres")).close()
            except psycopg.OperationalError:
                time.sleep(0.05)
            else:
                return True
        return False


def _choose_user(folder: Path) -> dict[str, Any]:
    """Return the user for the server, and make that user the owner of the folder: PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return {}
    user = next((u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody") and u.pw_uid), None)
    if user is None:
        raise NoServer("PostgreSQL must not run as root, and there is no user postgres or nobody to run it as")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
