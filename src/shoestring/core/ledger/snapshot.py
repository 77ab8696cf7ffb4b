"""Snapshots: write the state of a study as text and read it back exactly. A store uses them to open long studies quickly.

The text is one JSON object. Trials are written by column, because that is read several times as fast as one object per trial.
Non-finite numbers are tagged as everywhere in the ledger; `tagged` lists the few parts that contain such numbers. The text has
only the number of orders, because orders are entries and are read from there when they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import FORMAT, Order
from shoestring.core.ledger.lazy_list import LazyList
from shoestring.core.ledger.running_totals import StepTimes
from shoestring.core.ledger.state import OpenOrder, StudyState, Trial
from shoestring.core.values.strict_json import TAG, tag, untag

_RULES = 3  # increase this when accounting computes the same fields by other rules
_TRIAL_FIELDS = [field.name for field in fields(Trial)]
_OPEN_ORDER_FIELDS = [field.name for field in fields(OpenOrder) if field.name != "order"]
_ENCODED_FIELDS = ("budget", "trials", "orders", "open_orders", "used", "step_costs")
_PLAIN_FIELDS = [field.name for field in fields(StudyState) if field.init and field.name not in _ENCODED_FIELDS]
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode

_ORDER_FIELDS = [field.name for field in fields(Order)]
# A snapshot of another layout is not read. A new field changes the layout automatically.
LAYOUT = f"{_RULES} {FORMAT}: {' '.join([*_TRIAL_FIELDS, *_OPEN_ORDER_FIELDS, *_PLAIN_FIELDS, *_ORDER_FIELDS])}"


def write(state: StudyState) -> str:
    """Return the state as one line of JSON."""
    parts: dict[str, Any] = {name: getattr(state, name) for name in _PLAIN_FIELDS}
    parts["budget"] = str(state.budget)
    parts["orders"] = len(state.orders)
    parts["open_orders"] = [
        [one.order.body(), *(getattr(one, name) for name in _OPEN_ORDER_FIELDS)] for one in state.open_orders.values()
    ]
    parts["used"] = sorted(state.used)
    parts["step_costs"] = state.step_costs.ascending()
    for name in _TRIAL_FIELDS:
        parts[f"trial {name}"] = [getattr(trial, name) for trial in state.trials]
    # The best config is nearly always the trial's last one, which need not be written twice.
    parts["trial best_config"] = [_best_config(trial) for trial in state.trials]
    texts: dict[str, str] = {}
    tagged = []
    for name, value in parts.items():
        texts[name], is_tagged = _to_text(value)
        if is_tagged:
            tagged.append(name)
    texts["tagged"] = _encode(tagged)
    return "{" + ",".join(f"{_encode(name)}:{text}" for name, text in texts.items()) + "}"


def read(text: str, fetch_orders: Callable[[int], list[Order]]) -> StudyState:
    """Return the state from the text that `write` returned; `fetch_orders(n)` reads the first n orders when they are needed.

    Raises ValueError, TypeError or LookupError on any other text.
    """
    parts = json.loads(text)
    for name in parts.pop("tagged"):
        parts[name] = untag(parts[name])
    columns = {name: parts.pop(f"trial {name}") for name in _TRIAL_FIELDS}
    bests = zip(columns["best_config"], columns["config"], strict=True)
    columns["best_config"] = [config if best is True else best for best, config in bests]
    columns["digests"] = [{int(step): one for step, one in digests.items()} for digests in columns["digests"]]
    trials = [Trial(*row) for row in zip(*(columns[name] for name in _TRIAL_FIELDS), strict=True)]
    n_orders, open_orders = parts.pop("orders"), {}
    for body, *values in parts.pop("open_orders"):
        order = Order(**body)
        open_orders[order.number] = OpenOrder(order, **dict(zip(_OPEN_ORDER_FIELDS, values, strict=True)))
    budget, used, step_costs = Budget(parts.pop("budget")), set(parts.pop("used")), StepTimes(parts.pop("step_costs"))
    if parts.keys() != set(_PLAIN_FIELDS):
        raise ValueError(f"not the fields of the state: {', '.join(parts.keys() ^ set(_PLAIN_FIELDS))}")
    orders = LazyList(n_orders, lambda: fetch_orders(n_orders))
    parts |= {"budget": budget, "trials": trials, "orders": orders, "open_orders": open_orders, "used": used}
    return StudyState(step_costs=step_costs, **parts)


def _best_config(trial: Trial) -> Any:
    """Return the trial's best config, or True if it equals the trial's last config."""
    return True if trial.best_config is not None and trial.best_config == trial.config else trial.best_config


def _to_text(value: Any) -> tuple[str, bool]:
    """Return a value as JSON, and whether it has tags. JSON without tags is tried first, because tagging is slow."""
    try:
        text = _encode(value)
        if f'"{TAG}' not in text:
            return text, False
    except (TypeError, ValueError):  # a number that is not finite, or not a plain one (NumPy's)
        pass
    return _encode(tag(value)), True
