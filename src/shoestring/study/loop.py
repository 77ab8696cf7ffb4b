"""The loop: decide, record the order, submit it, and wait for receipts, until the budget is spent.

An order is stored before it is submitted. So a crash can leave an open order, but never a trained step without an order. The
cutoff is a moment on the runner's clock: until then, the running steps together use what is neither spent nor reserved for
saving, and at the cutoff they are interrupted. The runner knows the cutoff too, and holds it while this thread is not there.

Only one process at a time runs a study. It holds the lease and renews it with heartbeats. Other processes may still append
to the ledger: queued configs, amendments, orders that `ask` returned there, and receipts of these orders. This process then
appends its receipts after those entries, and repeats a decision that was made without them. Any other entry means that another
process has taken the study over, and this one stops.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from shoestring.core.deciding.decision import Decision, Finish, Wait
from shoestring.core.deciding.policy import Policy
from shoestring.core.ledger.amendments import find_losses
from shoestring.core.ledger.entries import Entry, Note, Order, Receipt, StateLoss
from shoestring.core.ledger.failures import FailureLimit
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.ledger.notes import Overhead
from shoestring.core.ledger.pricing import can_afford_order
from shoestring.core.ledger.state import OpenOrder
from shoestring.core.values.text import shorten
from shoestring.errors import Conflict, DecisionError, ShoestringError, StaleLedger, StudyInUse
from shoestring.reports.messages import describe_long_step
from shoestring.runners.runner import (
    CUTOFF_DELAY_S,
    KeepsCutoff,
    Runner,
    RunnerEvent,
    RunningSteps,
    seconds_under_way,
    take_notes,
)
from shoestring.stores.ledger_store import Heartbeat, HeartbeatThread, Lease, LedgerStore
from shoestring.study.decide import Thinking, decide
from shoestring.study.journal import Journal

Reason = Literal["budget", "policy", "deadline", "stopped", "failing"]
Observer = Callable[[Ledger, Entry | None], None]  # called with each new entry, and with None while nothing happens
_STOP_POLL_S = 0.2  # how often to check for a request to stop while nothing happens
_MAX_FILLING_S = 0.05  # longest time to decide for free workers before the first of them gets its order
_MIN_REPORTED_LEFTOVER = 0.01  # share of the budget; in every run a little is left that pays for no further step
_MIN_RECORDED_OVERHEAD_S = 0.001  # less overhead than this at the end of a run is not recorded
_LONGEST_WRITE_S = 1.0  # an access to the store that takes longer waited for it, and is not charged
_SPENT, _DEADLINE = "the budget is spent", "the deadline has come"


@dataclass(frozen=True)
class Ending:
    """Why a run ended.

    Attributes
    ----------
    reason : {"budget", "policy", "deadline", "stopped", "failing"}
        "failing" means that the same failure happened again and again.
    text : str
        Details, such as the last failure or the reason of the policy; may be empty.
    ledger : Ledger
        The ledger at the end of the run.
    """

    reason: Reason
    text: str
    ledger: Ledger = field(repr=False)


class Loop:
    """One run of a study: it submits the orders that are still open, and trains until the run ends."""

    def __init__(
        self,
        journal: Journal,
        lease: Lease,
        policy: Policy,
        runner: Runner,
        *,
        deadline_s: float | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        signals: Sequence[int] = (),
        observe: Observer = lambda ledger, entry: None,
        announce_long_step: Callable[[str], None] | None = None,
    ) -> None:
        self.journal, self.lease, self.policy, self.runner = journal, lease, policy, runner
        self._announce_long_step = announce_long_step  # called once; None afterwards
        self._began = time.monotonic()
        self._last_moment = math.inf if deadline_s is None else self.ledger.state.clock + deadline_s
        self._keeps_cutoff = runner if isinstance(runner, KeepsCutoff) else None
        self._cutoff_set = math.inf  # the moment at which such a runner ends the steps by itself
        self._should_stop, self._observe = should_stop, observe
        self._signals = signals  # those that asked this run to stop so far; the sequence grows
        self._beat_lock = threading.Lock()  # of two threads, the one that reads its heartbeat later must store it later
        self._thinking = Thinking(is_free=runner.simulated)
        self._failure_limit = FailureLimit(self.ledger.state)
        self._declined_at = 0  # number of entries at the last decision that led to no order
        self._declined: Decision | None = None  # that decision; None if the policy was not called: no step can be paid

    @property
    def ledger(self) -> Ledger:
        return self.journal.ledger

    def run(self) -> Ending:
        """Train until the budget, the deadline, the policy or the user ends the run; then pause the live trials."""
        self._heart = HeartbeatThread(self._beat)
        try:
            self._start()
            ending = self._train()
            self.journal.finish_run()
            return ending
        finally:
            try:
                self._heart.stop()
                self._beat()  # the process that continues the study charges for the steps that are under way now
            finally:
                # Without the lease the checkpoints belong to another process.
                self.runner.close(pause=not self.lease.lost)
                with suppress(ShoestringError):  # the run has failed already, and tells why
                    self._record()  # trials that were saved only now

    def _start(self) -> None:
        """Record which states of trials the last process lost, and submit its open orders again."""
        # The runner may take long to start, and no other thread may consume its ledger meanwhile.
        with self.journal.lock:
            survivors = self.runner.start(self.ledger)
            losses = find_losses(self.ledger, survivors, self.lease.uncharged_s)
        if not self.runner.simulated:
            self._last_moment -= time.monotonic() - self._began  # the runner's clock stood still while it started
        self._record(*losses)
        if self.runner.now() < self._deadline:  # with a deadline of 0, nothing is trained
            # Orders that `ask` returned are carried out by users.
            own = [one for one in self.ledger.open_orders.values() if not one.order.is_external]
            self._set_cutoff(new=len(own))
            for open_order in own:
                self._submit(open_order)
        self._beat()  # their steps begin now
        self._thinking.start_over()  # the study does not pay for starting workers

    def _train(self) -> Ending:
        while (ending := self._end_if_due()) is None:
            if self._may_decide(self.ledger):
                if self._fill_workers():
                    continue
                if not _count_under_way(self.ledger):
                    return self._end(*self._explain_end())
                self._declined_at = len(self.ledger)  # wait for the next entry before the policy is called again
            self._wait(min(self._cutoff(self.ledger), self._deadline))
        return ending

    @property
    def _deadline(self) -> float:
        """The last moment at which a step may be under way: live trials have to be saved before the deadline."""
        return self._last_moment - self.runner.saving_reserve_s

    # beginning and ending --------------------------------------------------------------------------------------------

    def _end_if_due(self) -> Ending | None:
        """End the run if failures, the user, the deadline or the budget require it, and return why; return None if it goes on."""
        if (failure := self._failure_limit.reason_to_stop(self.ledger.state)) is not None:
            return self._end("failing", failure)
        if self.lease.lost or self._should_stop():
            return self._end("stopped")
        if self.runner.now() >= self._deadline and not self.runner.running():
            return self._end("deadline")
        if self.runner.saving_reserve_s > 0 and self._left_s() == 0 and not self.runner.running():
            return self._end("budget")  # the rest is needed to save the live trials
        return None

    def _explain_end(self) -> tuple[Reason, str]:
        """Return why the run ends when nothing is under way and nothing was ordered."""
        budget, decision = self.ledger.budget, self._declined
        left = self.ledger.left - self._thinking.pending_s * budget.per_second(self.ledger.workers)
        unspent = f"{budget.show(left)} of {budget.show(budget.total)} left unspent"
        if isinstance(decision, Finish):
            why = decision.why or "it has nothing left to train"
            return "policy", f"{why}, {unspent}" if left > 0 else why
        if not isinstance(decision, Wait):
            is_much = left > _MIN_REPORTED_LEFTOVER * budget.total
            return "budget", f"the rest does not pay for another step, {unspent}" if is_much else ""
        if not self.ledger.open_orders:
            raise DecisionError(f"{self.policy.name} waits, but no order is open: nothing would ever change")
        return "policy", "it waits for orders that other processes asked for"

    def _end(self, reason: Reason, text: str = "") -> Ending:
        pending_s = self._thinking.pending_s
        saving_s = 0.0 if self.lease.lost else self.runner.pause()  # without the lease the checkpoints are not ours
        self._record()
        for seconds, kind in ((pending_s, "thinking"), (saving_s, "setup")):
            if seconds > _MIN_RECORDED_OVERHEAD_S and self.ledger.budget.unit != "epochs":
                self._record(Overhead(seconds=seconds, kind=kind).to_note())
        return Ending(reason, text, self.ledger)

    # deciding and submitting -----------------------------------------------------------------------------------------

    def _may_decide(self, ledger: Ledger) -> bool:
        """Return whether a worker is free, the ledger has changed since the policy last declined, and there is time to decide."""
        if len(ledger) == self._declined_at or _count_under_way(ledger) >= self.runner.workers:
            return False
        now = self.runner.now()
        return now < self._deadline and (self.runner.simulated or now + self._thinking.longest_s < self._cutoff(ledger))

    def _fill_workers(self) -> bool:
        """Decide for each free worker, store these orders together, and submit them.

        Each order is decided on a ledger that includes the orders before it. This ends after `_MAX_FILLING_S`, so that with a
        slow policy the first worker does not wait for the order of the last. Return False if the policy has nothing to train
        now, or no further step can be paid.
        """
        start = ledger = self.ledger
        runner, thinking, orders = self.runner, self._thinking, list[Order]()
        check_start_s = runner.check_start_s if runner.can_save else None
        until_s = runner.now() + _MAX_FILLING_S
        is_declined = False
        try:
            while not is_declined and self._may_decide(ledger):
                if orders and (runner.now() >= until_s or self._should_stop()):
                    break
                self._declined, order = None, None
                if can_afford_order(ledger, thinking.pending_s):
                    self._declined, order = decide(
                        ledger, self.policy, thinking, runner.now, check_start_s=check_start_s
                    )
                if order is not None:
                    thinking.pending_s -= order.thinking_s
                    orders.append(order)
                    ledger = ledger.propose(order)
                is_declined = order is None
            self._record(*orders, after=start)
        except (Conflict, StaleLedger) as error:  # another process or thread has appended: decide again
            if isinstance(error, StaleLedger) and len(self.ledger) == len(start):
                raise  # the policy itself appended to the ledger that it was given
            thinking.pending_s += math.fsum(order.thinking_s for order in orders)
            self._refresh()
            return True
        self._set_cutoff(new=len(orders))
        for order in orders:
            self._submit(self.ledger.open_orders[order.number])
        return not is_declined

    def _submit(self, open_order: OpenOrder) -> None:
        order, ledger = open_order.order, self.ledger
        if open_order.checked:  # the resume check is made once, even if the run was stopped since
            order = replace(order, check=False)
        self.runner.submit(order, ledger.trials[order.trial].resumable_step, ledger.former_configs(order.trial))

    def _cutoff(self, ledger: Ledger, *, new: int = 0, unrecorded: Sequence[Entry] = ()) -> float:
        """Return the moment at which the running steps, and `new` ones that begin now, will have used what is left.

        n steps that began at s₁…sₙ have used Σ(t - sᵢ) at time t. This equals what is left at t = (left + Σsᵢ) / n. `unrecorded`
        are entries that the ledger does not have yet.
        """
        rate = ledger.budget.per_second(ledger.workers)
        running = self.runner.running()
        if rate == 0.0 or not (running or new):
            return math.inf
        is_priced = ledger.budget.unit == "dollars"
        left_s = self._left_s(math.fsum(_seconds_in(entry, is_priced=is_priced) for entry in unrecorded))
        if isinstance(running, RunningSteps):
            return running.cutoff(left_s, priced=is_priced, new=new, now=self.runner.now())
        began = list(running.values()) + [self.runner.now()] * new
        return (left_s + math.fsum(began)) / len(began)

    def _left_s(self, unrecorded_s: float = 0.0) -> float:
        """Return the seconds of worker time that are neither spent nor needed to save the live trials."""
        budget, rate = self.ledger.budget, self.ledger.budget.per_second(self.ledger.workers)
        unspent_s = (budget.total - self.ledger.spent) / rate if rate else math.inf
        return max(0.0, unspent_s - unrecorded_s - self._thinking.pending_s - self.runner.saving_reserve_s)

    def _set_cutoff(self, *, new: int = 0, unrecorded: Sequence[Entry] = ()) -> None:
        """Tell the runner when the steps have to end, before this thread does anything that may take long."""
        if self._keeps_cutoff is not None:
            cutoff = self._cutoff(self.ledger, new=new, unrecorded=unrecorded)
            self._cutoff_set = min(cutoff, self._deadline)
            self._keeps_cutoff.set_cutoff(self._cutoff_set, _DEADLINE if cutoff > self._deadline else _SPENT)

    def _wait(self, until: float) -> None:
        """Wait for events of the runner until `until`, and record them; interrupt the running steps at that moment."""
        runner = self.runner
        self._thinking.count()
        self._set_cutoff()
        poll_until = until if runner.simulated else min(until, runner.now() + _STOP_POLL_S)
        events = self._wait_for_runner(poll_until)
        self._thinking.skip()
        if not events and runner.now() >= until:
            events = runner.interrupt(_DEADLINE if until == self._deadline else _SPENT)
        if events:
            self._set_cutoff(unrecorded=events)
            self._record(*events)
            for number in [self.ledger.trials[loss.trial].open_order for loss in events if isinstance(loss, StateLoss)]:
                if number is not None and not self.ledger.open_orders[number].order.is_external:
                    self._set_cutoff(new=1)
                    self._submit(self.ledger.open_orders[number])  # the worker died; another one continues the order
                    with self._access_to_store():
                        self._beat()
            self._set_cutoff()
        else:
            self._observe(self.ledger, None)

    def _wait_for_runner(self, until: float) -> list[RunnerEvent]:
        """Return the events of the runner until this moment, without failures that Ctrl-C may have caused.

        Ctrl-C also reaches the processes that the training code itself has started, and may make the step fail. Such a step is
        trained again when the study continues.
        """
        try:
            events = self.runner.wait(until)
        except KeyboardInterrupt:
            if len(self._signals) != 1:
                raise
            return []  # the first signal raises nothing here, so this comes from a process of the training code
        if len(self._signals) > 1:
            raise KeyboardInterrupt  # the training code caught it, and what it then reported cannot be trusted
        return [_excuse_failure(event) for event in events] if self._signals else events

    # the ledger ------------------------------------------------------------------------------------------------------

    def _record(self, *entries: Entry, after: Ledger | None = None) -> None:
        """Append entries: with `after`, only to that ledger; without it, after all entries that other processes have appended.

        A heartbeat is stored with the entries, so that the start of every step is known and its time is charged. Without `after`,
        the digests of new checkpoints are appended too.
        """
        if after is None:
            entries = (*take_notes(self.runner), *entries)
        with self._access_to_store():
            while entries:
                try:
                    with self._beat_lock:
                        # A simulated run can be computed again, so it does not wait for the disk.
                        durable = not self.runner.simulated and self._heart.should_wait_for_disk()
                        self.journal.append(*entries, after=after, heartbeat=self._heartbeat(entries), durable=durable)
                    break
                except Conflict:
                    if after is not None:
                        raise
                    self._refresh()
        for entry in entries:
            self._observe(self.ledger, entry)

    @contextmanager
    def _access_to_store(self) -> Iterator[None]:
        """Leave the time of this block out of the charged time if the store did not answer meanwhile."""
        began = time.monotonic()
        try:
            yield
        finally:
            if (took_s := time.monotonic() - began) > _LONGEST_WRITE_S:
                self._thinking.leave_out(took_s)

    def _refresh(self) -> None:
        known = len(self.ledger)
        newest = self.journal.refresh()
        if self.lease.lost or not all(_may_others_append(entry, newest) for entry in newest.entries(known)):
            raise StudyInUse(f"the study {self.journal.name!r} was taken over by another process: this one stops")

    def _heartbeat(self, entries: Sequence[Entry]) -> Heartbeat | None:
        """Return the heartbeat to store with these entries; it includes the new orders, which begin now."""
        if self.runner.simulated:
            return None
        new = {entry.number: 0.0 for entry in entries if isinstance(entry, Order)}
        if self._keeps_cutoff is None:
            return Heartbeat(self.lease, new | self._running_s())
        cutoff = self._cutoff(self.ledger, new=len(new), unrecorded=entries)
        return Heartbeat(self.lease, new | self._running_s(), self._until_s(min(cutoff, self._deadline)))

    def _running_s(self) -> dict[int, float]:
        if self.runner.simulated:
            return {}
        # No step goes on after its cutoff, also if this thread has not seen yet that it was ended.
        return seconds_under_way(self.runner.running(), min(self.runner.now(), self._cutoff_set + CUTOFF_DELAY_S))

    def _until_s(self, cutoff: float) -> float:
        """Return for how long the running steps may go on at most."""
        return max(0.0, cutoff + CUTOFF_DELAY_S - self.runner.now())

    def _beat(self) -> None:
        with self._beat_lock:
            running_s = self._running_s()
            self.lease.beat(len(self.ledger), running_s, self._until_s(self._cutoff_set))
        announce = self._announce_long_step
        if announce is not None and running_s and (text := describe_long_step(self.ledger, running_s)):
            self._announce_long_step = None
            announce(text)


def run_in_memory(
    ledger: Ledger, policy: Policy, runner: Runner, *, store: LedgerStore | None = None, **options: Any
) -> Ending:
    """Run the loop with a store in memory, for plans, replays and tests; `options` are those of `Loop`."""
    journal = Journal.in_memory(ledger, store)
    with journal.store.lease(journal.name) as lease:
        return Loop(journal, lease, policy, runner, **options).run()


def _count_under_way(ledger: Ledger) -> int:
    """Return the number of open orders that the runner carries out. The others are carried out by users."""
    return len(ledger.open_orders) - ledger.state.open_external


def _seconds_in(entry: Entry, *, is_priced: bool) -> float:
    """Return the seconds that an entry charges; those of a dearer worker count more if they are `is_priced`."""
    if isinstance(entry, Receipt | StateLoss):
        seconds = entry.cost.total if isinstance(entry, Receipt) else entry.seconds
        return seconds * entry.price_factor if is_priced else seconds
    if isinstance(entry, Order):
        return entry.thinking_s
    return entry.facts.get("seconds", 0.0) if isinstance(entry, Note) else 0.0


def _excuse_failure(event: RunnerEvent) -> RunnerEvent:
    """Return the loss of the trial's state in place of a failed step; return other events unchanged."""
    if not isinstance(event, Receipt) or event.status != "failed":
        return event
    return StateLoss(
        trial=event.trial,
        resumable_step=event.saved_step,
        seconds=event.cost.total,
        why=shorten(f"the step failed after a signal to stop: {event.text}"),
        worker=event.worker,
        price_factor=event.price_factor,
    )


def _may_others_append(entry: Entry, ledger: Ledger) -> bool:
    """Return whether another process may append this entry while this one runs the study."""
    if isinstance(entry, Order):
        return entry.is_external
    return ledger.orders[entry.order].is_external if isinstance(entry, Receipt) else not isinstance(entry, StateLoss)
