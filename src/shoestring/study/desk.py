"""The desk of a study: clients take an order, report on its steps, and say now and then that they are alive.

One process holds the study's lease and decides for all of them; `cli/serve` puts this behind a small HTTP server. What a
client does can be repeated when an answer was lost on the way, and nothing is bought or charged twice:

    ask    a client has at most one open order: who asks again gets the same one
    tell   a step is known by its order and its number: who tells it again is told that it is known
    beat   says that the client is at work on its order
    lost   the state of the trial went back to an earlier step; the steps since are trained again

Who took an order is a note in the ledger, stored with the order, so that a new server knows it too. A client that is silent
for `patience_s` is given up: its order is closed, its trial goes back to what was saved, and it is charged the seconds of
its step up to the last word that was heard, and one `beat_s` more at most. The seconds heard of are part of the heartbeat
of the lease, so they outlive a server that is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from shoestring.core.arguments import whole
from shoestring.core.entries import Entry, Lost, Note, Order, Receipt
from shoestring.core.ledger import Ledger
from shoestring.core.texts import printable
from shoestring.errors import StudyError
from shoestring.reports import facts
from shoestring.stores.heartbeat import Heart
from shoestring.stores.store import Heartbeat, Lease
from shoestring.study.ask import Told, next_orders, next_receipt
from shoestring.study.decide import Thinking
from shoestring.study.study import Study
from shoestring.study.taken import TakenView, require_open, require_same

E = TypeVar("E", bound=Entry)
BEATS_PER_PATIENCE = 5  # so many may go astray before a client is given up
MOST_CLIENT_CHARS = 100
_AGAIN_S = 1.0  # after which a client that got nothing may ask again


@dataclass(slots=True)
class Sign:
    """Of life, of a client that has an order."""

    heard_at: float
    worked_s: float = 0.0  # at its present step, as far as was heard


class Desk:
    """To be used by one thread at a time, but for `beat_heart`."""

    def __init__(self, study: Study, lease: Lease, patience_s: float) -> None:
        self.study, self.lease, self.patience_s = study, lease, patience_s
        self.beat_s = patience_s / BEATS_PER_PATIENCE
        self._thinking = Thinking()
        self._signs: dict[int, Sign] = {}
        ledger, now = study.journal.refresh(), time.time()
        for number in self._taken(ledger):  # by clients of a server before this one: they get all their time again
            self._signs[number] = Sign(now, lease.cut_off.get(number, 0.0))
        self._heart = Heart(self.beat_heart)

    def close(self) -> None:
        self._heart.stop()
        self.beat_heart()
        self.study.journal.settle()

    # what clients do -------------------------------------------------------------------------------------------------

    def ask(self, client: str) -> dict[str, Any]:
        self._require_client(client)
        self._append(self._give_up)
        if self._order_of(client) is None:
            self._append(lambda ledger: self._take(ledger, client))
        ledger, order = self.study.ledger, self._order_of(client)
        if order is None:
            is_over = not ledger.open_orders
            return {"order": None, "over": is_over, "again_s": None if is_over else _AGAIN_S, **self._purse(ledger)}
        self._hear(order.number)
        trial = ledger.trials[order.trial]
        told = {"number": order.number, "trial": order.trial, "config": dict(order.config), "held": trial.held}
        told |= {"until": order.until, "validate": order.validate}
        return {"order": told, "over": False, "beat_s": self.beat_s, **self._purse(ledger)}

    def tell(self, number: int, step: int, told: Told) -> dict[str, Any]:
        """`step` of an order is done, or failed."""
        number = self._require_order(number)
        step = whole("step", step, 1)
        if told.saved is not None and not 0 <= whole("saved", told.saved, 0) <= step:
            raise StudyError(f"saved={told.saved} must be a step up to {step}, the one that is told")
        recorded = self._append(lambda ledger: self._receive(ledger, number, step, told))
        ledger = self.study.ledger
        if number in ledger.open_orders:
            self._hear(number)
        return {"new": bool(recorded), **self._present(ledger, number), **self._purse(ledger)}

    def beat(self, number: int) -> dict[str, Any]:
        """The client of this order is at work."""
        number = self._require_open(number)
        self._hear(number, works=True)
        return self._present(self.study.ledger, number)

    def lose(self, number: int, held: int) -> dict[str, Any]:
        """The trial of this order can go on only from step `held`; what came behind is trained again."""
        number = self._require_open(number)
        held = whole("held", held, 0)

        def loss(ledger: Ledger) -> list[Lost]:
            trial = ledger.trials[ledger.orders[number].trial]
            if held > trial.held:
                raise StudyError(
                    f"held={held} must be at most {trial.held}: no later step of trial {trial.number} was told"
                )
            client = ledger.view(TakenView()).clients.get(number, "")
            why = f"{client or 'a client'} cannot go on from step {trial.held}"
            return [Lost(trial=trial.number, held=held, why=why, worker=client)] if held < trial.held else []

        self._append(loss)
        self._hear(number)
        return self._present(self.study.ledger, number)

    def status(self) -> dict[str, Any]:
        ledger, now = self.study.journal.refresh(), time.time()
        clients = [
            {"client": client, "order": number, "silent_s": max(0.0, now - self._signs[number].heard_at)}
            for number, client in self._taken(ledger).items()
            if number in self._signs
        ]
        return facts.summary(self.study.name, ledger, None) | {
            "open_orders": [facts.order_facts(one.order) for one in ledger.open_orders.values()],
            "clients": clients,
            "give_up_after_s": self.patience_s,
        }

    def best(self) -> dict[str, Any]:
        ledger = self.study.journal.refresh()
        return {
            "best": None if ledger.best is None else facts.best_facts(ledger, ledger.best, None),
            **self._purse(ledger),
        }

    # the ledger ------------------------------------------------------------------------------------------------------

    def _take(self, ledger: Ledger, client: str) -> list[Order | Note]:
        """The next order, and the note of who took it."""
        orders = next_orders(ledger, self.study.policy, self._thinking)
        return [*orders, *(Note(topic="taken", facts={"order": one.number, "client": client}) for one in orders)]

    def _receive(self, ledger: Ledger, number: int, step: int, told: Told) -> list[Receipt]:
        """The receipt of this step; nothing if the step was told before."""
        order, taken = ledger.orders[number], ledger.view(TakenView())
        last, held = taken.last.get(number), ledger.trials[order.trial].held
        is_open = number in ledger.open_orders
        if last is not None and step <= last.step and (step <= held or not is_open):
            require_same(last, step, told)
            return []
        require_open(ledger, number)
        if step != held + 1:
            raise StudyError(
                f"step={step} of order {number} does not come next: steps are told one by one, now {held + 1}"
            )
        return [next_receipt(ledger, order, replace(told, worker=taken.clients.get(number, "")))]

    def _give_up(self, ledger: Ledger) -> list[Lost | Note]:
        """What is to be recorded about clients that were silent for too long."""
        entries: list[Lost | Note] = []
        now = time.time()
        for number, client in self._taken(ledger).items():
            sign = self._signs.setdefault(number, Sign(now))  # taken at another desk
            silent_s = now - sign.heard_at
            if silent_s <= self.patience_s:
                continue
            trial = ledger.trials[ledger.orders[number].trial]
            why = f"nothing was heard of {client} for {silent_s:.0f} s"
            seconds = sign.worked_s + min(silent_s, self.beat_s)
            held = min(trial.saved, trial.held)
            entries.append(Lost(trial=trial.number, held=held, seconds=seconds, why=why, death=True, worker=client))
            entries.append(Note(topic="released", facts={"order": number, "why": why}))
        return entries

    def _append(self, entries_for: Callable[[Ledger], Sequence[E]]) -> Sequence[E]:
        entries = self.study.journal.append_newest(entries_for, self._heartbeat)
        for number in [number for number in self._signs if number not in self.study.ledger.open_orders]:
            del self._signs[number]
        return entries

    def _heartbeat(self, entries: Sequence[Entry]) -> Heartbeat:
        """What is under way once these entries are stored: a step that they tell of is not."""
        told = [entry.order for entry in entries if isinstance(entry, Receipt)]
        told += [entry.facts["order"] for entry in entries if isinstance(entry, Note)]
        for number in told:
            if number in self._signs:
                self._signs[number].worked_s = 0.0
        return Heartbeat(self.lease, self._worked_s())

    def beat_heart(self) -> None:
        """May be called from another thread: what is told meanwhile comes behind the entries that are counted first."""
        count = len(self.study.ledger)
        self.lease.beat(count, self._worked_s())

    def _worked_s(self) -> dict[int, float]:
        return {number: sign.worked_s for number, sign in list(self._signs.items())}

    # clients and their orders ----------------------------------------------------------------------------------------

    def _hear(self, number: int, *, works: bool = False) -> None:
        """`works`: all the time since its last step; who asks again may have been started again."""
        sign, now = self._signs.setdefault(number, Sign(0.0)), time.time()
        sign.heard_at = now
        if works:
            sign.worked_s = max(sign.worked_s, now - self.study.ledger.open_orders[number].since)

    def _taken(self, ledger: Ledger) -> Mapping[int, str]:
        """Open orders that clients of a desk have, and who has them."""
        clients = ledger.view(TakenView()).clients
        return {number: clients[number] for number in ledger.open_orders if number in clients}

    def _order_of(self, client: str) -> Order | None:
        ledger = self.study.ledger
        return next((ledger.orders[n] for n, name in self._taken(ledger).items() if name == client), None)

    def _present(self, ledger: Ledger, number: int) -> dict[str, Any]:
        """Where an order stands: the step to be told next, None if there is none."""
        is_open = number in ledger.open_orders
        held = ledger.trials[ledger.orders[number].trial].held
        return {"number": number, "open": is_open, "next_step": held + 1 if is_open else None}

    def _purse(self, ledger: Ledger) -> dict[str, Any]:
        return {"unit": ledger.budget.unit, "spent": ledger.spent, "left": ledger.left}

    def _require_client(self, client: Any) -> None:
        if not isinstance(client, str) or not 0 < len(client) <= MOST_CLIENT_CHARS or not client.isprintable():
            shown = printable(str(client))[:40]
            raise StudyError(
                f"client={shown!r} must be a name of 1 to {MOST_CLIENT_CHARS} printable characters, another one for each "
                "client, as 'gpu-7'"
            )

    def _require_order(self, given: Any) -> int:
        count, number = len(self.study.journal.refresh().orders), whole("order", given, 0)
        if number >= count:
            known = f"orders 0 to {count - 1}" if count else "no orders yet"
            raise StudyError(f"order={number} is unknown: there are {known}; tell the number that ask gave")
        return number

    def _require_open(self, given: Any) -> int:
        number = self._require_order(given)
        require_open(self.study.ledger, number)
        return number
