"""A PostgreSQL server to throw away: on loopback, on a free port, under a user without rights, gone with this process."""

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

START_S = 60.0


class NoServer(Exception):
    """Why no server can be had here."""


class Server:
    """Made by `start`; `stop` cuts all connections off, `launch` lets it come back with what it held."""

    def __init__(self, command: list[str], whom: dict[str, Any], folder: Path, port: int) -> None:
        self.port = port
        self._command, self._whom, self._folder = command, whom, folder
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
        whom = _somebody_else(folder)
        data = folder / "data"
        made = subprocess.run(
            [binaries / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_S,
            **whom,
        )
        if made.returncode:
            raise NoServer(f"initdb failed: {' '.join(made.stdout.split())[-500:]}")
        port = _free_port()
        command = [f"{binaries}/postgres", "-D", str(data), "-h", "127.0.0.1", "-p", str(port), "-k", "", "-F"]
        return cls(command, whom, folder, port)

    def address(self, database: str) -> str:
        return f"postgresql://tester@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The address of an empty database."""
        import psycopg

        name = f"test_{uuid.uuid4().hex}"
        with psycopg.connect(self.address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.address(name)

    def stop(self) -> None:
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # a fast but clean end
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
                start_new_session=True,  # a Ctrl-C in the terminal is not for the server
                **self._whom,
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


def _somebody_else(folder: Path) -> dict[str, Any]:
    """Whom the server is to run as: PostgreSQL refuses to be root. The folder is made theirs."""
    if os.getuid() != 0:
        return {}
    user = next((u for u in pwd.getpwall() if u.pw_name in ("postgres", "nobody") and u.pw_uid), None)
    if user is None:
        raise NoServer("PostgreSQL must not run as root, and there is no user postgres or nobody to run it as")
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port
