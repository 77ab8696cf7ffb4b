"""Reports for a terminal: the status of a study, the explanation of one order, and the end of a run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoestring.core.ledger.budget import Budget, show_seconds
from shoestring.core.ledger.entries import Amendment, Note, Order, Receipt
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import ChangedCheckpoint, ResumeCheck, list_earlier_studies
from shoestring.core.values.text import count, printable
from shoestring.errors import show_argument
from shoestring.reports import facts
from shoestring.reports.facts import (
    cost_by_price,
    draw_curve,
    format_config,
    rank_trials,
    slow_workers,
    state_of,
)
from shoestring.reports.reasons import describe_briefly, describe_reason, label_numbers

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"unfinished": "bold cyan", "paused": "blue", "complete": "green", "failed": "red", "diverged": "magenta"}
_REASONS = {
    "budget": "the budget is spent",
    "policy": "the policy has nothing left to train",
    "deadline": "the deadline has come",
    "stopped": "stopped; all finished steps are stored",
    "failing": "the same failure happened again and again",
}
_VALIDATED = {"each": "each step", "last": "the last step", "none": "no step"}
_HIGH_DECISION_SHARE = 0.25  # of all seconds; above it, a faster policy would do better with the same budget
_MIN_TRAINING_SHARE = 0.7  # of all seconds; below it, the other costs are named
_MIN_EXPLAINED_S = 1.0  # shares of less time say nothing about a study
_MIN_REPORTED_SHARE = 0.05  # of all seconds; a smaller cost is not worth a line
_MIN_DECISION_S, _MIN_ORDERS = 3.0, 5  # before that, one slow import would look like a slow policy
_LONG_STEP_FACTOR = 20.0  # times the longest step so far; a longer step may hang
_MIN_LONG_STEP_S = 30.0  # short steps vary more than this factor


def describe_long_step(ledger: Ledger, running_s: Mapping[int, float]) -> str | None:
    """Return a line about a step that takes more than 20 times as long as the longest so far, and 30 s; None if there is none.

    `running_s` are the seconds of the steps under way, by order.
    """
    number, seconds = max(running_s.items(), key=lambda item: item[1])
    if seconds <= _MIN_LONG_STEP_S:
        return None
    longest_s = max((step_s for trial in ledger.trials for step_s in trial.step_costs), default=0.0)
    if not 0.0 < longest_s * _LONG_STEP_FACTOR < seconds:
        return None
    trial = ledger.orders[number].trial
    return f"a step of trial {trial} has taken {seconds:.0f} s so far, and the longest before it took {longest_s:.3g} s"


def status_report(name: str, ledger: Ledger, checkpoint: Path | str | None, rows: int = 10) -> RenderableType:
    """Return the status of a study; `checkpoint` is the checkpoint of its best step, if there is one."""
    from rich.console import Group
    from rich.text import Text

    budget = ledger.budget
    head = Text.assemble(
        (printable(name), "bold"),
        f"  {ledger.state.policy}, seed {ledger.definition.seed}, ",
        f"{count(len(ledger.trials), 'trial')}\n",
        f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}",
        f", reserved {budget.show(ledger.reserved)}" if ledger.reserved else "",
        f", left {budget.show(ledger.left)}",
        _format_training_share(ledger),
        _format_passes(ledger),
        _format_prices(ledger),
    )
    earlier = [Text(line, "dim") for line in describe_earlier_studies(ledger)]
    advice = [Text(line, "yellow") for line in explain_overhead(ledger)]
    problems = [*advice, *_failure_lines(ledger), *_slow_lines(ledger)]
    return Group(head, *earlier, format_best(ledger, checkpoint), *problems, trial_table(ledger, rows))


def describe_earlier_studies(ledger: Ledger) -> list[str]:
    """Return a line for each earlier study that the study has learned from."""
    return [
        f"learned from {printable(earlier.source)}: {count(len(earlier.scores), 'trial')} of {earlier.trials}, "
        f"{count(len(earlier.parameters), 'parameter')} in common, read on {earlier.date}"
        for earlier in list_earlier_studies(ledger.entries())
    ]


def _format_passes(ledger: Ledger) -> str:
    """Return the validation passes done and saved, if the policy saved any."""
    passes = facts.passes(ledger)
    if not passes["saved"]:
        return ""
    time = f", about {show_seconds(passes['saved_seconds'])}" if passes["saved_seconds"] else ""
    return f"\nvalidation passes: {passes['done']} done, {passes['saved']} saved{time}"


def _format_prices(ledger: Ledger) -> str:
    """Return the training time at each price, if the workers differ in price."""
    parts = [
        f"{show_seconds(one['seconds'])} at {one['price_factor']:g} times the rate ({count(one['workers'], 'worker')})"
        for one in cost_by_price(ledger)
    ]
    return f"\ntrained {', '.join(parts)}" if parts else ""


def _slow_lines(ledger: Ledger) -> list[RenderableType]:
    from rich.text import Text

    return [
        Text(
            f"slow worker: {printable(one['worker'])} takes {one['times_slower']:.1f} times as long as the others "
            f"({count(one['steps'], 'step')})",
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
    lines = [f"{group['count']} x {printable(group['text'])} ({_format_trials(group['trials'])})" for group in groups]
    others = failed - sum(group["count"] for group in groups)
    lines += [f"{others} more of other kinds"] if others else []
    return [Text(f"{failed} failed:", "red"), *(Text(f"  {line}") for line in lines)]


def _format_trials(numbers: list[int]) -> str:
    shown = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"trial{'' if len(numbers) == 1 else 's'} {shown}"


def format_best(ledger: Ledger, checkpoint: Path | str | None) -> RenderableType:
    """Return the best value with its configuration, and its checkpoint if there is one."""
    from rich.text import Text

    best = ledger.best
    if best is None or best.best_config is None:
        return Text("best: none yet, no validated step")
    value = best.best_value
    metric = f"{printable(ledger.definition.metric)} " if ledger.definition.metric else ""
    line = Text.assemble(
        f"best {metric}", (f"{value:.6g}", "bold green"), f" (trial {best.number}, step {best.best_step})  "
    )
    differing, same = facts.split_parameters(ledger)
    config = best.best_config
    line.append(format_config({name: config[name] for name in (*differing, *same) if name in config}))
    if (left := facts.finishing(ledger)) is not None:
        steps, cost = left
        line.append(
            f"\ntrial {best.number} is trained to step {best.steps} of {best.limit}: "
            f"the other {count(steps, 'step')} would cost about {ledger.budget.show(cost)}"
        )
    if checkpoint is not None:
        line.append(f"\ncheckpoint {checkpoint}")
    return line


def trial_table(ledger: Ledger, rows: int, *, live: bool = False) -> RenderableType:
    """Return a table of the best trials; `live`: a process runs the study now, so trials with an open order are being trained."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for column, width in (("trial", 5), ("decision", 8), ("state", 10), ("steps", 5), ("best", 11), ("curve", 12)):
        table.add_column(column, justify="left" if column in ("state", "curve") else "right", width=width)
    table.add_column("configuration", ratio=1, no_wrap=True, overflow="ellipsis")
    differing, same = facts.split_parameters(ledger)
    trials = rank_trials(ledger)
    running = [trial for trial in trials if trial.open_order is not None]
    shown = running + [trial for trial in trials if trial.open_order is None]
    for trial in shown[: max(rows, len(running))]:
        value = trial.best_value
        table.add_row(
            str(trial.number),
            str(trial.last_order),  # the argument of `shoestring explain`
            Text("running" if live and trial.open_order is not None else state_of(trial), _STYLES[state_of(trial)]),
            str(trial.steps),
            "–" if value is None else f"{value:.5g}",
            draw_curve(trial),
            Text(format_config({n: trial.config[n] for n in differing if n in trial.config}), overflow="ellipsis"),
        )
    if len(shown) > rows:
        table.add_row("", "", "", "", "", "", Text(f"and {len(shown) - rows} more", "dim"))
    if not same:
        return table
    text = f"the same in all trials, {count(len(same), 'parameter')}: {format_config(same)}"
    return Group(table, Text(text, "dim", no_wrap=True, overflow="ellipsis"))


