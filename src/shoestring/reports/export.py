"""Write a study as rows for other tools: one for each receipt, or one for each entry of the ledger."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

from shoestring.core.ledger.entries import Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.strict_json import dumps


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
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return out.getvalue()
