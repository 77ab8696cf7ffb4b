"""The tool's end of the connection. It uses the standard library only, because it runs in the environment of another tool.

    python link.py optuna        drive_optuna.py has a VERSION, and a run(study) that calls study.train(…) until it is stopped

Each line is one JSON object. The race opens a study, the tool sends what to train, and the race answers with losses:

    race  {"kind": "init", "method": "tpe", "seed": 7, "max_steps": 50, "parameters": […], "rows": […] or null, "budget": …}
    tool  {"kind": "train", "trial": "3", "config": {"x0": 0.1, …}, "row": null, "until": 9, "copy_of": null}
    race  {"kind": "result", "losses": […], "costs_s": […], "steps": 9, "ended": false, "row": 17, "left": 120.0}
    race  {"kind": "stop"}                              the budget is used up; another init may follow
    tool  {"kind": "finish"}                            the tool is finished, or {"kind": "error", "text": …}

`until` counts all steps of a trial. A trial that was trained before is resumed, and only the new steps are charged: so a tool
can pause trials. A tool that cannot pause opens a new trial with the same configuration and is charged again. With `rows`, only
these configurations exist: a tool gives the number of one, or a point, and the answer says which row replaced the point.

Where models are really trained, a new trial may begin as a copy of another trial in its present state (`copy_of`), with other
values for all parameters that are not `fixed`. Its steps count from 1.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import random
import sys
import traceback


class Stopped(BaseException):
    """The budget is used up. A BaseException, so that no `except Exception` of a tool catches it."""


class Study:
    """One study: the facts from the init message, and `train`."""

    def __init__(self, connection, init):
        self._connection = connection
        self.method, self.seed, self.max_steps = init["method"], init["seed"], init["max_steps"]
        self.parameters, self.rows = init["parameters"], init["rows"]
        self.budget, self.unit = init["budget"], init["unit"]
        self.row = None  # row of the last training
        self.costs_s = []  # of the last training
        self.ended = False  # whether the last trained curve has ended

    def train(self, trial, config=None, row=None, until=1, copy_of=None):
        """Train a trial up to step `until`; return the losses of the new steps (infinite: diverged)."""
        order = {"kind": "train", "trial": str(trial), "config": config, "row": row, "until": int(until)}
        order["copy_of"] = None if copy_of is None else str(copy_of)
        answer = self._connection.request(order)
        if answer["kind"] != "result":
            raise Stopped
        self.row, self.costs_s, self.ended = answer["row"], answer["costs_s"], answer["ended"]
        return [math.inf if loss is None else loss for loss in answer["losses"]]


class Connection:
    def __init__(self):
        # What a tool prints must not mix with the messages.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._in = sys.stdin

    def send(self, message):
        self._out.write(json.dumps(message, allow_nan=False) + "\n")
        self._out.flush()

    def receive(self):
        line = self._in.readline()
        if not line:
            raise SystemExit(0)  # the race is over
        return json.loads(line)

    def request(self, message):
        self.send(message)
        return self.receive()


def serve(tool):
    """Send hello, then call `run(study)` for every study that the race opens."""
    connection = Connection()  # before the import, because some tools print when they are imported
    try:
        driver = importlib.import_module(f"drive_{tool}")
    except Exception:
        connection.send({"kind": "error", "text": traceback.format_exc()[-2000:]})
        return
    connection.send({"kind": "hello", "version": driver.VERSION})
    while True:
        init = connection.receive()
        if init["kind"] != "init":
            continue  # a stop that arrives after the tool has finished
        _seed_all(init["seed"])
        try:
            driver.run(Study(connection, init))
            connection.send({"kind": "finish"})
        except Stopped:
            pass
        except Exception:
            connection.send({"kind": "error", "text": traceback.format_exc()[-2000:]})


def _seed_all(seed):
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
        sys.modules["torch"].set_num_threads(1)


# for tools that work in the unit cube ------------------------------------------------------------------------------


def from_cube(parameters, point):
    """Return the configuration of a point in [0, 1]^d."""
    return {p["name"]: _value(p, min(max(float(u), 0.0), 1.0)) for p, u in zip(parameters, point, strict=True)}


def _value(parameter, u):
    if parameter["kind"] == "choice":
        options = parameter["options"]
        return options[min(int(u * len(options)), len(options) - 1)]
    low, high = parameter["low"], parameter["high"]
    value = low * (high / low) ** u if parameter["log"] else low + u * (high - low)
    return min(max(round(value), low), high) if parameter["kind"] == "int" else value


def to_cube(parameters, config):
    """Return the point in [0, 1]^d of a configuration; a choice is at the centre of its cell."""
    point = []
    for p in parameters:
        value = config[p["name"]]
        if p["kind"] == "choice":
            point.append((p["options"].index(value) + 0.5) / len(p["options"]))
        elif p["log"]:
            point.append(math.log(value / p["low"]) / math.log(p["high"] / p["low"]))
        else:
            point.append((value - p["low"]) / (p["high"] - p["low"]))
    return point


if __name__ == "__main__":
    sys.modules["link"] = sys.modules["__main__"]  # drivers import this module, not a second copy
    serve(sys.argv[1])
