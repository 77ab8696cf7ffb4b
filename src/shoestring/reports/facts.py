"""What there is to say about a study, as plain data: `--json` prints it, the text reports lay it out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from shoestring.core.books import Trial
from shoestring.core.entries import Order
from shoestring.core.ledger import Ledger

_TOLD_BY_EXPLAIN = {"compared", "score_name", "best_is", "runner_up", "runner_up_score", "last_kept_score"}
_BARS = "▁▂▃▄▅▆▇█"


def summary(name: str, ledger: Ledger, checkpoint: Path | None) -> dict[str, Any]:
    """A whole study; `checkpoint` is that of its best step, if there is one."""
    books, best = ledger.books, ledger.best
    return {
        "study": name,
        "policy": books.policy,
        "settings": dict(books.settings),
        "seed": ledger.opened.seed,
        "direction": ledger.opened.direction,
        "max_steps": ledger.max_steps,
        "budget": str(books.budget),
        "unit": books.budget.unit,
        "spent": ledger.spent,
        "reserved": ledger.reserved,
        "left": ledger.left,
        "workers": books.workers,
        "trials": len(books.trials),
        "orders": len(books.orders),
        "receipts": books.receipts,
        "seconds": {kind: seconds for kind, seconds in books.by_kind.items() if seconds},
        "best": None if best is None else _best_facts(best, checkpoint),
    }


def _best_facts(best: Trial, checkpoint: Path | None) -> dict[str, Any]:
    return {
        "value": best.best_value,
        "trial": best.number,
        "step": best.best_step,
        "config": dict(best.best_config or best.config),
        "checkpoint": None if checkpoint is None else str(checkpoint),
    }


def trial_facts(trial: Trial) -> dict[str, Any]:
    return {
        "trial": trial.number,
        "state": state_of(trial),
        "steps": trial.steps,
        "held": trial.held,
        "value": trial.best_value,
        "best_step": trial.best_step or None,
        "config": dict(trial.config),
        "failure": trial.failure.splitlines()[-1] if trial.failure else None,
    }


def order_facts(order: Order) -> dict[str, Any]:
    return order.body() | {"memo": {name: len(numbers) for name, numbers in order.memo.items()}}


def state_of(trial: Trial) -> str:
    if trial.open_order is not None:
        return "ordered"  # being trained, if a process runs the study
    if trial.failure:
        return "failed"
    if trial.diverged:
        return "diverged"
    return "complete" if trial.steps >= trial.limit else "frozen"


def sort_best_first(ledger: Ledger) -> list[Trial]:
    return sorted(ledger.trials, key=lambda trial: (trial.best_loss, trial.number))


def draw_curve(trial: Trial, width: int = 12) -> str:
    """The trial's values as a row of small bars, as reported: up is larger."""
    known = [value for value in trial.values if value is not None and math.isfinite(value)]
    if not known:
        return ""
    shown = known if len(known) <= width else [known[round(i * (len(known) - 1) / (width - 1))] for i in range(width)]
    low, high = min(shown), max(shown)
    scale = (len(_BARS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BARS[round((value - low) * scale)] for value in shown)


def say_why(order: Order) -> str:
    """`rung 2, score 0.31`: the reasons of a decision in one line."""
    return ", ".join(f"{name} {_short(value)}" for name, value in order.why.items() if name not in _TOLD_BY_EXPLAIN)


def say_config(config: Any) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in config.items())


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
