"""Reports for a terminal: the status of a study, one decision explained, the end of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring.core.entries import Note, Order
from shoestring.core.ledger import Ledger
from shoestring.reports.facts import draw_curve, say_config, say_why, sort_best_first, state_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"ordered": "bold cyan", "frozen": "blue", "complete": "green", "failed": "red", "diverged": "magenta"}
_REASONS = {
    "budget": "the budget is spent",
    "policy": "the policy sees nothing more worth buying",
    "deadline": "the deadline has come",
    "stopped": "stopped; what was bought is in the ledger",
    "failing": "the same failure came again and again",
}


def status(name: str, ledger: Ledger, checkpoint: Path | None, rows: int = 10) -> RenderableType:
    """A whole study; `checkpoint` is that of its best step, if there is one."""
    from rich.console import Group
    from rich.text import Text

    budget = ledger.budget
    head = Text.assemble(
        (name, "bold"),
        f"  {ledger.books.policy}, seed {ledger.opened.seed}, {len(ledger.trials)} trials, {len(ledger.orders)} orders\n",
        f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}",
        f", reserved {budget.show(ledger.reserved)}" if ledger.reserved else "",
        f", left {budget.show(ledger.left)}",
    )
    return Group(head, best_line(ledger, checkpoint), trial_table(ledger, rows))


def best_line(ledger: Ledger, checkpoint: Path | None) -> RenderableType:
    from rich.text import Text

    best = ledger.best
    if best is None or best.best_config is None:
        return Text("best: none yet, no validated step")
    value = best.best_value
    line = Text.assemble("best ", (f"{value:.6g}", "bold green"), f" (trial {best.number}, step {best.best_step})  ")
    line.append(say_config(best.best_config))
    if checkpoint is not None:
        line.append(f"\ncheckpoint {checkpoint}")
    return line


def trial_table(ledger: Ledger, rows: int, *, live: bool = False) -> RenderableType:
    """`live`: a process runs the study right now, so what was ordered is being trained."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for column, width in (("trial", 5), ("state", 8), ("steps", 5), ("best", 11), ("curve", 12)):
        table.add_column(column, justify="right" if column in ("trial", "steps", "best") else "left", width=width)
    table.add_column("config", ratio=1, no_wrap=True, overflow="ellipsis")
    trials = sort_best_first(ledger)
    running = [trial for trial in trials if trial.open_order is not None]
    shown = running + [trial for trial in trials if trial.open_order is None]
    for trial in shown[: max(rows, len(running))]:
        value = trial.best_value
        table.add_row(
            str(trial.number),
            Text("running" if live and trial.open_order is not None else state_of(trial), _STYLES[state_of(trial)]),
            str(trial.steps),
            "–" if value is None else f"{value:.5g}",
            draw_curve(trial),
            Text(say_config(trial.config), overflow="ellipsis"),
        )
    if len(shown) > rows:
        table.add_row("", "", "", "", "", Text(f"and {len(shown) - rows} more", "dim"))
    return table


def decision(ledger: Ledger, order: Order) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    budget = ledger.budget
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    rows: list[tuple[str, Any]] = [
        ("order", f"{order.number}: train trial {order.trial} to step {order.until}, validate {order.validate}"),
        ("config", say_config(order.config)),
        ("expected", "unknown" if order.expected_cost is None else budget.show(order.expected_cost)),
        ("reserved", budget.show(order.reserve)),
        ("thought", f"{order.thinking_s * 1000:.2f} ms"),
    ]
    rows += [(name, value) for name, value in order.why.items()]
    for name, value in rows:
        table.add_row(name, Text(str(value)))
    return table


def ending(ledger: Ledger, reason: str, text: str = "") -> str:
    """Why a run ended, in one sentence."""
    budget = ledger.budget
    spent = f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}"
    if ledger.spent > budget.total:
        spent += f" ({budget.show(ledger.spent - budget.total)} over: the last step could not be cut off)"
    return f"{text if reason == 'policy' and text else _REASONS[reason]}: {spent}"


def warning_of(note: Note) -> str | None:
    """What to tell the user about a check that found a difference."""
    if note.topic != "check" or note.facts["same"]:
        return None
    if note.facts.get("declared") == "inexact":
        return (
            f"resuming is inexact, as the training code declares: step {note.facts['step']} of trial {note.facts['trial']} gave "
            f"{note.facts['went_on']!r} going on and {note.facts['resumed']!r} after save and load"
        )
    return (
        f"resuming changes the result: step {note.facts['step']} of trial {note.facts['trial']} gave "
        f"{note.facts['went_on']!r} going on and {note.facts['resumed']!r} after save and load. "
        "Save everything that training depends on: weights, optimiser, random generators, position in the data."
    )


def order_line(order: Order) -> str:
    why = say_why(order)
    return f"trial {order.trial} to step {order.until}" + (f" because {why}" if why else "")
