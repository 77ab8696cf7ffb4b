"""Explain why an order was placed: a sentence that a person can check, and the numbers behind it with their units.

`core/deciding/comparison.py` lists what every policy reports about a comparison. What a policy reports in addition is put into
words by its own class (see `core/deciding/why_text.py`); if the class of another package does not do so, the raw names are shown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from shoestring import policies
from shoestring.core.deciding.why_text import SHARED_NAMES, Labels, WhyText
from shoestring.core.ledger.entries import Amendment, Entry, Note, Order, StudyDefinition
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import QueuedConfig
from shoestring.core.space.parameters import Scalar
from shoestring.core.space.space import Config
from shoestring.core.values.strict_json import loads
from shoestring.errors import PolicyError
from shoestring.reports.facts import format_config

# sentences ------------------------------------------------------------------------------------------------------------


def describe_reason(order: Order, ledger: Ledger) -> str:
    """Return one sentence: what was compared, by which score and how close it was, or where the configuration comes from."""
    why, text = order.why, _text_of(order, ledger)
    if "compared" not in why:
        return "the policy did not report what it compared"
    reason = _describe_comparison(order) if why["compared"] else f"nothing was compared: {_find_origin(order, ledger)}"
    parts = [why.get("stage"), reason, *text.clauses, why.get("reason")]
    return "; ".join(str(part) for part in parts if part)


def describe_briefly(order: Order, ledger: Ledger) -> str:
    """Return the reason for an order in a few words, for tables and for the live view."""
    why, text = order.why, _text_of(order, ledger)
    if why.get("stage"):
        return str(why["stage"])
    if why.get("compared") and why["compared"] != 1:
        return _describe_rank(order)
    return ", ".join(text.clauses) or ("" if "compared" not in why else _find_origin(order, ledger))


def _describe_comparison(order: Order) -> str:
    why = order.why
    compared, name, score, runner_up = why["compared"], why["score_name"], _format(why["score"]), _name_runner_up(order)
    if "last_kept_score" in why:
        return _describe_race(order)
    if compared == 1 or not runner_up:
        return f"there was no other candidate: {name} {score}"
    other_score = _format(why["runner_up_score"])
    if why["best_is"] == "drawn":
        return (
            f"drawn from {compared} with probability {score}; the most probable other ({runner_up}) had {other_score}"
        )
    if runner_up == why["runner_up"]:  # not a candidate but another action
        return f"{name} {score}, against {other_score} for {runner_up}"
    had = "had the same" if why["score"] == why["runner_up_score"] else f"had {other_score}"
    return f"chosen from {compared} for the {why['best_is']} {name}, {score}; the runner-up ({runner_up}) {had}"


def _describe_race(order: Order) -> str:
    why, runner_up = order.why, _name_runner_up(order)
    place = f"{_describe_rank(order)}, with {_format(why['score'])}"
    if why["score"] != why["last_kept_score"]:
        last = f"the last trial that was kept had {_format(why['last_kept_score'])}"
    else:
        last = "it was the only trial that was kept" if why["rank"] == 0 else "it was the last trial that was kept"
    if not runner_up:
        return f"{place}; {last}, and none was left out"
    return f"{place}; {last}, the best one left out ({runner_up}) had {_format(why['runner_up_score'])}"


def _describe_rank(order: Order) -> str:
    why = order.why
    if why["best_is"] == "drawn":
        return f"drawn from {why['compared']} with probability {_format(why['score'])}"
    if "rank" in why:
        return f"{_ordinal(int(str(why['rank'])) + 1)} of {why['compared']} by {why['score_name']}"
    if isinstance(why.get("runner_up"), str) and not str(why["runner_up"]).startswith("{"):
        return f"better than {why['runner_up']}"
    return f"{why['best_is']} of {why['compared']} by {why['score_name']}"


def _name_runner_up(order: Order) -> str:
    name = order.why.get("runner_up")
    if isinstance(name, int):
        return f"trial {name}"
    return format_config(loads(name)) if isinstance(name, str) and name.startswith("{") else str(name or "")


def _find_origin(order: Order, ledger: Ledger) -> str:
    """Return where the configuration of an order comes from if no comparison led to it."""
    why = order.why
    if any(dict(config) == dict(order.config) for config in ledger.view(_POLICY_HISTORY_VIEW).queued):
        return "you asked for this configuration"
    if why.get("phase") == "finding the parameters":
        return "the objective was called to find its parameters"
    if "interrupted" in (why.get("phase"), why.get("was")):
        return "the trial continues where it was interrupted"
    if origin := _text_of(order, ledger).origin:
        return origin
    if order.number not in ledger.view(_POLICY_HISTORY_VIEW).first_orders:
        return "the trial continues as planned"
    return f"the next new configuration in the order fixed by seed {ledger.definition.seed}"


# numbers --------------------------------------------------------------------------------------------------------------


def label_numbers(order: Order, ledger: Ledger) -> list[tuple[str, Scalar]]:
    """Return the numbers that the policy reported in addition to the comparison, each with its label and unit."""
    labels: Labels = getattr(_find_policy_class(order, ledger), "why_labels", {})
    unit = ledger.budget.unit
    return [
        (labels[name].format(unit=unit) if name in labels else name, value)
        for name, value in order.why.items()
        if name not in SHARED_NAMES
    ]


def _format(value: Scalar) -> str:
    if isinstance(value, float) and math.isinf(value):
        return "unlimited (never tried)"  # an arm that was never observed
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


# the policy that placed an order --------------------------------------------------------------------------------------


@dataclass(slots=True)
class _PolicyHistory:
    """The facts about a study that reasons need."""

    policies: list[tuple[int, str]] = field(default_factory=list)  # number of the first order, name of the policy
    queued: list[Config] = field(default_factory=list)  # configurations that the user asked for
    first_orders: set[int] = field(default_factory=set)  # numbers of the orders that started a trial
    trials: int = 0


@dataclass(frozen=True, slots=True)
class _PolicyHistoryView:
    def start(self, definition: StudyDefinition) -> _PolicyHistory:
        return _PolicyHistory([(0, definition.policy)])

    def absorb(self, state: _PolicyHistory, entry: Entry) -> _PolicyHistory:
        if isinstance(entry, Amendment) and entry.policy is not None:
            state.policies.append((-1, entry.policy))  # its first order is not placed yet
        elif isinstance(entry, Order):
            if state.policies[-1][0] < 0:
                state.policies[-1] = (entry.number, state.policies[-1][1])
            if entry.trial == state.trials:
                state.first_orders.add(entry.number)
                state.trials += 1
        elif isinstance(entry, Note) and entry.topic == QueuedConfig.topic:
            state.queued.append(QueuedConfig.from_note(entry).config)
        return state


_POLICY_HISTORY_VIEW = _PolicyHistoryView()


def _find_policy_class(order: Order, ledger: Ledger) -> type | None:
    """Return the class of the policy that placed the order; None if it is not registered here."""
    history = ledger.view(_POLICY_HISTORY_VIEW).policies
    name = next(name for first, name in reversed(history) if 0 <= first <= order.number)
    try:
        return policies.find_class(name)  # this imports the module, so it is done only when an order is shown
    except (PolicyError, ImportError, AttributeError):  # passed as an object, or from a package that is not installed
        return None


def _text_of(order: Order, ledger: Ledger) -> WhyText:
    describe = getattr(_find_policy_class(order, ledger), "describe_why", None)
    return WhyText() if describe is None else describe(order)