def study_table(rows: Sequence[Mapping[str, Any]]) -> RenderableType:
    """Return a table of studies; a row holds `facts.list_entry`, or the `error` that the study cannot be read."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("study", "trials", "best", "spent", "policy"):
        table.add_column(column, justify="right" if column in ("trials", "best") else "left", overflow="fold")
    for row in rows:
        name = Text(printable(row["study"]), "bold")
        if error := row.get("error"):
            table.add_row(name, "", "", Text(f"cannot be read: {error}", "red"))
            continue
        budget, best = Budget(row["budget"]), "–" if row["best"] is None else f"{row['best']:.5g}"
        spent = f"{budget.show(row['spent'])} of {budget.show(budget.total)}"
        table.add_row(name, str(row["trials"]), best, spent, row["policy"])
    return table


def order_report(ledger: Ledger, order: Order) -> RenderableType:
    """Return a table that explains one order: what was decided, why, and the results of the training."""
    from rich.table import Table
    from rich.text import Text

    budget = ledger.budget
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    rows: list[tuple[str, Any]] = [
        (
            "order",
            f"{order.number}: train trial {order.trial} to step {order.until}, validate {_VALIDATED[order.validate]}",
        ),
        ("configuration", format_config(order.config)),
        ("expected cost", "unknown" if order.expected_cost is None else budget.show(order.expected_cost)),
        ("reserved", budget.show(order.reserve)),
        ("decision took", f"{order.thinking_s * 1000:.2f} ms"),
    ]
    rows += [("reason", describe_reason(order, ledger)), *label_numbers(order, ledger)]
    rows += [(f"step {receipt.step}", _format_step(receipt)) for receipt in facts.receipts_of(ledger, order.number)]
    for name, value in rows:
        shown = f"{value:.6g}" if isinstance(value, float) else str(value)
        table.add_row(Text(printable(name)), Text(printable(shown)))
    return table


def _format_step(receipt: Receipt) -> str:
    result = receipt.status if receipt.value is None else f"{receipt.value:.6g}"
    failure = describe_failure(receipt.text)
    if receipt.status == "diverged" and receipt.value is not None:
        result += ", diverged"
    metrics = f"  {format_config(receipt.metrics)}" if receipt.metrics else ""
    return f"{result} in {show_seconds(receipt.cost.total)}{f': {failure}' if failure else ''}{metrics}"


def order_table(ledger: Ledger, trial: int) -> RenderableType:
    """Return a table of all orders of one trial, the oldest first."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("order", "to step"):
        table.add_column(column, justify="right")
    table.add_column("reason")
    for order in ledger.orders:
        if order.trial == trial:
            table.add_row(str(order.number), str(order.until), Text(printable(describe_briefly(order, ledger))))
    return table


