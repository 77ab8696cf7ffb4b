"""One process spends a study's budget: it holds the lease, keeps its heart beating, and stores everything that happens.

Others may write into the ledger meanwhile: configs they want tried, changes, orders they asked for and tell about. What
happened here is told behind what they said; what is wanted here is decided anew. Anything else means that somebody took
the study over, and this process stops.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from shoestring.core.entries import Entry, Lost, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.policy import Policy
from shoestring.errors import Conflict, Leased
from shoestring.runners.runner import Runner
from shoestring.stores.heartbeat import Heart
from shoestring.stores.store import Lease, Store
from shoestring.study.loop import Outcome, run

Observe = Callable[[Ledger, Entry | None], None]


class Spending:
    """`keep` is given every new ledger at once: it is the study's, also when the run ends with an error."""

    def __init__(self, store: Store, study: str, lease: Lease, ledger: Ledger, keep: Callable[[Ledger], None]) -> None:
        self._store, self._study, self._lease, self._ledger, self._keep = store, study, lease, ledger, keep

    def spend(
        self,
        policy: Policy,
        runner: Runner,
        deadline_s: float | None,
        should_stop: Callable[[], bool],
        observe: Observe,
    ) -> Outcome:
        """Until the budget, the deadline or the policy ends it. A step that a crash cut off is charged first."""

        def beat() -> None:
            entries = len(self._ledger)  # counted first: a receipt stored meanwhile pays for its step
            now = runner.now()
            running = {} if runner.simulated else {n: max(0.0, now - s) for n, s in runner.running().items()}
            self._lease.beat(entries, running)

        heart = Heart(beat)
        try:
            return run(
                self._ledger,
                policy,
                runner,
                self._append,
                refresh=self._refresh,
                deadline_at=math.inf if deadline_s is None else self._ledger.books.clock + deadline_s,
                should_stop=lambda: self._lease.lost or should_stop(),
                observe=observe,
                cut_off=self._lease.cut_off,
            )
        finally:
            try:
                heart.stop()
                beat()  # what is under way now is charged by whoever goes on
            finally:
                runner.close(freeze=not self._lease.lost)  # the checkpoints are another's by then

    def _append(self, ledger: Ledger, *entries: Entry) -> Ledger:
        while entries:
            try:
                ledger = self._newest(self._store.append(self._study, ledger, *entries))
                break
            except Conflict:  # what happened is told all the same, behind what others have said
                if any(isinstance(entry, Order) for entry in entries):
                    raise  # but what is wanted must be decided anew
                ledger = self._refresh(ledger)
        return ledger

    def _refresh(self, ledger: Ledger) -> Ledger:
        newest = self._newest(self._store.refresh(self._study, ledger))
        if self._lease.lost or not all(_may_come_between(entry, newest) for entry in newest.entries(len(ledger))):
            raise Leased(f"the study {self._study!r} was taken over by another process: this one stops")
        return newest

    def _newest(self, ledger: Ledger) -> Ledger:
        self._ledger = ledger
        self._keep(ledger)
        return ledger


def _may_come_between(entry: Entry, ledger: Ledger) -> bool:
    """Whether others may append this while a study is being run: wishes, changes, and what was asked for and told."""
    if isinstance(entry, Order):
        return entry.asked
    return ledger.orders[entry.order].asked if isinstance(entry, Receipt) else not isinstance(entry, Lost)
