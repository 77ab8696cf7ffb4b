"""Show the progress of a run: a live view in a terminal, plain lines elsewhere. Both only observe the run."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt
from shoestring.core.ledger.failures import describe_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.text import count, printable
from shoestring.reports.facts import format_config
from shoestring.reports.messages import describe_slow_policy, find_warning, trial_table
from shoestring.reports.reasons import describe_briefly

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY_S = 0.25  # seconds between two drawings; a reader could not follow faster changes
_ROWS = 8


class Progress(Protocol):
    """The display of a run: an observer that is also a context manager."""

    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None: ...

    def announce(self, line: str) -> None: ...

    def end(self, line: str) -> None:
        """Show the last line of a run, which says why it ended."""
        ...


class SilentProgress:
    """A display that shows nothing."""

    def __enter__(self) -> SilentProgress:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        pass

    def announce(self, line: str) -> None:
        pass

    def end(self, line: str) -> None:
        pass


class ReportingProgress(SilentProgress):
    """Announce warnings and failures; if the policy is too slow, announce that once."""

    def __init__(self) -> None:
        self._has_warned = False

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        if remark := find_remark(entry):
            self.announce(remark)
        if isinstance(entry, Order) and not self._has_warned and (note := describe_slow_policy(ledger)):
            self._has_warned = True
            self.announce(f"note: {note}")


class LineProgress(ReportingProgress):
    """Print warnings and failures, each new best value, diverged steps, and each tenth of the budget, as lines."""

    def __init__(self) -> None:
        super().__init__()
        self._best: float | None = None
        self._tenths = 0

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        super().__call__(ledger, entry)
        if not isinstance(entry, Receipt):
            return
        if entry.status == "diverged":  # the live view shows this in its table
            self.announce(f"trial {entry.trial} diverged at step {entry.step}: {entry.text}")
        best = ledger.best
        if best is not None and best.best_loss != self._best:
            self._best = best.best_loss
            value = best.best_value
            self.announce(
                f"best {value:.6g}: trial {best.number} at step {best.best_step}, {format_config(best.config)}"
            )
        tenths = int(10 * ledger.spent / ledger.budget.total)
        if tenths > self._tenths:
            self._tenths = tenths
            budget = ledger.budget
            self.announce(
                f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}, {count(len(ledger.trials), 'trial')}"
            )

    def announce(self, line: str) -> None:
        print_line(line)


class LiveView(ReportingProgress):
    """Show the whole study on one screen, drawn again at most four times a second."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__()
        self._title = printable(title)
        self._console = Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=True, refresh_per_second=4, transient=False)
        self._drawn = 0.0
        self._began = time.monotonic()
        self._order: Order | None = None
        self._ledger: Ledger | None = None
        self._ending: str | None = None

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending = self._ending or "ended"  # `end` was not called: an error was raised
        if self._ledger is not None:
            self._live.update(self.render(copy_if_consumed(self._ledger)))
        self._live.stop()

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        self._ledger = ledger
        if isinstance(entry, Order):
            self._order = entry
        super().__call__(ledger, entry)
        # The screen is drawn in the thread that owns the ledger; the refreshing thread only repeats the finished picture.
        if time.monotonic() - self._drawn > _EVERY_S:
            self._drawn = time.monotonic()
            self._live.update(self.render(ledger))

    def announce(self, line: str) -> None:
        self._console.print(printable(line), style="yellow", highlight=False, markup=False)

    def end(self, line: str) -> None:
        self._ending = printable(line)

    def render(self, ledger: Ledger) -> RenderableType:
        from rich.console import Group
        from rich.panel import Panel
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        budget = ledger.budget
        spending = Table.grid(padding=(0, 1))
        spending.add_row(
            Text(f"spent {budget.show(ledger.spent)}", "bold"),
            ProgressBar(total=budget.total, completed=min(ledger.spent, budget.total), width=40),
            Text(f"{budget.show(max(0.0, budget.total - ledger.spent))} left of {budget.show(budget.total)}"),
            Text(self._forecast(ledger), "dim"),
        )
        best = ledger.best
        best_line = Text("best so far: none yet", "dim")
        if best is not None:
            value = best.best_value
            best_line = Text.assemble(
                "best so far ",
                (f"{value:.6g}", "bold green"),
                f"  trial {best.number}, step {best.best_step}  ",
                (format_config(best.config), "dim"),
            )
        activity = self._ending or ("deciding" if self._order is None else _describe_training(self._order, ledger))
        table = trial_table(ledger, _ROWS, live=self._ending is None)
        width = self._console.width - len("^C")  # the terminal prints it behind the panel, where the line must not wrap
        return Panel(
            Group(spending, best_line, Text(activity, overflow="ellipsis", no_wrap=True), Text(), table),
            title=Text(self._title),
            title_align="left",
            width=width,
        )

    def _forecast(self, ledger: Ledger) -> str:
        """Return how long the rest of a budget of epochs takes at the pace of this run; empty for other budgets."""
        seconds = time.monotonic() - self._began
        share = ledger.spent / ledger.budget.total
        if self._ending or not 0.02 < share < 1 or ledger.budget.unit != "epochs":
            return ""
        return f"about {show_seconds(seconds * (1 - share) / share)} to go"


def _describe_training(order: Order, ledger: Ledger) -> str:
    reason = describe_briefly(order, ledger)
    return printable(f"training trial {order.trial} to step {order.until}" + (f": {reason}" if reason else ""))


def copy_if_consumed(ledger: Ledger) -> Ledger:
    """Return the ledger, or a copy if other code has appended to it since the last call of the observer."""
    return ledger.fork() if ledger.is_consumed else ledger


def find_remark(entry: Entry | None) -> str | None:
    """Return a warning about a resume check, or a line about a failed step; None for other entries."""
    if isinstance(entry, Note) and (warning := find_warning(entry)):
        return f"warning: {warning}"
    if isinstance(entry, Receipt) and entry.status == "failed":
        return f"trial {entry.trial} failed at step {entry.step}: {describe_failure(entry.text) or 'no reason given'}"
    return None


def print_line(line: str) -> None:
    """Print a line on standard error; standard output belongs to results."""
    print(printable(line), file=sys.stderr, flush=True)  # noqa: T201


def announce_anyway(view: Progress, line: str) -> None:
    """Announce a line in the display of a run, or print it if this display shows nothing."""
    if type(view) is SilentProgress:
        print_line(line)
    else:
        view.announce(line)


def is_notebook() -> bool:
    """Return whether the code runs in a notebook, which shows HTML; IPython in a terminal is not one."""
    find_shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)
    shell = find_shell()
    return shell is not None and type(shell).__name__ != "TerminalInteractiveShell"


def make_view(title: str, wanted: bool | None) -> Progress:
    """Return the progress display of a run; `wanted`: None shows it in terminals and notebooks, True always, False never."""
    if wanted is False:
        return SilentProgress()
    if is_notebook():
        from shoestring.reports.notebook import NotebookView

        return NotebookView(title)
    if sys.stderr is not None and sys.stderr.isatty():
        return LiveView(title)
    return LineProgress() if wanted else SilentProgress()
