"""The methods of the race: our policies by name, other tools as TOOL_METHOD, and an oracle that knows every curve.

    ours        every registered policy that chooses between configurations, with its default settings
    quick       our policies that decide within a few milliseconds
    optuna, …   all methods of that tool
    all         everything that is installed
    NAME{…}     one of ours with settings, as JSON: bhpt{"eps": 0.5}

`ours` leaves out policies that tune one run while it trains, because recorded curves cannot show what a run with changing
hyperparameters would do, and `replay_fixed`, which is given its configurations.
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
from shoestring.core.deciding.policy import Policy, start_trial
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.space import Config

ORACLE = "oracle"
SLOW = frozenset(  # tens of milliseconds per decision and more: see `race cost`
    ("bhpt", "bo_bos", "boil", "fabolas_epochs", "freeze_thaw_bo", "lc_prediction", "rollout")
)
ALWAYS_RACED = ("random_search", "top_k_after_one", ORACLE)


@dataclass(frozen=True)
class Oracle:
    """A policy that trains only the configuration with the lowest loss within the budget, up to its best step."""

    config: Config
    until: int
    name: ClassVar[str] = ORACLE

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        return (
            Finish("the best configuration is trained")
            if ledger.trials
            else start_trial(ledger, self.config, self.until)
        )


class MethodAbsentError(Exception):
    """This method is not installed or cannot run on this problem; the race reports it and does not count it."""


def ours() -> list[str]:
    return [
        name
        for name in policies.names()
        if name != "replay_fixed" and ".online." not in policies.REGISTRY.get(name, "")
    ]


def peers(suite: str | None = None) -> list[str]:
    """Return the methods of other tools, installed or not, that can race on `suite` (None: on any suite)."""
    return [
        f"{tool}_{method}"
        for tool, known in environments.TOOLS.items()
        for method in (
            *known.methods,
            *(known.plain_methods if suite in (None, "plain") else ()),
            *(known.trained_methods if suite in (None, "trained") else ()),
        )
    ]


def expand_names(words: Sequence[str], suite: str | None) -> list[str]:
    """Return the methods that `words` mean on `suite` (None: on any), without duplicates, plus `ALWAYS_RACED`."""
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
            make_own_policy(word)  # an unknown name is an error before the race begins
            found.append(word)
    return list(dict.fromkeys([*found, *ALWAYS_RACED]))


def is_ours(name: str) -> bool:
    return name == ORACLE or _tool(name) is None


def kind(name: str, reference: str) -> str:
    """Return the CSS class of a method."""
    return "ref" if name == reference else "own" if is_ours(name) else "peer"


def is_installed(name: str) -> bool:
    return absence_reason(name) is None


def absence_reason(name: str) -> str | None:
    """Return why a method cannot race at all, or None if it can."""
    tool = _tool(name)
    if tool is None:
        return None
    if environments.find_python(tool[0]) is None:
        return f"{tool[0]} is not installed: {_install_command(tool[0])}"
    return f"{environments.NOTES[name]}: {_install_command(tool[0])}" if environments.lacks_files(*tool) else None


def _install_command(tool: str) -> str:
    return f"python -m benchmarks race peers {tool}"


def make_own_policy(word: str) -> Policy:
    name, brace, settings = word.partition("{")
    return policies.make(name, json.loads(brace + settings) if brace else None)


@contextmanager
def open_policy(
    name: str, problem: Problem, curves: float, unit: Unit, patience_s: float
) -> Iterator[tuple[Policy, str]]:
    """Yield a policy that runs this method once on this problem, and its version."""
    if name == ORACLE:
        best = problem.oracle(curves, unit)
        if best is None:
            raise MethodAbsentError("the optimum is unknown")
        yield Oracle(*best), shoestring.__version__
        return
    tool = _tool(name)
    if tool is None:
        yield make_own_policy(name), f"shoestring {shoestring.__version__}"
        return
    if why := absence_reason(name):
        raise MethodAbsentError(why)
    if problem.fixed is None and tool[1] in environments.TOOLS[tool[0]].trained_methods:
        raise MethodAbsentError(environments.NOTES[name])
    driver = _driver(tool[0])
    # The loop ends a slow run between two decisions. Only a tool that hangs during a decision is killed, after this time.
    policy = PeerPolicy(name, tool[1], driver, 2.0 * patience_s, problem.fixed or ())
    yield policy, driver.version
    policy.close()


def _tool(name: str) -> tuple[str, str] | None:
    """Return the tool and its method, or None for one of our policies."""
    found = [tool for tool in environments.TOOLS if name.startswith(f"{tool}_")]
    tool = max(found, key=len, default=None)
    return None if tool is None else (tool, name.removeprefix(f"{tool}_"))


_DRIVERS: dict[str, Driver] = {}  # one process per tool for all its studies, because some tools take seconds to import


def _driver(tool: str) -> Driver:
    if tool in _DRIVERS and not _DRIVERS[tool].is_alive:  # it crashed, or it hung and was killed
        _DRIVERS.pop(tool).close()
    if tool not in _DRIVERS:
        python = environments.find_python(tool)
        if python is None:
            raise MethodAbsentError(f"{tool} is not installed: {_install_command(tool)}")
        try:
            _DRIVERS[tool] = Driver(python, tool)
        except PeerError as error:
            raise MethodAbsentError(f"{tool} cannot be started: {error}") from None
    return _DRIVERS[tool]


def close_drivers() -> None:
    """Stop the processes of all tools; they start again when they are needed."""
    while _DRIVERS:
        _DRIVERS.popitem()[1].close()


atexit.register(close_drivers)


def pid_of(name: str) -> int | None:
    """Return the process of a tool, or None for one of our policies."""
    tool = _tool(name)
    return None if tool is None else _driver(tool[0]).pid


def describe(name: str) -> dict[str, Any]:
    tool = _tool(name)
    return {
        "method": name,
        "ours": is_ours(name),
        "tool": tool[0] if tool else "shoestring",
        "absent": absence_reason(name),
        "note": environments.NOTES.get(name),
    }
