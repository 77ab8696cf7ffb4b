"""Write a study as rows for other tools: one for each receipt, or one for each entry of the ledger."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps

_FORMULA_BEGINNINGS = ("=", "+", "-", "@", "\t", "\r", "\n")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)


def step_rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield a row for each receipt, with its configuration; `repeated`: the step was trained again because its state was lost."""
    orders = ledger.orders
    last_step: dict[int, int] = {}
    for entry in ledger.entries():
        if isinstance(entry, Receipt):
            repeated = entry.step <= last_step.get(entry.trial, 0)
            if entry.is_finished:
                last_step[entry.trial] = max(entry.step, last_step.get(entry.trial, 0))
            yield {
                "order": entry.order,
                "trial": entry.trial,
                "step": entry.step,
                "value": entry.value,
                "status": entry.status,
                "repeated": repeated,
                "setup_s": entry.cost.setup,
                "train_s": entry.cost.train,
                "validate_s": entry.cost.validate,
                "at_s": entry.at,
                **{f"config.{name}": value for name, value in orders[entry.order].config.items()},
                **{f"metrics.{name}": value for name, value in entry.metrics.items()},
            }


def ledger_rows(ledger: Ledger) -> Iterator[dict[str, Any]]:
    """Yield a row for each entry, with its number and its kind."""
    for number, entry in enumerate(ledger.entries()):
        yield {"seq": number, "kind": entry.kind, **entry.body()}


def as_json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        yield dumps(row)


def as_csv(rows: Iterable[dict[str, Any]]) -> str:
    listed = list(rows)
    columns = list(dict.fromkeys(name for row in listed for name in row))
    out = io.StringIO()
    # Python does not quote a lone carriage return in all its versions, but other programs end the row there.
    has_return = any(isinstance(value, str) and "\r" in value for row in listed for value in row.values())
    writer = csv.DictWriter(
        out, columns, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC if has_return else csv.QUOTE_MINIMAL
    )
    writer.writeheader()
    writer.writerows({name: _defuse(value) for name, value in row.items()} for row in listed)
    return out.getvalue()


def _defuse(value: Any) -> Any:
    """Return a cell that no spreadsheet runs as a formula: a text that begins like one gets an apostrophe before it."""
    is_formula = isinstance(value, str) and value.startswith(_FORMULA_BEGINNINGS) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value
