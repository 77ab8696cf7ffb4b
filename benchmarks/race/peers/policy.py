"""The race's end of the line: a policy that asks another tool what to train.

It runs under the same loop as our own policies, so the tool's money, clock and thinking time are counted by the same code.
Unlike our policies it has a memory, the tool itself, so its studies cannot be resumed.
"""

from __future__ import annotations

import json
import math
import os
import select
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.race.copying import COPY_OF
from shoestring.core.deciding.decision import Decision, Finish, Train
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Constant, Float, Int
from shoestring.core.space.space import Config, Space

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"), "1")


_START_S = 120.0  # that a tool may take to be imported
LINK = Path(__file__).parent / "link.py"


class PeerError(Exception):
    """The tool crashed, hung, or cannot be started; the text is its own."""


class Driver:
    """A driver process: one tool, one study at a time, any number of studies."""

    def __init__(self, python: Path, tool: str) -> None:
        self._process = subprocess.Popen(
            [str(python), str(LINK), tool],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            bufsize=1,
            env={**{name: text for name, text in os.environ.items() if name != "PYTHONPATH"}, **ONE_THREAD},
        )
        try:
            self.version = str(self.hear(_START_S)["version"])
        except PeerError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def say(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            self.close()
            raise PeerError("the tool's process has ended") from None

    def hear(self, patience_s: float) -> dict[str, Any]:
        """The next line; whoever says nothing for so long is ended."""
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], patience_s)[0]:
            self.close()
            raise PeerError(f"the tool said nothing for {patience_s:.0f} s")
        line = stdout.readline()
        if not line:
            self.close()
            raise PeerError("the tool's process has ended")
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            self.close()
            raise PeerError(f"the tool said {line[:200]!r}, which is not a line of JSON") from None
        if message["kind"] == "error":
            raise PeerError(str(message["text"]).strip())
        return message

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # what it was told last, and did not read
                    stream.close()


class Lanes:
    """A space as a tool is told it: columns x0, x1, … of numbers and of choices by number; rows of a listed space."""

    def __init__(self, space: Space, fixed: Collection[str] = ()) -> None:
        self.space, self._fixed = space, fixed
        self._varying = [(name, p) for name, p in space.parameters.items() if not isinstance(p, Constant)]

    @cached_property
    def parameters(self) -> list[dict[str, Any]]:
        return [
            {"name": f"x{j}", **_describe(parameter), "fixed": name in self._fixed}
            for j, (name, parameter) in enumerate(self._varying)
        ]

    @cached_property
    def rows(self) -> list[dict[str, Any]] | None:
        """A parameter that a row lacks is given the middle of its range: no tool here has a word for inactive."""
        if self.space.rows is None:
            return None
        return [
            {f"x{j}": _outward(p, row.get(name)) for j, (name, p) in enumerate(self._varying)}
            for row in self.space.rows
        ]

    def config(self, point: Mapping[str, Any]) -> Config:
        """The config of a space that is not listed."""
        config = {name: _inward(p, point[f"x{j}"]) for j, (name, p) in enumerate(self._varying)}
        constants = {name: p.value for name, p in self.space.parameters.items() if isinstance(p, Constant)}
        return {**config, **constants}

    @cached_property
    def _places(self) -> tuple[Any, Any]:
        """(n, numbers) places in the unit cube, (n, choices) numbers of options."""
        assert self.rows is not None
        return self._place(self.rows)

    def _place(self, points: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        numbers = [(f"x{j}", p) for j, (_, p) in enumerate(self._varying) if not isinstance(p, Choice)]
        choices = [f"x{j}" for j, (_, p) in enumerate(self._varying) if isinstance(p, Choice)]
        cube = np.array([[p.to_unit(_inward(p, point[x])) for x, p in numbers] for point in points])
        return cube.reshape(len(points), -1), np.array([[int(point[x]) for x in choices] for point in points])

    def nearest_row(self, point: Mapping[str, Any], used: set[int]) -> int:
        """The row that is nearest in the unit cube, a different choice counting 1; of those not used as long as there are any."""
        cube, options = self._places
        at, chosen = self._place([point])
        distance = ((cube - at) ** 2).sum(axis=1) + (options != chosen).sum(axis=1)
        if len(used) < len(distance):
            distance[list(used)] = math.inf
        return int(np.argmin(distance))


def _describe(parameter: Any) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"kind": "choice", "options": [str(i) for i in range(len(parameter.options))]}
    kind = "int" if isinstance(parameter, Int) else "float"
    return {"kind": kind, "low": parameter.low, "high": parameter.high, "log": parameter.log}


