"""Reports for a terminal: the status of a study, one decision explained, the end of a run."""

from __future__ import annotations

import math
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.ledger.entries import Amended, Note, Order, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.text import count, printable
from shoestring.reports import facts
from shoestring.reports.facts import (
    draw_curve,
    paid_by_price,
    say_config,
    say_why,
    slow_workers,
    sort_best_first,
    state_of,
)
from shoestring.reports.reasons import label_numbers, say_reason

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
_MUCH_THINKING = 0.25  # of all seconds; above, the policy costs more than it can save
_THINKING_SEEN_S, _THINKING_SEEN_ORDERS = 3.0, 5  # before that, one slow import would look like a slow policy


def status(name: str, ledger: Ledger, checkpoint: Path | str | None, rows: int = 10) -> RenderableType:
    """A whole study; `checkpoint` is that of its best step, if there is one."""
    from rich.console import Group
    from rich.text import Text

    budget = ledger.budget
    head = Text.assemble(
        (printable(name), "bold"),
        f"  {ledger.books.policy}, seed {ledger.opened.seed}, ",
        f"{count(len(ledger.trials), 'trial')}, {count(len(ledger.orders), 'order')}\n",
        f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}",
        f", reserved {budget.show(ledger.reserved)}" if ledger.reserved else "",
        f", left {budget.show(ledger.left)}",
        _say_training_share(ledger),
        _say_prices(ledger),
    )
    trouble = [*_failure_lines(ledger), *_slow_lines(ledger)]
    return Group(head, best_line(ledger, checkpoint), *trouble, trial_table(ledger, rows))


def _say_prices(ledger: Ledger) -> str:
    """Where workers differ in price: what was bought at which."""
    parts = [
        f"{show_seconds(one['seconds'])} at {one['price_factor']:g} times the rate ({one['workers']} workers)"
        for one in paid_by_price(ledger)
    ]
    return f"\nbought {', '.join(parts)}" if parts else ""


def _slow_lines(ledger: Ledger) -> list[RenderableType]:
    from rich.text import Text

    return [
        Text(
            f"slow: worker {printable(one['worker'])} takes {one['times_slower']:.1f} times as long as the others "
            f"({one['steps']} steps)",
            "yellow",
        )
        for one in slow_workers(ledger)
    ]


def _failure_lines(ledger: Ledger) -> list[RenderableType]:
    from rich.text import Text

    failed = sum(bool(trial.failure) for trial in ledger.trials)
    if not failed:
        return []
    groups = facts.failures(ledger)
    lines = [f"{group['count']} x {printable(group['text'])} ({_say_trials(group['trials'])})" for group in groups]
    rest = failed - sum(group["count"] for group in groups)
    lines += [f"{rest} more of other kinds"] if rest else []
    return [Text(f"{failed} failed:", "red"), *(Text(f"  {line}") for line in lines)]


