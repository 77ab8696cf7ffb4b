"""Who races: our policies by their names, other tools as TOOL_METHOD, and an oracle that knows every curve.

    ours        every registered policy that chooses between configs, with its default settings
    quick       those of ours that decide in a few milliseconds
    optuna, …   all methods of that tool
    all         everything that is installed
    NAME{…}     one of ours with settings, as JSON: bhpt{"eps": 0.5}

Left out of ours: those that tune one run while it trains, since separate curves cannot say what a run with changing
hyperparameters would do, and `replay_fixed`, which is told its configs.
"""

from __future__ import annotations

import atexit
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import shoestring
from benchmarks.race.peers import environments
from benchmarks.race.peers.policy import Driver, PeerError, PeerPolicy
from benchmarks.race.problems import Problem, Unit
from shoestring import policies
from shoestring.core.deciding.decision import Decision, Finish
from shoestring.core.deciding.policy import Policy, train_new
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config

ORACLE = "oracle"
SLOW = frozenset(  # tens of milliseconds a decision and more: `race cost`
    ("bhpt", "bo_bos", "boil", "fabolas_epochs", "freeze_thaw_bo", "lc_prediction", "rollout")
)
ALWAYS = ("random_search", "top_k_after_one", ORACLE)


@dataclass(frozen=True)
class Oracle:
    """Trains the config that gets furthest within the budget, up to its best step: nobody can do better."""

    config: Config
    until: int
    name: ClassVar[str] = ORACLE

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return Finish("it has the best") if ledger.trials else train_new(ledger, self.config, self.until)


class NotThere(Exception):
    """This method cannot run on this problem, or is not installed: reported, not counted."""


def ours() -> list[str]:
    return [
        name
        for name in policies.names()
        if name != "replay_fixed" and ".online." not in policies.REGISTRY.get(name, "")
    ]


def peers(suite: str | None = None) -> list[str]:
    """Methods of other tools, installed or not, that can race on this suite; without one, on any."""
    return [
        f"{tool}_{method}"
        for tool, known in environments.TOOLS.items()
        for method in (
            *known.methods,
            *(known.plain_methods if suite in (None, "plain") else ()),
            *(known.trained_methods if suite in (None, "trained") else ()),
        )
    ]


def named(words: Sequence[str], suite: str | None) -> list[str]:
    """What these words stand for on this suite (None: on any), in order, each once; what always races comes along."""
    found: list[str] = []
    for word in words:
        if word == "ours":
            found += ours()
        elif word == "quick":
            found += [name for name in ours() if name not in SLOW]
        elif word == "all":
            found += ours() + [name for name in peers(suite) if is_installed(name)]
        elif word in environments.TOOLS:
            found += [name for name in peers(suite) if (_tool(name) or ("",))[0] == word]
        elif word in (ORACLE, *peers()):
            found.append(word)
        else:
            make_own(word)  # an unknown name is an error now, not after an hour
            found.append(word)
    return list(dict.fromkeys([*found, *ALWAYS]))


def is_ours(name: str) -> bool:
    return name == ORACLE or _tool(name) is None


def kind(name: str, marked: str) -> str:
    """How it is coloured."""
    return "ref" if name == marked else "own" if is_ours(name) else "peer"


def is_installed(name: str) -> bool:
    return why_absent(name) is None


def why_absent(name: str) -> str | None:
    """What a method lacks to race at all; None: nothing."""
    tool = _tool(name)
    if tool is None:
        return None
    if environments.find_python(tool[0]) is None:
        return f"{tool[0]} is not installed: {_way_to(tool[0])}"
    return f"{environments.NOTES[name]}: {_way_to(tool[0])}" if environments.lacks_files(*tool) else None


def _way_to(tool: str) -> str:
    return f"python -m benchmarks race peers {tool}"


def make_own(word: str) -> Policy:
    name, brace, settings = word.partition("{")
    return policies.make(name, json.loads(brace + settings) if brace else None)


@contextmanager
def entering(name: str, problem: Problem, curves: float, unit: Unit, patience_s: float) -> Iterator[tuple[Policy, str]]:
    """The policy that runs this method once on this problem, and its version."""
    if name == ORACLE:
        best = problem.oracle(curves, unit)
        if best is None:
            raise NotThere("nobody knows the optimum")
        yield Oracle(*best), shoestring.__version__
        return
    tool = _tool(name)
    if tool is None:
        yield make_own(name), f"shoestring {shoestring.__version__}"
        return
    if why := why_absent(name):
        raise NotThere(why)
    if problem.fixed is None and tool[1] in environments.TOOLS[tool[0]].trained_methods:
        raise NotThere(environments.NOTES[name])
    driver = _driver(tool[0])
    # Between two decisions the loop ends a run that takes too long; only a tool that hangs in one is ended itself.
    policy = PeerPolicy(name, tool[1], driver, 2.0 * patience_s, problem.fixed or ())
    yield policy, driver.version
    policy.close()


def _tool(name: str) -> tuple[str, str] | None:
    """The tool and its method that a name means, None for one of ours."""
    found = [tool for tool in environments.TOOLS if name.startswith(f"{tool}_")]
    tool = max(found, key=len, default=None)
    return None if tool is None else (tool, name.removeprefix(f"{tool}_"))


_DRIVERS: dict[str, Driver] = {}  # one process for each tool, kept for all its studies: some take seconds to import


def _driver(tool: str) -> Driver:
    if tool in _DRIVERS and not _DRIVERS[tool].is_alive:  # it crashed, or hung and was ended
        _DRIVERS.pop(tool).close()
    if tool not in _DRIVERS:
        python = environments.find_python(tool)
        if python is None:
            raise NotThere(f"{tool} is not installed: {_way_to(tool)}")
        try:
            _DRIVERS[tool] = Driver(python, tool)
        except PeerError as error:
            raise NotThere(f"{tool} cannot be started: {error}") from None
    return _DRIVERS[tool]


def close_drivers() -> None:
    """End the processes of all tools; they are started again when they are needed."""
    while _DRIVERS:
        _DRIVERS.popitem()[1].close()


atexit.register(close_drivers)


def pid_of(name: str) -> int | None:
    """The process in which a tool thinks; None for one of ours."""
    tool = _tool(name)
    return None if tool is None else _driver(tool[0]).pid


def describe(name: str) -> dict[str, Any]:
    tool = _tool(name)
    return {
        "method": name,
        "ours": is_ours(name),
        "tool": tool[0] if tool else "shoestring",
        "absent": why_absent(name),
        "note": environments.NOTES.get(name),
    }
