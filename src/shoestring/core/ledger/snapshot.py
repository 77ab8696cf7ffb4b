"""The books of a study as text and back, exactly: what a store keeps so that opening a long study is quick.

One JSON object. Trials are written by column, since that is read several times as fast as one object a trial. Non-finite
numbers are tagged as everywhere in the ledger; `tagged` names the few parts that hold any. Orders are only counted: they
are entries, and are read from there when somebody asks.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import FORMAT, Order
from shoestring.core.ledger.lazy_list import LateList
from shoestring.core.ledger.running_totals import StepTimes
from shoestring.core.ledger.state import Books, OpenOrder, Trial
from shoestring.core.values.strict_json import TAG, plain, untag

_RULES = 2  # raise it when bookkeeping puts something else into the same fields
_TRIAL = [field.name for field in fields(Trial)]
_OPEN = [field.name for field in fields(OpenOrder) if field.name != "order"]
_SPECIAL = ("budget", "trials", "orders", "open_orders", "used", "step_costs")
_ALIKE = [field.name for field in fields(Books) if field.init and field.name not in _SPECIAL]
_encode = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode

# Books of another layout cannot be read. New fields change it by themselves.
LAYOUT = f"{_RULES} {FORMAT}: {' '.join([*_TRIAL, *_OPEN, *_ALIKE, *(field.name for field in fields(Order))])}"


def write(books: Books) -> str:
    """The books as one line of JSON."""
    parts: dict[str, Any] = {name: getattr(books, name) for name in _ALIKE}
    parts["budget"] = str(books.budget)
    parts["orders"] = len(books.orders)
    parts["open_orders"] = [
        [one.order.body(), *(getattr(one, name) for name in _OPEN)] for one in books.open_orders.values()
    ]
    parts["used"] = sorted(books.used)
    parts["step_costs"] = books.step_costs.ascending()
    for name in _TRIAL:
        parts[f"trial {name}"] = [getattr(trial, name) for trial in books.trials]
    # Nearly always its last config, which need not be written twice.
    parts["trial best_config"] = [_best_config(trial) for trial in books.trials]
    texts: dict[str, str] = {}
    tagged = []
    for name, value in parts.items():
        texts[name], is_tagged = _to_text(value)
        if is_tagged:
            tagged.append(name)
    texts["tagged"] = _encode(tagged)
    return "{" + ",".join(f"{_encode(name)}:{text}" for name, text in texts.items()) + "}"


def read(text: str, fetch_orders: Callable[[int], list[Order]]) -> Books:
    """The books that were written so; `fetch_orders(n)` gives the first n orders when somebody asks for one of them.

    Raises ValueError, TypeError or LookupError on any other text.
    """
    parts = json.loads(text)
    for name in parts.pop("tagged"):
        parts[name] = untag(parts[name])
    columns = {name: parts.pop(f"trial {name}") for name in _TRIAL}
    bests = zip(columns["best_config"], columns["config"], strict=True)
    columns["best_config"] = [config if best is True else best for best, config in bests]
    trials = [Trial(*row) for row in zip(*(columns[name] for name in _TRIAL), strict=True)]
    n_orders, open_orders = parts.pop("orders"), {}
    for body, *state in parts.pop("open_orders"):
        order = Order.from_body(body)
        open_orders[order.number] = OpenOrder(order, **dict(zip(_OPEN, state, strict=True)))
    budget, used, step_costs = Budget(parts.pop("budget")), set(parts.pop("used")), StepTimes(parts.pop("step_costs"))
    if parts.keys() != set(_ALIKE):
        raise ValueError(f"not the fields of the books: {', '.join(parts.keys() ^ set(_ALIKE))}")
    orders = LateList(n_orders, lambda: fetch_orders(n_orders))
    parts |= {"budget": budget, "trials": trials, "orders": orders, "open_orders": open_orders, "used": used}
    return Books(step_costs=step_costs, **parts)


def _best_config(trial: Trial) -> Any:
    return True if trial.best_config is not None and trial.best_config == trial.config else trial.best_config


def _to_text(value: Any) -> tuple[str, bool]:
    """A value as JSON, and whether it had to be tagged. Looking for tags value by value is slow, so it is tried without."""
    try:
        text = _encode(value)
        if f'"{TAG}' not in text:
            return text, False
    except (TypeError, ValueError):  # a number that is not finite, or of another kind: NumPy's, say
        pass
    return _encode(plain(value)), True