def describe_ending(ledger: Ledger, reason: str, text: str = "", *, in_this_process: bool = False) -> str:
    """Return why a run ended, and what it spent; `in_this_process`: steps ran in this process and could not be interrupted."""
    budget = ledger.budget
    spent, over = f"{budget.show(ledger.spent)} of {budget.show(budget.total)}", ledger.spent - budget.total
    if over > 0 and budget.show(ledger.spent) != budget.show(budget.total):  # a smaller excess does not show
        deciding_and_saving = _seconds_after_last_step(ledger) * budget.per_second(ledger.workers)
        is_due_to_last_step = in_this_process and over > deciding_and_saving
        why = ": the last step could not be interrupted" if is_due_to_last_step else ""
        spent += f" ({budget.show(over)} over{why})"
    spent += _format_training_share(ledger)
    if reason == "budget" and not text:
        return f"{_REASONS[reason]}: {spent}"
    return f"{printable(text) if reason in ('policy', 'budget') and text else _REASONS[reason]}: spent {spent}"


def _format_training_share(ledger: Ledger) -> str:
    """Return the share of the time that was training, unless the budget counts epochs."""
    share = ledger.state.training_share
    return "" if share is None or ledger.budget.unit == "epochs" else f", {share:.0%} of it on training"


def explain_overhead(ledger: Ledger) -> list[str]:
    """Return lines about the two largest costs beside training, with their remedies, if training has too small a share."""
    state = ledger.state
    share = state.training_share
    if share is None or share >= _MIN_TRAINING_SHARE or ledger.budget.unit == "epochs":
        return []
    if state.seconds < _MIN_EXPLAINED_S:
        return []
    shares = {kind: s / state.seconds for kind, s in state.by_kind.items() if kind not in ("train", "validate")}
    largest = sorted(shares, key=lambda kind: -shares[kind])[:2]
    return [
        f"{shares[kind]:.0%} of the time went to {_describe_overhead(ledger, kind)}"
        for kind in largest
        if shares[kind] >= _MIN_REPORTED_SHARE
    ]


