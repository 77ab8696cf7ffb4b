"""The race's end of the connection: a policy that asks another tool what to train.

It runs with the same loop as our policies, so the same code counts the tool's budget and computing time. Unlike our policies it
has state, the tool itself, so its studies cannot be resumed.
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


_IMPORT_TIMEOUT_S = 120.0
LINK = Path(__file__).parent / "link.py"


class PeerError(Exception):
    """The tool crashed, hung, or cannot be started; the message has its own text."""


class Driver:
    """The process of one tool, for any number of studies, one at a time."""

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
            self.version = str(self.receive(_IMPORT_TIMEOUT_S)["version"])
        except PeerError:
            self.close()
            raise

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
        except OSError:
            self.close()
            raise PeerError("the tool's process has ended") from None

    def receive(self, patience_s: float) -> dict[str, Any]:
        """Return the next message; kill the tool if none comes within this time."""
        stdout = self._process.stdout
        assert stdout is not None
        if not select.select([stdout], [], [], patience_s)[0]:
            self.close()
            raise PeerError(f"the tool sent nothing for {patience_s:.0f} s")
        line = stdout.readline()
        if not line:
            self.close()
            raise PeerError("the tool's process has ended")
        try:
            message: dict[str, Any] = json.loads(line)
        except ValueError:
            self.close()
            raise PeerError(f"the tool sent {line[:200]!r}, which is not a line of JSON") from None
        if message["kind"] == "error":
            raise PeerError(str(message["text"]).strip())
        return message

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):  # a message that the tool did not read
                    stream.close()


class ToolSpace:
    """The space that a tool sees: parameters x0, x1, …, the options of a choice as numbers, and the rows of a listed space."""

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
        """The rows of a listed space. An inactive parameter has the middle of its range: these tools know no inactive ones."""
        if self.space.rows is None:
            return None
        return [
            {f"x{j}": _to_tool_value(p, row.get(name)) for j, (name, p) in enumerate(self._varying)}
            for row in self.space.rows
        ]

    def config(self, point: Mapping[str, Any]) -> Config:
        """Return the configuration of a point in a space that is not listed."""
        config = {name: _from_tool_value(p, point[f"x{j}"]) for j, (name, p) in enumerate(self._varying)}
        constants = {name: p.value for name, p in self.space.parameters.items() if isinstance(p, Constant)}
        return {**config, **constants}

    @cached_property
    def _row_points(self) -> tuple[Any, Any]:
        """The rows as (n, numbers) in the unit cube and (n, choices) option numbers."""
        assert self.rows is not None
        return self._to_points(self.rows)

    def _to_points(self, points: Sequence[Mapping[str, Any]]) -> tuple[Any, Any]:
        numbers = [(f"x{j}", p) for j, (_, p) in enumerate(self._varying) if not isinstance(p, Choice)]
        choices = [f"x{j}" for j, (_, p) in enumerate(self._varying) if isinstance(p, Choice)]
        cube = np.array([[p.to_unit(_from_tool_value(p, point[x])) for x, p in numbers] for point in points])
        return cube.reshape(len(points), -1), np.array([[int(point[x]) for x in choices] for point in points])

    def nearest_row(self, point: Mapping[str, Any], used: set[int]) -> int:
        """Return the nearest row in the unit cube, a different choice counting 1, and an unused one while there is any."""
        cube, options = self._row_points
        at, chosen = self._to_points([point])
        distance = ((cube - at) ** 2).sum(axis=1) + (options != chosen).sum(axis=1)
        if len(used) < len(distance):
            distance[list(used)] = math.inf
        return int(np.argmin(distance))


def _describe(parameter: Any) -> dict[str, Any]:
    if isinstance(parameter, Choice):
        return {"kind": "choice", "options": [str(i) for i in range(len(parameter.options))]}
    kind = "int" if isinstance(parameter, Int) else "float"
    return {"kind": kind, "low": parameter.low, "high": parameter.high, "log": parameter.log}


def _to_tool_value(parameter: Any, value: Any) -> Any:
    if value is None:
        return "0" if isinstance(parameter, Choice) else parameter.from_unit(0.5)
    if isinstance(parameter, Choice):
        return str([str(option) for option in parameter.options].index(str(value)))
    return value


def _from_tool_value(parameter: Any, value: Any) -> Any:
    if isinstance(parameter, Choice):
        return parameter.options[int(value)]
    value = min(max(value, parameter.low), parameter.high)
    return float(value) if isinstance(parameter, Float) else round(value)


class PeerPolicy:
    """One study of a tool. It cannot be used for a second study, because the tool has state."""

    def __init__(self, name: str, method: str, driver: Driver, patience_s: float, fixed: Collection[str] = ()) -> None:
        self.name, self._method, self._driver = name, method, driver
        self._fixed = fixed  # hyperparameters that a copied training cannot change
        self._deadline = time.monotonic() + patience_s
        self._trials: dict[str, int] = {}  # {the tool's name of a trial: our number}
        self._rows: dict[int, int] = {}  # {our number: its row}
        self._tool_space: ToolSpace | None = None
        self._pending: tuple[str, int] | None = None  # the last order: the tool's trial and its steps before
        self._until = 0  # the step at which the last order ends
        self._is_tool_idle = True  # the tool is not waiting for an answer

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        if self._is_budget_spent(ledger):
            return Finish("the budget is used up")
        message = self._result_message(ledger) if self._pending else self._init(ledger)
        while True:
            request = self._exchange(message)
            if request["kind"] == "finish":
                self._is_tool_idle = True
                return Finish("the tool has finished")
            key = request["trial"]
            number = self._trials.get(key)
            if number is None:
                return self._open(ledger, request)
            trial = ledger.trials[number]
            self._pending = (key, trial.steps)
            if not trial.is_ended and request["until"] > trial.steps:
                return self._train(number, trial.config, request["until"])
            # There is nothing left to train: the trial has ended or is already at this step.
            message = self._result_message(ledger)

    def close(self) -> None:
        """Stop the study, so that the tool is ready for the next one."""
        if not self._is_tool_idle and self._driver.is_alive:
            self._driver.send({"kind": "stop"})
            self._is_tool_idle = True

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        self._driver.send(message)
        self._is_tool_idle = True  # also after an error
        request = self._driver.receive(max(0.0, self._deadline - time.monotonic()))
        self._is_tool_idle = False
        return request

    def _init(self, ledger: Ledger) -> dict[str, Any]:
        self._tool_space = ToolSpace(ledger.space, self._fixed)
        return {
            "kind": "init",
            "method": self._method,
            "seed": ledger.definition.seed,
            "max_steps": ledger.max_steps,
            "parameters": self._tool_space.parameters,
            "rows": self._tool_space.rows,
            "budget": ledger.budget.total,
            "unit": ledger.budget.unit,
        }

    def _result_message(self, ledger: Ledger) -> dict[str, Any]:
        assert self._pending is not None
        key, before = self._pending
        trial = ledger.trials[self._trials[key]]
        losses = [None if loss is None or not math.isfinite(loss) else loss for loss in trial.losses[before:]]
        if trial.failure:
            losses.append(None)
        costs_s = trial.step_costs[before:]
        row = self._rows.get(trial.number)
        return {
            "kind": "result",
            "losses": losses,
            "costs_s": costs_s,
            "steps": trial.steps,
            "ended": trial.is_ended,
            "row": row,
            "left": ledger.left,
        }

    def _open(self, ledger: Ledger, request: Mapping[str, Any]) -> Train:
        assert self._tool_space is not None
        number = len(ledger.trials)
        if ledger.space.rows is None:
            config = self._tool_space.config(request["config"])
        else:
            row = request["row"]
            if row is None:
                row = self._tool_space.nearest_row(request["config"], set(self._rows.values()))
            self._rows[number] = row
            config = ledger.space.rows[row]
        self._trials[request["trial"]] = number
        self._pending = (request["trial"], 0)
        why = {} if request["copy_of"] is None else {COPY_OF: self._trials[request["copy_of"]]}
        return self._train(number, config, max(1, min(request["until"], ledger.max_steps)), why)

    def _train(self, number: int, config: Config, until: int, why: Mapping[str, Any] | None = None) -> Train:
        """Order without a reserve: a tool may begin any step, and the end of the budget interrupts it."""
        self._until = until
        return Train(trial=number, config=config, until=until, reserve=0.0, why=why or {})

    def _is_budget_spent(self, ledger: Ledger) -> bool:
        """Return whether the last order is incomplete, or no further step can be afforded."""
        if ledger.budget.unit == "epochs" and ledger.left < 1:
            return True
        trial = ledger.trials[self._trials[self._pending[0]]] if self._pending else None
        return trial is not None and not trial.is_ended and trial.steps < self._until
