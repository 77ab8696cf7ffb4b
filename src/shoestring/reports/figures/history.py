"""What a ledger tells, gathered in one pass for all figures: what was bought, when, for how much, and what came of it.

`spent` is always in the budget's unit; a cost that has no price there (set-up in a budget of epochs) shows in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field

from shoestring.core.deciding.prediction import Believed
from shoestring.core.ledger.accounting import BooksView
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Lost, Order, Receipt
from shoestring.core.ledger.failures import say_failure
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import Books, Trial

KINDS = {  # what seconds went into, in the order they are drawn
    "train": "training",
    "validate": "validation",
    "setup": "set-up and saving",
    "thinking": "thinking",
    "repeated": "run again",
    "check": "resume check",
    "failed": "failed or cut off",
    "lost": "lost with a worker",
}
Believe = Callable[[Ledger, Order], Believed | None]  # the ledger as it was before the order


@dataclass(slots=True)
class Segment:
    """One order, as far as it was carried out."""

    order: Order
    began_s: float  # on the runner's clock
    ended_s: float
    spent_before: float  # of the study when it was ordered
    from_step: int  # of the trial when it was ordered
    to_step: int
    seconds: float = 0.0  # of its receipts
    cost: float = 0.0  # the same in the budget's unit
    worker: str = ""
    status: str = "open"  # ok, diverged, failed, interrupted, open
    text: str = ""  # of a failure, in one line


@dataclass(frozen=True, slots=True)
class NewBest:
    """A new best value, and what had been spent when it came."""

    spent: float
    value: float
    trial: int
    step: int


@dataclass(frozen=True, slots=True)
class Recalled:
    """A decision as it was: what the policy believed, and how far things stood."""

    believed: Believed
    had: Mapping[int, int]  # steps of the trials that it tells of
    best: float | None  # value


@dataclass
class Story:
    name: str
    ledger: Ledger
    segments: list[Segment] = field(default_factory=list)  # by order number
    bests: list[NewBest] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(KINDS, 0.0))
    failed_steps: int = 0
    recalled: dict[int, Recalled] = field(default_factory=dict)  # by order number, as far as beliefs were asked for
    books: Books = field(init=False)
    budget: Budget = field(init=False)
    trials: Sequence[Trial] = field(init=False)
    is_max: bool = field(init=False)

    def __post_init__(self) -> None:
        ledger = self.ledger
        self.books, self.budget, self.trials = ledger.books, ledger.budget, ledger.trials
        self.is_max = ledger.opened.direction == "max"

    def segments_of(self) -> Mapping[int, list[Segment]]:
        """By trial, in the order they were bought."""
        by_trial: dict[int, list[Segment]] = {}
        for segment in self.segments:
            by_trial.setdefault(segment.order.trial, []).append(segment)
        return by_trial


def gather(name: str, ledger: Ledger, believe: Believe | None = None, decisions: Container[int] = ()) -> Story:
    """One pass over the entries. Books of its own are folded along, since what was spent at each moment is asked for.

    `believe` is asked about the orders of these numbers, with the ledger as it was before each.
    """
    story = Story(name, ledger)
    view = BooksView()
    books = view.start(ledger.opened)
    entries = ledger.entries()
    for place, entry in enumerate(entries[1:], 1):
        before = books.spent
        if believe is not None and isinstance(entry, Order) and entry.number in decisions:
            then = Ledger.restored(ledger.opened, books, place, lambda place=place: entries[:place])  # type: ignore[misc]
            if (believed := believe(then, entry)) is not None:
                story.recalled[entry.number] = _recall(then, entry, believed)
        is_repeated = isinstance(entry, Receipt) and entry.step <= books.trials[entry.trial].steps
        best_before = books.best_loss
        books = view.absorb(books, entry)
        if isinstance(entry, Order):
            trial = books.trials[entry.trial]
            story.segments.append(Segment(entry, entry.at, entry.at, before, trial.steps, trial.steps))
        elif isinstance(entry, Receipt):
            _take_receipt(story, entry, books.spent - before, is_repeated=is_repeated)
            if books.best_loss < best_before and entry.value is not None:
                story.bests.append(NewBest(books.spent, entry.value, entry.trial, entry.step))
        elif isinstance(entry, Lost) and (number := books.trials[entry.trial].open_order) is not None:
            story.segments[number].cost += books.spent - before
    for kind in ("thinking", "check", "lost"):
        story.seconds[kind] = books.by_kind[kind]
    return story


def _recall(then: Ledger, order: Order, believed: Believed) -> Recalled:
    """Numbers only: the books go on changing."""
    told = {curve.trial for curve in believed.curves} | {order.trial}
    had = {trial.number: trial.steps for trial in then.trials if trial.number in told}
    return Recalled(believed, had, None if then.best is None else then.best.best_value)


def _take_receipt(story: Story, receipt: Receipt, paid: float, *, is_repeated: bool) -> None:
    segment, cost = story.segments[receipt.order], receipt.cost
    segment.ended_s = max(segment.ended_s, receipt.at)
    segment.seconds += cost.total
    segment.cost += paid
    segment.worker = receipt.worker or segment.worker
    segment.status, segment.text = receipt.status, say_failure(receipt.text)
    if receipt.is_finished:
        segment.to_step = max(segment.to_step, receipt.step)
    else:
        story.failed_steps += 1
    if not receipt.is_finished:
        story.seconds["failed"] += cost.total
    elif is_repeated:
        story.seconds["repeated"] += cost.total
    else:
        story.seconds["train"] += cost.train
        story.seconds["validate"] += cost.validate
        story.seconds["setup"] += cost.setup
