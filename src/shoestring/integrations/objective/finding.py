"""Which parameters an objective has, and under which conditions: found by calling it.

A call draws a value for each parameter that the objective asks for. A **switch** is a parameter with few values: a choice, or an
integer range of a few numbers. Calls are repeated until each value of each switch was tried, because the objective may ask for
other parameters then. A parameter that some calls lack is conditional. Its condition is the smallest set of switches, all asked
for before it, whose values tell the calls that have it from those that lack it. If each of several switches does so alone, more
calls tell them apart: in each of these, the later half of the switches get a value that they never had together with the
parameter. The earlier half keep theirs, and the objective asks for them again, since nothing before them has changed.

Everything here is a function of the calls so far; `tuning` makes the calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from shoestring.core.space.parameters import Choice, Constant, Int, Parameter
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import SpaceError
from shoestring.integrations.objective.calls import REMEDY, require_same

_MAX_OPTIONS, _MAX_INTEGERS = 16, 8  # values of a switch; each of them costs a call
Condition = dict[str, list[Any]]  # stored values by switch


@dataclass(frozen=True, slots=True)
class Question:
    """A parameter that the objective asked for, where, and the stored value that it got."""

    parameter: Parameter
    where: str
    value: Any


@dataclass(slots=True)
class Call:
    """One call of the objective: what it asked for, and what it reported."""

    number: int
    pinned: Mapping[str, Any]  # stored values that this call tries
    seen: Mapping[str, Sequence[Any]]  # values of switches in earlier calls; others are preferred
    rng: np.random.Generator
    known: Mapping[str, Question]  # parameters of earlier calls
    asked: dict[str, Question] = field(default_factory=dict)
    values: list[float] = field(default_factory=list)  # one for each step
    metrics: list[Mapping[str, float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    has_reports: bool = False
    has_returned: bool = False
    failure: BaseException | None = None

    def answer(self, name: str, parameter: Parameter, where: str) -> Any:
        """Draw a value for a parameter, and remember it."""
        if name in self.known:
            require_same(name, self.known[name].parameter, parameter, where)
        if self.has_reports:
            raise SpaceError(
                f"the objective asks for {name!r} ({where}) after its first report: ask for all parameters before it, or {REMEDY}"
            )
        stored = self._draw(name, parameter)
        self.asked[name] = Question(parameter, where, stored)
        return parameter.with_object(stored)

    def _draw(self, name: str, parameter: Parameter) -> Any:
        if name in self.pinned:
            try:
                return parameter.accept(self.pinned[name])
            except ValueError as rule:
                raise SpaceError(f"{name} = {self.pinned[name]!r} {rule}") from None
        if isinstance(parameter, Constant):
            return parameter.stored_value
        if is_switch(parameter) and (new := _unseen(parameter, self.seen.get(name, ()))):
            return new[int(self.rng.integers(len(new)))]
        return parameter.from_unit(float(self.rng.random()))

    def has(self, condition: Condition) -> bool:
        """Return whether the values of this call fulfil a condition."""
        return all(name in self.asked and _is_in(self.asked[name].value, values) for name, values in condition.items())


def is_switch(parameter: Parameter) -> bool:
    """Return whether other parameters may depend on this one."""
    return (isinstance(parameter, Choice) and 1 < parameter.size <= _MAX_OPTIONS) or (
        isinstance(parameter, Int) and parameter.size <= _MAX_INTEGERS
    )


def list_parameters(calls: Sequence[Call]) -> dict[str, Question]:
    """Return each parameter as it was first asked for, in this order."""
    found: dict[str, Question] = {}
    for call in calls:
        for name, question in call.asked.items():
            found.setdefault(name, question)
    return found


def list_seen(calls: Sequence[Call]) -> dict[str, list[Any]]:
    """Return the values that each switch has had."""
    parameters = list_parameters(calls)
    return {
        name: _distinct(call.asked[name].value for call in calls if name in call.asked)
        for name, question in parameters.items()
        if is_switch(question.parameter)
    }


def list_untried(calls: Sequence[Call]) -> list[tuple[str, Any]]:
    """Return the values of switches that no call has had."""
    parameters = list_parameters(calls)
    return [(n, value) for n, seen in list_seen(calls).items() for value in _unseen(parameters[n].parameter, seen)]


def plan_next(calls: Sequence[Call], tried: set[str]) -> dict[str, Any] | None:
    """Return the values of switches for the next call; None if there is nothing left to find out.

    `tried` has the plans so far, and gets this one: an objective that does not follow its switches must not be called for ever.
    """
    if not calls:
        return {}
    for plan in [*_plans_of_untried(calls), *_plans_that_separate(calls)]:
        if (key := dumps(plan)) not in tried:
            tried.add(key)
            return plan
    return None


def _plans_of_untried(calls: Sequence[Call]) -> list[dict[str, Any]]:
    plans = []
    for name, value in list_untried(calls):
        base = next(call for call in reversed(calls) if name in call.asked)
        plans.append({**_switches_before(base, name), name: value})
    return plans


def _plans_that_separate(calls: Sequence[Call]) -> list[dict[str, Any]]:
    plans = []
    for name in list_parameters(calls):
        candidates = find_conditions(name, calls)
        if len(candidates) > 1:
            base = next(call for call in calls if name in call.asked)
            flipped = {}
            for condition in candidates[len(candidates) // 2 :]:
                ((switch, values),) = condition.items()
                others = _unseen(base.asked[switch].parameter, values)
                flipped[switch] = others[0]
            plans.append({**_switches_before(base, name), **flipped})
    return plans


def _switches_before(call: Call, name: str) -> dict[str, Any]:
    before = list(call.asked)[: list(call.asked).index(name)]
    return {other: call.asked[other].value for other in before if is_switch(call.asked[other].parameter)}


def find_conditions(name: str, calls: Sequence[Call]) -> list[Condition]:
    """Return the conditions that explain which calls have a parameter; the most probable last, none if nothing explains it.

    A call that failed says only what it has, since it might have asked for more.
    """
    having = [call for call in calls if name in call.asked]
    lacking = [call for call in calls if call.failure is None and name not in call.asked]
    if not lacking:
        return [{}]
    switches = [s for s in _switches_before(having[0], name) if all(s in _switches_before(c, name) for c in having)]
    values = {switch: _distinct(call.asked[switch].value for call in having) for switch in switches}
    # A switch with all its values in these calls tells nothing beyond its own condition.
    switches = [switch for switch in switches if _unseen(having[0].asked[switch].parameter, values[switch])]
    single: list[Condition] = [{switch: values[switch]} for switch in switches]
    single = [condition for condition in single if not any(call.has(condition) for call in lacking)]
    if single:
        return single
    joint: Condition = {}
    for switch in reversed(switches):  # the nearest first
        left = [call for call in lacking if call.has({switch: values[switch]})]
        if len(left) < len(lacking):
            joint[switch], lacking = values[switch], left
        if not lacking:
            return [joint]
    return []


def make_space(calls: Sequence[Call]) -> Space:
    """Return the space of all parameters that the calls have asked for; raise SpaceError if a condition is not found."""
    found: dict[str, Parameter] = {}
    if not any(call.asked for call in calls):
        raise SpaceError(
            "the objective asks for no parameters: call trial.suggest_float, suggest_int or suggest_categorical"
        )
    for name, question in list_parameters(calls).items():
        conditions = find_conditions(name, calls)
        if not conditions:
            raise SpaceError(
                f"{name} ({question.where}) is there only sometimes, and no choice or integer asked for before it tells when: "
                f"ask for it always, or {REMEDY}"
            )
        found[name] = replace(question.parameter, when=conditions[-1])
    return Space(found)


def count_reports(calls: Sequence[Call]) -> int:
    """Return the number of steps of a full training: the most that a call has had, of those that returned if there are any."""
    returned = [call for call in calls if call.has_returned]
    return max(len(call.values) for call in returned or calls)


def complete_config(space: Space, call: Call) -> dict[str, Any]:
    """Return the config of a call; if it failed before it had asked for all parameters, with values for the others."""
    values = {n: p.stored_value if isinstance(p, Constant) else p.from_unit(0.5) for n, p in space.parameters.items()}
    return space.validate(space.keep_active(values | {name: question.value for name, question in call.asked.items()}))


def _unseen(parameter: Parameter, seen: Sequence[Any]) -> list[Any]:
    return [value for value in parameter.levels(_MAX_OPTIONS) if not _is_in(value, seen)]


def _is_in(value: Any, values: Sequence[Any]) -> bool:
    return dumps(value) in map(dumps, values)


def _distinct(values: Any) -> list[Any]:
    return list({dumps(value): value for value in values}.values())
