"""Replay of a given list of orders, one after the other, for example to reproduce a study or to test a runner.

    orders = [[0, {"lr": 0.1}, 3], [1, {"lr": 0.01}, 3], [1, null, 9]]

Each line is trial, config, until. Trial numbers count the trials of the list, and a trial's first line starts it. A config of
null means a new configuration for a new trial, and the same configuration as before for an old one. Lines of a trial that has
failed, diverged, ended or already has that many steps are skipped. Configurations that the user enqueued come before the next
line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from shoestring.core.values.checks import is_whole
from shoestring.errors import PolicyError
from shoestring.policy import (
    Amendment,
    Decision,
    Entry,
    Labels,
    Ledger,
    Order,
    StudyDefinition,
    Train,
    Wait,
    WhyText,
    find_untried_config,
    nothing_to_train,
    start_trial,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFixed:
    orders: Sequence[Sequence[Any]] = ()
    name: ClassVar[str] = "replay_fixed"
    why_labels: ClassVar[Labels] = {
        "from": "source of the configuration",
        "line": "line of the list (number, from 0)",
    }

    def __post_init__(self) -> None:
        n_trials = 0
        for number, line in enumerate(self.orders):
            problem = _find_problem(line, n_trials)
            if problem:
                raise PolicyError(
                    f"ReplayFixed(orders) has line {number}, {line!r}: {problem}. Write [trial, config or null, until]."
                )
            n_trials = max(n_trials, line[0] + 1)

    def decide(self, ledger: Ledger, rng: np.random.Generator) -> Decision:
        position = ledger.view(ReplayView())
        if ledger.queue:
            return start_trial(ledger, ledger.queue[0], ledger.max_steps, why={"from": "queue"})
        for number in range(position.lines, len(self.orders)):
            listed, config, until = self.orders[number]
            until = min(until, ledger.max_steps)
            memo = {"line": [float(number), float(listed)]}
            if listed not in position.trials:
                config = find_untried_config(ledger) if config is None else config
                if config is None:
                    return nothing_to_train(ledger)
                return start_trial(ledger, config, until, why={"line": number}, memo=memo)
            trial = ledger.trials[position.trials[listed]]
            if trial.open_order is not None:
                return Wait()
            if trial.is_ended or trial.steps >= until:
                continue
            config = trial.config if config is None else config
            until = min(until, trial.limit)
            return Train(trial=trial.number, config=config, until=until, why={"compared": 0, "line": number}, memo=memo)
        return nothing_to_train(ledger, "all orders of the list were given")

    @staticmethod
    def describe_why(order: Order) -> WhyText:
        return WhyText(origin=f"line {order.why['line']} of the list" if "line" in order.why else "")


@dataclass(slots=True)
class ListPosition:
    """How far the list has been ordered."""

    lines: int = 0  # number of lines up to the last one that was ordered
    trials: dict[int, int] = field(default_factory=dict)  # number in the list -> number in the ledger


@dataclass(frozen=True, slots=True)
class ReplayView:
    """View of the position in the list; a change of policy sets it back to the start."""

    def start(self, definition: StudyDefinition) -> ListPosition:
        return ListPosition()

    def absorb(self, state: ListPosition, entry: Entry) -> ListPosition:
        if isinstance(entry, Order) and "line" in entry.memo:
            number, listed = entry.memo["line"]
            state.lines = int(number) + 1
            state.trials.setdefault(int(listed), entry.trial)
        elif isinstance(entry, Amendment) and entry.policy is not None:
            state = ListPosition()
        return state


def _find_problem(line: Any, n_trials: int) -> str:
    if isinstance(line, str) or not isinstance(line, Sequence) or len(line) != 3:
        return "it must have three items"
    trial, config, until = line
    if not is_whole(trial) or not 0 <= trial <= n_trials:
        return f"trial {trial!r} must be a whole number from 0 to {n_trials}, the next new one"
    if config is not None and not isinstance(config, Mapping):
        return f"config {config!r} must be a dict of parameters or null"
    if not is_whole(until) or until < 1:
        return f"until {until!r} must be a whole number, 1 or more"
    return ""