def _describe_overhead(ledger: Ledger, kind: str) -> str:
    state, seconds = ledger.state, ledger.state.by_kind[kind]
    match kind:
        case "setup":
            each = show_seconds(seconds / max(1, len(state.trials)))
            return f"starting and saving trials ({each} for each trial): {_remedy_for_setup(ledger)}"
        case "thinking":
            faster = f"choose a faster policy, as with {show_argument('policy', 'sequential_halving')}, or "
            is_fast = state.policy in ("asha", "sequential_halving", "random_search")
            each = show_seconds(seconds / max(1, len(state.orders)))
            return f"decisions ({each} each): {'' if is_fast else faster}train longer between two reports"
        case "repeated":
            return (
                "training steps again whose state was lost: let the training code save checkpoints, or keep more trials in "
                f"memory with {show_argument('live')}"
            )
        case "check":
            return "a check that trials resume exactly, which happens once"
        case _:
            return "steps that were interrupted, by a crash or at the end of a run"


def _remedy_for_setup(ledger: Ledger) -> str:
    target, workers = ledger.definition.target, ledger.workers
    if target.get("kind") == "command":
        return "the program starts again for each order; let it load less, or write it in Python"
    if target.get("runner") not in ("process", "ray") and workers == 1 and not target.get("devices"):
        return "let a trial load less when it begins, such as data that the file may load once, at its import"
    imports = "each trial is a process of its own that imports the training file"
    if target.get("runner") == "process" and workers == 1:
        return f"{imports}; {show_argument('runner', 'local')} trains all of them in one process"
    one = f"with one worker, {show_argument('runner', 'local')} trains all of them in one process"
    return f"{imports}; let this file import less, or train longer between two reports; {one}"


def _seconds_after_last_step(ledger: Ledger) -> float:
    """Return the seconds of deciding and saving at the end of a run: at most one entry of each."""
    last = takewhile(lambda entry: isinstance(entry, Note), reversed(ledger.entries(max(0, len(ledger) - 2))))
    return math.fsum(entry.facts.get("seconds", 0.0) for entry in last if isinstance(entry, Note))


def format_change(change: Amendment) -> str:
    """Return one line that describes a change of a study."""
    parts = []
    if change.budget is not None:
        parts.append(f"the budget is now {change.budget.show(change.budget.total)}")
    if change.policy is not None:
        settings = f" with {format_config(change.settings)}" if change.settings else ""
        parts.append(f"the policy is now {printable(change.policy)}{settings}")
    if change.workers is not None:
        parts.append(f"workers are now {change.workers}")
    return ", ".join(parts)


def describe_slow_policy(ledger: Ledger) -> str | None:
    """Return a warning if the policy spends much of the budget on its own decisions."""
    state = ledger.state
    decision_s = state.by_kind["thinking"]
    is_noticeable = decision_s >= _MIN_DECISION_S and len(state.orders) >= _MIN_ORDERS
    if state.budget.unit == "epochs" or not is_noticeable or decision_s <= _HIGH_DECISION_SHARE * state.seconds:
        return None
    return (
        f"decisions took {show_seconds(decision_s)} of {show_seconds(state.seconds)} so far, and count towards the budget: "
        f"{state.policy} is too slow for such short steps. Choose a faster policy (sequential_halving, asha) or longer steps"
    )


def find_warning(note: Note) -> str | None:
    """Return a warning if the note is a resume check that found a difference, or a checkpoint that was changed."""
    if note.topic == ChangedCheckpoint.topic:
        changed = ChangedCheckpoint.from_note(note)
        return (
            f"the checkpoint of step {changed.step} of trial {changed.trial} is not the one that was saved, so it is not used: "
            "the trial continues from an earlier step. Check the disk, and who else can write there"
        )
    if note.topic != ResumeCheck.topic:
        return None
    check = ResumeCheck.from_note(note)
    if check.same is not False:  # None: the check was not finished
        return None
    values = (
        f"step {check.step} of trial {check.trial} gave {check.continued!r} without interruption and {check.resumed!r} after "
        "save and load"
    )
    if check.declared == "inexact":
        return f"resuming is inexact, as the training code declares: {values}"
    return (
        f"resuming changes the result: {values}. "
        "Save everything that training depends on: weights, optimiser, random generators, position in the data."
    )
