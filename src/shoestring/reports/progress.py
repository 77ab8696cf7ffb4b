"""Progress while a study runs: a live view in a terminal, plain lines elsewhere. Both watch, neither decides."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from shoestring.core.ledger.budget import show_seconds
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt
from shoestring.core.ledger.failures import say_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.values.text import count, printable
from shoestring.reports.facts import say_config
from shoestring.reports.text import order_line, say_thinking, trial_table, warning_of

if TYPE_CHECKING:
    from rich.console import RenderableType

_EVERY_S = 0.25
_ROWS = 8


class Progress(Protocol):
    def __enter__(self) -> Progress: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None: ...

    def say(self, line: str) -> None: ...

    def end(self, line: str) -> None:
        """The run is over, and this line says why."""
        ...


class Quiet:
    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def end(self, line: str) -> None:
        pass


class Talking(Quiet):
    """What every progress that is seen says aloud: warnings, failures, and once that thinking costs too much."""

    def __init__(self) -> None:
        self._has_said_thinking = False

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        if remark := remark_on(entry):
            self.say(remark)
        if isinstance(entry, Order) and not self._has_said_thinking and (note := say_thinking(ledger)):
            self._has_said_thinking = True
            self.say(f"note: {note}")


class Lines(Talking):
    """Also a line for each new best and each tenth of the budget."""

    def __init__(self) -> None:
        super().__init__()
        self._best: float | None = None
        self._tenths = 0

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        super().__call__(ledger, entry)
        if not isinstance(entry, Receipt):
            return
        if entry.status == "diverged":  # a live view has them in its table
            self.say(f"trial {entry.trial} diverged at step {entry.step}: {entry.text}")
        best = ledger.best
        if best is not None and best.best_loss != self._best:
            self._best = best.best_loss
            value = best.best_value
            self.say(f"best {value:.6g}: trial {best.number} at step {best.best_step}, {say_config(best.config)}")
        tenths = int(10 * ledger.spent / ledger.budget.total)
        if tenths > self._tenths:
            self._tenths = tenths
            budget = ledger.budget
            self.say(
                f"spent {budget.show(ledger.spent)} of {budget.show(budget.total)}, {count(len(ledger.trials), 'trial')}"
            )

    def say(self, line: str) -> None:
        print(printable(line), file=sys.stderr, flush=True)  # noqa: T201


class LiveView(Talking):
    """The whole study on one screen, drawn anew at most four times a second."""

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
        self._ending = self._ending or "ended"  # without a word: something was raised
        if self._ledger is not None:
            self._live.update(self.render(self._ledger))
        self._live.stop()

    def __call__(self, ledger: Ledger, entry: Entry | None) -> None:
        self._ledger = ledger
        if isinstance(entry, Order):
            self._order = entry
        super().__call__(ledger, entry)
        # Drawn here, in the thread that owns the ledger: the refreshing thread only repeats the finished picture.
        if time.monotonic() - self._drawn > _EVERY_S:
            self._drawn = time.monotonic()
            self._live.update(self.render(ledger))

    def say(self, line: str) -> None:
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
        money = Table.grid(padding=(0, 1))
        money.add_row(
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
                (say_config(best.config), "dim"),
            )
        doing = self._ending or (f"buying {order_line(self._order)}" if self._order else "thinking")
        table = trial_table(ledger, _ROWS, live=self._ending is None)
        return Panel(
            Group(money, best_line, Text(doing, overflow="ellipsis", no_wrap=True), Text(), table),
            title=Text(self._title),
            title_align="left",
            width=self._console.width - len("^C"),  # a terminal echoes that behind the panel, and must not wrap
        )

    def _forecast(self, ledger: Ledger) -> str:
        """How long the rest takes at the pace of this run."""
        seconds = time.monotonic() - self._began
        share = ledger.spent / ledger.budget.total
        if self._ending or not 0.02 < share < 1 or ledger.budget.unit != "epochs":
            return ""
        return f"about {show_seconds(seconds * (1 - share) / share)} to go"


def remark_on(entry: Entry | None) -> str | None:
    """A line about an entry that the user should not miss."""
    if isinstance(entry, Note) and (warning := warning_of(entry)):
        return f"warning: {warning}"
    if isinstance(entry, Receipt) and entry.status == "failed":
        return f"trial {entry.trial} failed at step {entry.step}: {say_failure(entry.text) or 'no reason given'}"
    return None


def make_progress(title: str, *, quiet: bool) -> Progress:
    if quiet:
        return Quiet()
    return LiveView(title) if sys.stderr.isatty() else Lines()
