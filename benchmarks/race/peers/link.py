"""The tool's end of the line. Standard library only: it runs in the environment of another tool.

    python link.py optuna        drive_optuna.py has a VERSION, and a run(study) that asks study.train(…) until it is stopped

One JSON object a line. The race opens a study, the tool says what to train, the race answers with losses:

    race  {"kind": "init", "method": "tpe", "seed": 7, "max_steps": 50, "parameters": […], "rows": […] or null, "budget": …}
    tool  {"kind": "train", "trial": "3", "config": {"x0": 0.1, …}, "row": null, "until": 9, "copy_of": null}
    race  {"kind": "told", "losses": […], "costs_s": […], "steps": 9, "ended": false, "row": 17, "left": 120.0}
    race  {"kind": "stop"}                              the money is gone; the next thing said is another init, or nothing
    tool  {"kind": "finish"}                            it wants no more, or {"kind": "error", "text": …}

`until` counts all steps of a trial. A trial that was trained before goes on where it stood and only the new steps are paid:
that is how a tool pauses. A tool that cannot pause opens a new trial with the same config and pays again. With `rows`,
only these configs exist: a tool names one by its number, or gives a point and is told which row it was taken for.

Where models are really trained, a new trial may begin as a copy of another as that stands (`copy_of`), with another config in
all parameters but those that are `fixed`. Its steps count from its own beginning.
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
    """The money is gone. No `except Exception` of a tool may hold it up."""


class Study:
    """One study: what the race said when it opened it, and `train`."""

    def __init__(self, line, init):
        self._line = line
        self.method, self.seed, self.max_steps = init["method"], init["seed"], init["max_steps"]
        self.parameters, self.rows = init["parameters"], init["rows"]
        self.budget, self.unit = init["budget"], init["unit"]
        self.row = None  # that the last training was taken for
        self.costs_s = []  # of the last training
        self.ended = False  # whether the last trained curve is at its end

    def train(self, trial, config=None, row=None, until=1, copy_of=None):
        """Train up to `until` steps in all; the losses of the new steps (infinite: diverged)."""
        asked = {"kind": "train", "trial": str(trial), "config": config, "row": row, "until": int(until)}
        asked["copy_of"] = None if copy_of is None else str(copy_of)
        answer = self._line.ask(asked)
        if answer["kind"] != "told":
            raise Stopped
        self.row, self.costs_s, self.ended = answer["row"], answer["costs_s"], answer["ended"]
        return [math.inf if loss is None else loss for loss in answer["losses"]]


class Line:
    def __init__(self):
        # What a tool prints must not get between the lines.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        os.dup2(2, 1)
        sys.stdout = sys.stderr
        self._in = sys.stdin

    def say(self, message):
        self._out.write(json.dumps(message, allow_nan=False) + "\n")
        self._out.flush()

    def hear(self):
        line = self._in.readline()
        if not line:
            raise SystemExit(0)  # the race is over
        return json.loads(line)

    def ask(self, message):
        self.say(message)
        return self.hear()


def serve(tool):
    """Say hello, then `run(study)` for every study that the race opens."""
    line = Line()  # before the tool is imported: some print then
    try:
        driver = importlib.import_module(f"drive_{tool}")
    except Exception:
        line.say({"kind": "error", "text": traceback.format_exc()[-2000:]})
        return
    line.say({"kind": "hello", "version": driver.VERSION})
    while True:
        init = line.hear()
        if init["kind"] != "init":
            continue  # a stop that comes after the tool had finished by itself
        _seed_all(init["seed"])
        try:
            driver.run(Study(line, init))
            line.say({"kind": "finish"})
        except Stopped:
            pass
        except Exception:
            line.say({"kind": "error", "text": traceback.format_exc()[-2000:]})


def _seed_all(seed):
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
        sys.modules["torch"].set_num_threads(1)


# for tools that think in the unit cube ------------------------------------------------------------------------------


def from_cube(parameters, point):
    """A config from numbers in [0, 1], one for each parameter."""
    return {p["name"]: _value(p, min(max(float(u), 0.0), 1.0)) for p, u in zip(parameters, point, strict=True)}


def _value(parameter, u):
    if parameter["kind"] == "choice":
        options = parameter["options"]
        return options[min(int(u * len(options)), len(options) - 1)]
    low, high = parameter["low"], parameter["high"]
    value = low * (high / low) ** u if parameter["log"] else low + u * (high - low)
    return min(max(round(value), low), high) if parameter["kind"] == "int" else value


def to_cube(parameters, config):
    """The numbers in [0, 1] of a config; a choice sits in the middle of its cell."""
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
    sys.modules["link"] = sys.modules["__main__"]  # what drivers import is this very module
    serve(sys.argv[1])