def _outward(parameter: Any, value: Any) -> Any:
    if value is None:
        return "0" if isinstance(parameter, Choice) else parameter.from_unit(0.5)
    if isinstance(parameter, Choice):
        return str([str(option) for option in parameter.options].index(str(value)))
    return value


def _inward(parameter: Any, value: Any) -> Any:
    if isinstance(parameter, Choice):
        return parameter.options[int(value)]
    value = min(max(value, parameter.low), parameter.high)
    return float(value) if isinstance(parameter, Float) else round(value)


class PeerPolicy:
    """One study of a tool. Not for a second one: the tool remembers."""

    def __init__(self, name: str, method: str, driver: Driver, patience_s: float, fixed: Collection[str] = ()) -> None:
        self.name, self._method, self._driver = name, method, driver
        self._fixed = fixed  # hyperparameters that a copied training cannot change
        self._deadline = time.monotonic() + patience_s
        self._trials: dict[str, int] = {}  # the tool's name of a trial: ours
        self._rows: dict[int, int] = {}  # our trial: its row
        self._lanes: Lanes | None = None
        self._asked: tuple[str, int] | None = None  # the order under way: the tool's trial, and its steps before it
        self._until = 0  # and where it was to end
        self._is_heard = True  # the tool waits for nothing

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if self._is_cut_off(ledger):
            return Finish("the money is gone")
        message = self._told(ledger) if self._asked else self._init(ledger)
        while True:
            request = self._ask(message)
            if request["kind"] == "finish":
                self._is_heard = True
                return Finish("the tool wants no more")
            key = request["trial"]
            number = self._trials.get(key)
            if number is None:
                return self._open(ledger, request)
            trial = ledger.trials[number]
            self._asked = (key, trial.steps)
            if not trial.is_stuck and request["until"] > trial.steps:
                return self._train(number, trial.config, request["until"])
            message = self._told(ledger)  # nothing to buy: it is at its end, or further than that already

    def close(self) -> None:
        """Leave the tool ready for the next study."""
        if not self._is_heard and self._driver.is_alive:
            self._driver.say({"kind": "stop"})
            self._is_heard = True

    def _ask(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._driver.say(message)
        self._is_heard = True  # an error leaves it ready too
        request = self._driver.hear(max(0.0, self._deadline - time.monotonic()))
        self._is_heard = False
        return request

    def _init(self, ledger: Ledger) -> dict[str, Any]:
        self._lanes = Lanes(ledger.space, self._fixed)
        return {
            "kind": "init",
            "method": self._method,
            "seed": ledger.opened.seed,
            "max_steps": ledger.max_steps,
            "parameters": self._lanes.parameters,
            "rows": self._lanes.rows,
            "budget": ledger.budget.total,
            "unit": ledger.budget.unit,
        }

    def _told(self, ledger: Ledger) -> dict[str, Any]:
        assert self._asked is not None
        key, before = self._asked
        trial = ledger.trials[self._trials[key]]
        losses = [None if loss is None or not math.isfinite(loss) else loss for loss in trial.losses[before:]]
        if trial.failure:
            losses.append(None)
        costs_s = trial.step_costs[before:]
        row = self._rows.get(trial.number)
        return {
            "kind": "told",
            "losses": losses,
            "costs_s": costs_s,
            "steps": trial.steps,
            "ended": trial.is_stuck,
            "row": row,
            "left": ledger.left,
        }

    def _open(self, ledger: Ledger, request: Mapping[str, Any]) -> Train:
        assert self._lanes is not None
        number = len(ledger.trials)
        if ledger.space.rows is None:
            config = self._lanes.config(request["config"])
        else:
            row = request["row"]
            if row is None:
                row = self._lanes.nearest_row(request["config"], set(self._rows.values()))
            self._rows[number] = row
            config = ledger.space.rows[row]
        self._trials[request["trial"]] = number
        self._asked = (request["trial"], 0)
        why = {} if request["copy_of"] is None else {COPY_OF: self._trials[request["copy_of"]]}
        return self._train(number, config, max(1, min(request["until"], ledger.max_steps)), why)

    def _train(self, number: int, config: Config, until: int, why: Mapping[str, Any] | None = None) -> Train:
        """Nothing is held back for it: a tool begins what it likes, and is cut off when the money is gone."""
        self._until = until
        return Train(trial=number, config=config, until=until, reserve=0.0, why=why or {})

    def _is_cut_off(self, ledger: Ledger) -> bool:
        """Whether the last order was not carried out in full, or no further step can be paid."""
        if ledger.budget.unit == "epochs" and ledger.left < 1:
            return True
        trial = ledger.trials[self._trials[self._asked[0]]] if self._asked else None
        return trial is not None and not trial.is_stuck and trial.steps < self._until
