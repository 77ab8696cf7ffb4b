"""Small studies of every kind that are killed; their training code logs its work."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps
from shoestring.stores.sql import SqlStore

if TYPE_CHECKING:
    from benchmarks.kill.killed_study import ForkServer

KINDS = ("simulated", "local", "process", "command")
STORES = ("sqlite", "postgresql")
UNITS = ("epochs", "seconds")
# What happens to the studies: kill -9 of all processes; training code that prints without end; a store that does not answer
# for seconds; a driver that is stopped for seconds; training code whose children have process groups of their own, and kill -9
# of the driver alone.
WORLDS = ("kill", "flood", "away", "stop", "children")
BUDGETS = {"epochs": "60 epochs", "seconds": "8s"}
SIMULATED = {"epochs": "1500 epochs", "seconds": "4500s"}
PIECES = {"epochs": 1, "seconds": 12}  # under time budgets steps are long, so that kills interrupt many of them

# A step is many short pieces, and each logs its time, so the work before a kill is known to one piece.
TRAINER = """
import os, subprocess, time
from pathlib import Path

LOG = os.open(os.environ["KILL_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
WORLD = os.environ["KILL_WORLD"]
CHATTER = b'{"chatter": 1}\\n' * 7000


def work(lr):
    began = last = time.monotonic()
    if WORLD == "children":
        child = subprocess.Popen(["sleep", "600"], process_group=0)
        with open(os.environ["KILL_LOG"] + ".children", "a") as children:
            children.write(f"{child.pid}\\n")
    pieces = (2 + int(6 * lr)) * int(os.environ["KILL_PIECES"])
    while pieces > 0:
        pieces -= 1
        time.sleep(0.005)
        if WORLD == "flood":
            os.write(1, CHATTER)
            os.write(2, CHATTER)
            pieces += lr > 0.3  # without end: only the cutoff ends this step
        now = time.monotonic()
        os.write(LOG, b"%.6f\\n" % (now - last))
        last = now
    os.write(LOG, b"step %.6f\\n" % (last - began))


class Descent:
    def __init__(self, config):
        self.lr, self.weight = config["lr"], 5.0

    def step(self):
        work(self.lr)
        self.weight -= self.lr * (self.weight - 1)
        return self.weight**2

    def save(self, path):
        path.write_text(repr(self.weight))

    def load(self, path):
        self.weight = float(Path(path).read_text())
"""
PROGRAM = """
import json, os, pathlib
from descent import work
folder, until = pathlib.Path(os.environ["SHOESTRING_CHECKPOINT"]), int(os.environ["SHOESTRING_UNTIL"])
lr = json.loads(pathlib.Path(os.environ["SHOESTRING_CONFIG"]).read_text())["lr"]
state = folder / "state.json"
step, weight = json.loads(state.read_text()) if state.exists() else (0, 5.0)
while step < until:
    work(lr)
    weight -= lr * (weight - 1)
    step += 1
    new = folder / "new.json"
    new.write_text(json.dumps([step, weight]))
    new.replace(state)
    print(json.dumps({"step": step, "value": weight**2, "saved": True}), flush=True)
"""


class Case(NamedTuple):
    kind: str
    store: str
    unit: str
    world: str = "kill"


@dataclass
class StudyToKill:
    """A study to be killed: its folder, and the command that begins or continues it."""

    case: Case
    folder: Path
    address: str
    words: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    server: Any = None  # a PostgreSQL server of its own

    @property
    def log(self) -> Path:
        """The log of the training code: seconds, one line for each piece of work."""
        return self.folder / "work.log"

    @property
    def children(self) -> list[int]:
        """The processes that the training code has started."""
        path = Path(f"{self.log}.children")
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    @property
    def stored(self) -> Path:
        """The numbers of the entries that the store reported as stored."""
        return self.folder / "stored.log"

    def read(self) -> Ledger | None:
        store = SqlStore(self.address)
        try:
            return store.load("s")
        finally:
            store.close()


class Plan:
    """Creates studies, each in its own folder."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance = folder, chance
        self._numbers = count()
        self._server: Any = None
        _write_table(folder / "table.npz")

    def start_server(self) -> str:
        """Start a PostgreSQL server. Return the reason if that fails, else an empty text."""
        try:
            self._server = self._start_server()
        except (RuntimeError, ImportError) as error:
            return f"no PostgreSQL: {error}"
        return ""

    def _start_server(self) -> Any:
        sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
        import throwaway_postgresql

        try:
            return throwaway_postgresql.Server.start()
        except throwaway_postgresql.NoServer as error:
            raise RuntimeError(str(error)) from None

    def make(self, case: Case) -> StudyToKill:
        number = next(self._numbers)
        folder = self.folder / f"{number:04d}-{'-'.join(case)}"
        folder.mkdir()
        address = f"sqlite:///{folder}/store.db"
        if case.store == "postgresql":
            server = self._start_server() if case.world == "away" else self._server
            address = server.new_database()
        words = ["run", "--study", "s", "--store", address, "--seed", "3", "--quiet"]
        if case.kind == "simulated":
            shutil.copy(self.folder / "table.npz", folder)
            words += ["--table", "table.npz", "--policy", "asha", "--workers", "3", "--budget", SIMULATED[case.unit]]
        else:
            (folder / "descent.py").write_text(TRAINER)
            (folder / "descend").write_text(PROGRAM)
            words += ["-p", "lr={float=[1e-2,1.0],log=true}", "--max-steps", "9", "--policy", "successive_halving"]
            words += ["--budget", BUDGETS[case.unit]]
            words += {
                "local": ["descent.py:Descent"],
                "process": ["--runner", "process", "--workers", "2", "descent.py:Descent"],
                "command": ["--workers", "2", "--", sys.executable, "descend"],
            }[case.kind]
        own_server = server if case.store == "postgresql" and case.world == "away" else None
        made = StudyToKill(case, folder, address, words, server=own_server)
        made.environment = {
            "KILL_LOG": str(made.log),
            "KILL_PIECES": str(PIECES[case.unit]),
            "KILL_WORLD": case.world,
            "PYTHONPATH": f"{folder}:{':'.join(sys.path)}",
        }
        return made


def make_reference(plan: Plan, fork_server: ForkServer, kind: str, unit: str) -> list[str]:
    """Return the decisions of the same study without kills."""
    study = plan.make(Case(kind, "sqlite", unit))
    fork_server.run_to_end(study)
    return decisions(study.read())


def decisions(ledger: Ledger | None) -> list[str]:
    assert ledger is not None
    return [f"{order.trial} {dumps(order.config)} {order.until}" for order in ledger.orders]


def _write_table(path: Path) -> None:
    rng = np.random.default_rng(0)
    level, speed = rng.uniform(0.05, 0.5, (200, 1)), rng.uniform(0.2, 2, (200, 1))
    steps = np.arange(1, 28)
    np.savez(
        path,
        hp=rng.uniform(size=(200, 2)),
        hp_names=np.array(["a", "b"]),
        meta=json.dumps({"task": "synthetic", "objective": "loss", "direction": "min", "hp_categories": {}}),
        loss=(level + np.exp(-speed * steps)).astype("float32"),
        cost=(rng.uniform(1, 5, (200, 1)) * steps).astype("float32"),
    )