def _say_trials(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"trial{'' if len(numbers) == 1 else 's'} {shown}"


def best_line(ledger: Ledger, checkpoint: Path | str | None) -> RenderableType:
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
    for column, width in (("trial", 5), ("order", 5), ("state", 8), ("steps", 5), ("best", 11), ("curve", 12)):
        table.add_column(column, justify="left" if column in ("state", "curve") else "right", width=width)
    table.add_column("config", ratio=1, no_wrap=True, overflow="ellipsis")
    trials = sort_best_first(ledger)
    running = [trial for trial in trials if trial.open_order is not None]
    shown = running + [trial for trial in trials if trial.open_order is None]
    for trial in shown[: max(rows, len(running))]:
        value = trial.best_value
        table.add_row(
            str(trial.number),
            str(trial.last_order),  # `explain` takes it
            Text("running" if live and trial.open_order is not None else state_of(trial), _STYLES[state_of(trial)]),
            str(trial.steps),
            "–" if value is None else f"{value:.5g}",
            draw_curve(trial),
            Text(say_config(trial.config), overflow="ellipsis"),
        )
    if len(shown) > rows:
        table.add_row("", "", "", "", "", "", Text(f"and {len(shown) - rows} more", "dim"))
    return table


def decision(ledger: Ledger, order: Order) -> RenderableType:
    """One order: what was decided, on what, and what came of it."""
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
    rows += [("because", say_reason(order, ledger)), *label_numbers(order, ledger)]
    rows += [(f"step {receipt.step}", _say_step(receipt)) for receipt in facts.receipts_of(ledger, order.number)]
    for name, value in rows:
        table.add_row(Text(printable(name)), Text(printable(str(value))))
    return table


def _say_step(receipt: Receipt) -> str:
    said = receipt.status if receipt.value is None else f"{receipt.value:.6g}"
    if receipt.status == "diverged" and receipt.value is not None:
        said += ", diverged"
    metrics = f"  {say_config(receipt.metrics)}" if receipt.metrics else ""
    return f"{said} in {show_seconds(receipt.cost.total)}{metrics}"


def orders_of(ledger: Ledger, trial: int) -> RenderableType:
    """All orders of one trial, the oldest first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("order", "to step"):
        table.add_column(column, justify="right")
    table.add_column("why")
    for order in ledger.orders:
        if order.trial == trial:
            table.add_row(str(order.number), str(order.until), Text(say_why(order)))
    return table


def ending(ledger: Ledger, reason: str, text: str = "", *, in_this_process: bool = False) -> str:
    """Why a run ended, in one sentence. `in_this_process`: training ran here, where no step can be cut off."""
    budget = ledger.budget
    spent, over = f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}", ledger.spent - budget.total
    if over > 0 and budget.show(ledger.spent) != budget.show(budget.total):  # less cannot be seen
        is_by_step = in_this_process and over > _seconds_after_last_step(ledger) * budget.per_second(ledger.workers)
        why = ": the last step could not be cut off" if is_by_step else ""
        spent += f" ({budget.show(over)} over{why})"
    spent += _say_training_share(ledger)
    return f"{printable(text) if reason in ('policy', 'budget') and text else _REASONS[reason]}: {spent}"


def _say_training_share(ledger: Ledger) -> str:
    """Where time is money, how much of it went into steps."""
    share = ledger.books.training_share
    return "" if share is None or ledger.budget.unit == "epochs" else f", {share:.0%} of it on training"


def _seconds_after_last_step(ledger: Ledger) -> float:
    """Of thinking and saving at the end of a run: at most an entry of each."""
    last = takewhile(lambda entry: isinstance(entry, Note), reversed(ledger.entries(max(0, len(ledger) - 2))))
    return math.fsum(entry.facts.get("seconds", 0.0) for entry in last if isinstance(entry, Note))


def change_line(change: Amended) -> str:
    """What is amended about a study, in one line."""
    parts = []
    if change.budget is not None:
        parts.append(f"the budget is now {change.budget.show(change.budget.total)}")
    if change.policy is not None:
        settings = f" with {say_config(change.settings)}" if change.settings else ""
        parts.append(f"the policy is now {printable(change.policy)}{settings}")
    if change.workers is not None:
        parts.append(f"workers are now {change.workers}")
    return ", ".join(parts)


def say_thinking(ledger: Ledger) -> str | None:
    """What to tell the user about a policy that spends much of the budget itself; None: it does not."""
    books = ledger.books
    thought_s = books.by_kind["thinking"]
    is_seen = thought_s >= _THINKING_SEEN_S and len(books.orders) >= _THINKING_SEEN_ORDERS
    if books.budget.unit == "epochs" or not is_seen or thought_s <= _MUCH_THINKING * books.seconds:
        return None
    return (
        f"thinking took {show_seconds(thought_s)} of {show_seconds(books.seconds)} so far, and is charged: {books.policy} is "
        "too slow for steps this short; take a policy that thinks less (sequential_halving, asha), or longer steps"
    )


def warning_of(note: Note) -> str | None:
    """What to tell the user about a check that found a difference."""
    if note.topic != "check" or note.facts["same"] is not False:  # None: the check came to no end
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
