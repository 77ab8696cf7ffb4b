"""The loop: decide, record, buy, and wait for receipts, until the budget is spent.

Recorded first, bought second: a crash leaves an open order, never a lost bill. The wall is a moment on the runner's
clock: the running steps together may use what is neither spent nor needed, and when that moment comes they are cut off.

One process at a time runs a study: it holds the lease and keeps its heart beating. Others may still append to the ledger:
configs they want tried, amendments, and orders of their own that they asked for and tell about. Receipts and other news of
this process are then appended behind theirs; an order is decided again on the ledger they left. Any other entry means
that another process has taken the study over, and this one stops.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoestring.core.deciding.decision import Decision, Finish, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.amendments import find_losses
from shoestring.core.ledger.entries import Entry, Lost, Note, Order, Receipt
from shoestring.core.ledger.failures import FailurePatience
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.state import OpenOrder
from shoestring.errors import Conflict, DecisionError, Leased
from shoestring.runners.runner import News, Runner, RunningSteps, seconds_under_way
from shoestring.stores.store import Heart, Heartbeat, Lease, Store
from shoestring.study.decide import Thinking, decide
from shoestring.study.journal import Journal

Reason = Literal["budget", "policy", "deadline", "stopped", "failing"]
Observe = Callable[[Ledger, Entry | None], None]
_LOOK_UP_S = 0.2  # how often to look for a request to stop while nothing happens
_FILLING_S = 0.05  # of deciding for free workers, before the first of them gets its order
_WORTH_SAYING = 0.01  # of the budget, left when it buys nothing more: less is what any run leaves
_WORTH_NOTING_S = 0.001  # less thinking than this at the end of a run gets no entry of its own


@dataclass(frozen=True)
class Ending:
    """Why a run ended, and with what ledger."""

    reason: Reason
    text: str
    ledger: Ledger = field(repr=False)


class Loop:
    """One run of a study, from taking up what is open to its ending."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        policy: Policy,
        runner: Runner,
        *,
        deadline_s: float | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        observe: Observe = lambda ledger, entry: None,
    ) -> None:
        self.journal, self.lease, self.policy, self.runner = journal, lease, policy, runner
        self._last_moment = math.inf if deadline_s is None else self.ledger.books.clock + deadline_s
        self._should_stop, self._observe = should_stop, observe
        self._saying = threading.Lock()  # heartbeats of two threads: what was looked at later is stored later
        self._thinking = Thinking(is_free=runner.simulated)
        self._declined_at = 0  # entries in the ledger when the policy last had nothing to buy
        self._patience = FailurePatience(self.ledger.books)
        self._declined: Decision | None = None  # what it said then; None: it was not asked, since nothing can be paid

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def run(self) -> Ending:
        """Spend until the budget, the deadline, the policy or the user ends it; then freeze what can be frozen."""
        self._heart = Heart(self._beat)
        try:
            self._take_up()
            ending = self._spend()
            self.journal.settle()
            return ending
        finally:
            try:
                self._heart.stop()
                self._beat()  # what is under way now is charged by whoever goes on
            finally:
                self.runner.close(freeze=not self.lease.lost)  # the checkpoints are another's by then

    def _take_up(self) -> None:
        """Write down what the last process lost, and submit its open orders again."""
        self._record(*find_losses(self.ledger, self.runner.start(self.ledger), self.lease.cut_off))
        if self.runner.now() < self._deadline:  # a deadline of 0: nothing is bought
            for open_order in list(self.ledger.open_orders.values()):
                if not open_order.order.asked:  # those that somebody asked for are theirs
                    self._submit(open_order)
        self._beat()  # their steps begin now
        self._thinking.start_over()  # getting workers ready is not the study's time to pay

    def _spend(self) -> Ending:
        while (ending := self._must_end()) is None:
            if self._may_decide(self.ledger):
                if self._fill_workers():
                    continue
                if not _count_under_way(self.ledger):
                    return self._end(*self._explain_end())
                self._declined_at = len(self.ledger)  # ask again after the next receipt, as a resumed study would
            self._wait(min(self._wall(self.ledger), self._deadline))
        return ending

    @property
    def _deadline(self) -> float:
        """The last moment at which something may be under way: what is alive has to be saved before it."""
        return self._last_moment - self.runner.freezing_s

    # beginning and ending --------------------------------------------------------------------------------------------

    def _must_end(self) -> Ending | None:
        if (failure := self._patience.why_stop(self.ledger.books)) is not None:
            return self._end("failing", failure)
        if self.lease.lost or self._should_stop():
            return self._end("stopped")
        if self.runner.now() >= self._deadline and not self.runner.running():
            return self._end("deadline")
        if self.runner.freezing_s > 0 and self._left_s() == 0 and not self.runner.running():
            return self._end("budget")  # the rest is needed to save what is alive
        return None

    def _explain_end(self) -> tuple[Reason, str]:
        """Nothing is under way and nothing was bought: why the run ends here."""
        budget, decision = self.ledger.budget, self._declined
        left = self.ledger.left - self._thinking.pending_s * budget.per_second(self.ledger.workers)
        unspent = f"{budget.show(left)} of {budget.show(budget.total)} left unspent"
        if isinstance(decision, Finish):
            why = decision.why or "it sees nothing more worth buying"
            return "policy", f"{why}, {unspent}" if left > 0 else why
        if not isinstance(decision, Wait):
            is_much = left > _WORTH_SAYING * budget.total
            return "budget", f"the rest does not pay for another step, {unspent}" if is_much else ""
        if not self.ledger.open_orders:
            raise DecisionError(f"{self.policy.name} waits, but no order is open: nothing would ever change")
        return "policy", "it waits for orders that were asked for elsewhere"

    def _end(self, reason: Reason, text: str = "") -> Ending:
        pending_s = self._thinking.pending_s
        frozen_s = 0.0 if self.lease.lost else self.runner.freeze()  # the checkpoints are another's by then
        for seconds, kind in ((pending_s, {}), (frozen_s, {"kind": "setup"})):
            if seconds > _WORTH_NOTING_S and self.ledger.budget.unit != "epochs":
                self._record(Note(topic="thinking", facts={"seconds": seconds, **kind}))
        return Ending(reason, text, self.ledger)

    # deciding and buying ---------------------------------------------------------------------------------------------

    def _may_decide(self, ledger: Ledger) -> bool:
        """Whether there is a free worker, something new to decide on, and time to think before the wall."""
        if len(ledger) == self._declined_at or _count_under_way(ledger) >= self.runner.workers:
            return False
        now = self.runner.now()
        return now < self._deadline and (self.runner.simulated or now + self._thinking.longest_s < self._wall(ledger))

    def _fill_workers(self) -> bool:
        """Decide for one free worker after the other, store all of these orders at once, and submit them.

        Each is decided on the ledger that holds those before it. A policy that thinks long is not to keep the first worker
        waiting for the last. False: the policy had nothing more to buy, or nothing more can be paid.
        """
        start = ledger = self.ledger
        runner, thinking, orders = self.runner, self._thinking, list[Order]()
        check_start_s = runner.check_start_s if runner.can_save else None
        until_s = runner.now() + _FILLING_S
        is_declined = False
        while not is_declined and self._may_decide(ledger):
            if orders and (runner.now() >= until_s or self._should_stop()):
                break
            self._declined, order = None, None
            if ledger.can_pay(thinking.pending_s):
                self._declined, order = decide(ledger, self.policy, thinking, runner.now, check_start_s=check_start_s)
            if order is not None:
                thinking.pending_s -= order.thinking_s
                orders.append(order)
                ledger = ledger.propose(order)
            is_declined = order is None
        try:
            self._record(*orders, after=start)
        except Conflict:  # somebody has asked, told, enqueued or amended: decide again on that
            thinking.pending_s += math.fsum(order.thinking_s for order in orders)
            self._refresh()
            return True
        for order in orders:
            self._submit(self.ledger.open_orders[order.number])
        return not is_declined

    def _submit(self, open_order: OpenOrder) -> None:
        order, ledger = open_order.order, self.ledger
        if open_order.checked:  # a check that was made before the last stop is not made again
            order = replace(order, check=False)
        self.runner.submit(order, ledger.trials[order.trial].held, ledger.former_configs(order.trial))

    def _wall(self, ledger: Ledger) -> float:
        """The moment at which the running steps will together have used up what is left.

        n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t; that equals what is left at t = (left + Σsᵢ) / n.
        """
        rate = ledger.budget.per_second(ledger.workers)
        if rate == 0.0 or not (running := self.runner.running()):
            return math.inf
        if isinstance(running, RunningSteps):
            return running.wall(self._left_s(), priced=ledger.budget.unit == "dollars")
        return (self._left_s() + math.fsum(running.values())) / len(running)

    def _left_s(self) -> float:
        """Seconds of workers that are neither spent nor needed to save what is alive."""
        budget, rate = self.ledger.budget, self.ledger.budget.per_second(self.ledger.workers)
        unspent_s = (budget.total - self.ledger.spent) / rate if rate else math.inf
        return max(0.0, unspent_s - self._thinking.pending_s - self.runner.freezing_s)

    def _wait(self, until: float) -> None:
        """Take in what the runner has to say; at `until`, the wall or the deadline, cut it off."""
        runner = self.runner
        self._thinking.count()
        news: list[News] = runner.wait(until if runner.simulated else min(until, runner.now() + _LOOK_UP_S))
        self._thinking.skip()
        if not news and runner.now() >= until:
            news = runner.interrupt("the deadline has come" if until == self._deadline else "the budget is spent")
        if news:
            self._record(*news)
            for number in [self.ledger.trials[loss.trial].open_order for loss in news if isinstance(loss, Lost)]:
                if number is not None and not self.ledger.open_orders[number].order.asked:
                    self._submit(self.ledger.open_orders[number])  # its worker died: another one carries the order out
                    self._beat()
        else:
            self._observe(self.ledger, None)

    # the ledger ------------------------------------------------------------------------------------------------------

    def _record(self, *entries: Entry, after: Ledger | None = None) -> None:
        """Append entries: an order to the very ledger that it was decided on, news behind whatever others wrote.

        A heartbeat goes with them, so that the start of every step is known: whatever comes after is charged.
        """
        while entries:
            try:
                with self._saying:
                    # What is simulated can be computed again, so it need not wait for the disk.
                    durable, beat = not self.runner.simulated and self._heart.wait_for_disk(), self._heartbeat(entries)
                    self.journal.append(*entries, after=after, beat=beat, durable=durable)
                break
            except Conflict:
                if after is not None:
                    raise
                self._refresh()
        for entry in entries:
            self._observe(self.ledger, entry)

    def _refresh(self) -> None:
        known = len(self.ledger)
        newest = self.journal.refresh()
        if self.lease.lost or not all(_may_come_between(entry, newest) for entry in newest.entries(known)):
            raise Leased(f"the study {self.journal.name!r} was taken over by another process: this one stops")

    def _heartbeat(self, entries: Sequence[Entry]) -> Heartbeat | None:
        """What is under way once these entries are stored: a new order begins right then."""
        if self.runner.simulated:
            return None
        begun = {entry.number: 0.0 for entry in entries if isinstance(entry, Order)}
        return Heartbeat(self.lease, begun | self._running_s())

    def _running_s(self) -> dict[int, float]:
        if self.runner.simulated:
            return {}
        return seconds_under_way(self.runner.running(), self.runner.now())

    def _beat(self) -> None:
        with self._saying:
            self.lease.beat(len(self.ledger), self._running_s())


def run_in_memory(
    ledger: Ledger, policy: Policy, runner: Runner, *, store: Store | None = None, **options: Any
) -> Ending:
    """The same loop on a store that forgets: for plans, replays and tests. Options are those of `Loop`."""
    journal = Journal.in_memory(ledger, store)
    with journal.store.lease(journal.name) as lease:
        return Loop(journal, lease, policy, runner, **options).run()


def _count_under_way(ledger: Ledger) -> int:
    """Open orders that the runner is to carry out; those that somebody asked for are theirs."""
    return len(ledger.open_orders) - ledger.books.asked_open


def _may_come_between(entry: Entry, ledger: Ledger) -> bool:
    """Whether others may append this while the study runs: queued configs, amendments, orders they asked for, their receipts."""
    if isinstance(entry, Order):
        return entry.asked
    return ledger.orders[entry.order].asked if isinstance(entry, Receipt) else not isinstance(entry, Lost)
