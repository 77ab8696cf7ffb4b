"""The desk of a study: clients take an order, report on its steps, and say now and then that they are alive.

One process holds the study's lease and decides for all of them; `cli/serve` puts this behind a small HTTP server. What a
client does can be repeated when an answer was lost on the way, and nothing is bought or charged twice:

    ask    a client has at most one open order: who asks again gets the same one
    tell   a step is known by its order and its number: who tells it again is told that it is known
    beat   says that the client is at work on its order
    lost   the state of the trial went back to an earlier step; the steps since are trained again

All that wait at one moment take turns, each on the ledger that the one before left, and what they bought and told is stored
at once: one wait for the disk, however many there are. Nobody is answered before.

Who took an order is a note in the ledger, stored with the order, so that a new server knows it too. A client that is silent
for `patience_s` is given up: its order is closed, its trial goes back to what was saved, and it is charged the seconds of
its step up to the last word that was heard, and one `beat_s` more at most. The seconds heard of are part of the heartbeat
of the lease, so they outlive a server that is killed. Where training keeps failing nothing more is given out, as in a run.

Requests from many threads take turns at a desk: first come, first served, by one thread that decides for all.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from shoestring.core.ledger.entries import Entry, Lost, Note, Order, Receipt
from shoestring.core.ledger.failures import FailurePatience, say_failure
from shoestring.core.values.checks import whole
from shoestring.core.values.text import printable
from shoestring.errors import Conflict, StoreError, StudyError
from shoestring.reports import facts
from shoestring.stores.store import Heart, Heartbeat, Lease
from shoestring.study.ask import Told, next_orders, next_receipt
from shoestring.study.decide import Thinking
from shoestring.study.serving.client_orders import TakenView, require_open, require_same
from shoestring.study.study import Study

BEATS_PER_PATIENCE = 5  # so many may go astray before a client is given up
MOST_CLIENT_CHARS = 100
_TURNS_S = 0.05  # of deciding for those who ask, before the first of them is answered
_AGAIN_S = 1.0  # after which a client that got nothing may ask again


@dataclass(slots=True)
class Sign:
    """Of life, of a client that has an order."""

    heard_at: float
    worked_s: float = 0.0  # at its present step, as far as was heard


class Desk:
    """To be used by one thread, but for `beat_heart`."""

    def __init__(self, study: Study, lease: Lease, patience_s: float) -> None:
        self.study, self.lease, self.patience_s = study, lease, patience_s
        self.beat_s = patience_s / BEATS_PER_PATIENCE
        self._thinking = Thinking()
        self._signs: dict[int, Sign] = {}
        self.ledger = study.journal.refresh()  # with what is not stored yet
        self._unstored: list[Entry] = []
        self._policy = study.policy
        self._patience = FailurePatience(self.ledger.books)
        now = time.time()
        for number in self._taken():  # by clients of a server before this one: they get all their time again
            self._signs[number] = Sign(now, lease.cut_off.get(number, 0.0))
        self._heart = Heart(self.beat_heart)

    def close(self) -> None:
        self._heart.stop()
        self.beat_heart()
        self.study.journal.settle()

    def take_turns(self, works: Sequence[Callable[[], Any]]) -> list[Any]:
        """The answers of these calls of the methods below, stored; an exception where one is refused.

        Those that do not get their turn soon have no answer yet: the others are not to wait for long thinking.
        """
        journal = self.study.journal
        while True:
            start = self.ledger = journal.refresh()
            # Looked up here: once entries are proposed, what is stored must not be asked.
            self._policy = self.study.policy
            answers: list[Any] = []
            self._unstored, until_s = [], time.monotonic() + _TURNS_S
            for work in works:
                if answers and time.monotonic() > until_s:
                    break
                answers.append(_answer(work))
            try:
                if self._unstored:
                    journal.append(*self._unstored, after=start, beat=self._heartbeat(self._unstored))
            except Conflict:  # somebody wrote without us: all of it again, on what they left
                continue
            self.ledger = journal.ledger
            for number in [number for number in self._signs if number not in self.ledger.open_orders]:
                del self._signs[number]
            return answers

    # what clients do -------------------------------------------------------------------------------------------------

    def ask(self, client: str) -> dict[str, Any]:
        self._require_client(client)
        self._add(*self._give_up())
        order, failing = self._order_of(client), self._patience.why_stop(self.ledger.books)
        for bought in [] if order or failing else next_orders(self.ledger, self._policy, self._thinking):
            self._add(bought, Note(topic="taken", facts={"order": bought.number, "client": client}))
            order = bought
        if order is None:
            is_over = not self.ledger.open_orders
            why = {"failing": say_failure(failing)} if failing else {}
            return {"order": None, "over": is_over, "again_s": None if is_over else _AGAIN_S, **why, **self._purse()}
        self._hear(order.number)
        told = {"number": order.number, "trial": order.trial, "config": dict(order.config)}
        told |= {"held": self._held(order.number), "until": order.until, "validate": order.validate}
        return {"order": told, "over": False, "beat_s": self.beat_s, **self._purse()}

    def tell(self, number: int, step: int, told: Told) -> dict[str, Any]:
        """`step` of an order is done, or failed."""
        number, step = self._require_order(number), whole("step", step, 1)
        if told.saved is not None and not 0 <= whole("saved", told.saved, 0) <= step:
            raise StudyError(f"saved={told.saved} must be a step up to {step}, the one that is told")
        receipts = self._receive(number, step, told)
        self._add(*receipts)
        if number in self.ledger.open_orders:
            self._hear(number)
        return {"new": bool(receipts), **self._present(number), **self._purse()}

    def beat(self, number: int) -> dict[str, Any]:
        """The client of this order is at work."""
        number = self._require_open(number)
        self._hear(number, works=True)
        return self._present(number)

    def lose(self, number: int, held: int) -> dict[str, Any]:
        """The trial of this order can go on only from step `held`; what came behind is trained again."""
        number, held = self._require_open(number), whole("held", held, 0)
        trial, before = self.ledger.orders[number].trial, self._held(number)
        if held > before:
            raise StudyError(f"held={held} must be at most {before}: no later step of trial {trial} was told")
        client = self._clients().get(number, "")
        if held < before:
            why = f"{client or 'a client'} cannot go on from step {before}"
            self._add(Lost(trial=trial, held=held, why=why, worker=client))
        self._hear(number)
        return self._present(number)

    def status(self) -> dict[str, Any]:
        now = time.time()
        clients = [
            {"client": client, "order": number, "silent_s": max(0.0, now - self._signs[number].heard_at)}
            for number, client in self._taken().items()
            if number in self._signs
        ]
        return facts.summary(self.study.name, self.ledger, None) | {
            "open_orders": [facts.order_facts(one.order) for one in self.ledger.open_orders.values()],
            "clients": clients,
            "give_up_after_s": self.patience_s,
        }

    def best(self) -> dict[str, Any]:
        return {"best": facts.summary(self.study.name, self.ledger, None)["best"], **self._purse()}

    # the ledger ------------------------------------------------------------------------------------------------------

    def _add(self, *entries: Entry) -> None:
        for entry in entries:
            self.ledger = self.ledger.propose(entry)
            self._unstored.append(entry)

    def _receive(self, number: int, step: int, told: Told) -> list[Receipt]:
        """The receipt of this step; nothing if the step was told before."""
        ledger, held = self.ledger, self._held(number)
        last = ledger.view(TakenView()).last.get(number)
        if last is not None and step <= last.step and (step <= held or number not in ledger.open_orders):
            require_same(last, step, told)
            return []
        require_open(ledger, number)
        if step != held + 1:
            raise StudyError(
                f"step={step} of order {number} does not come next: steps are told one by one, now {held + 1}"
            )
        return [next_receipt(ledger, ledger.orders[number], replace(told, worker=self._clients().get(number, "")))]

    def _give_up(self) -> list[Lost | Note]:
        """What is to be recorded about clients that were silent for too long."""
        entries: list[Lost | Note] = []
        now = time.time()
        for number, client in self._taken().items():
            sign = self._signs.setdefault(number, Sign(now))
            silent_s = now - sign.heard_at
            if silent_s <= self.patience_s:
                continue
            trial = self.ledger.trials[self.ledger.orders[number].trial]
            why = f"nothing was heard of {client} for {silent_s:.0f} s"
            seconds = sign.worked_s + min(silent_s, self.beat_s)
            held = min(trial.saved, trial.held)
            entries.append(Lost(trial=trial.number, held=held, seconds=seconds, why=why, death=True, worker=client))
            entries.append(Note(topic="released", facts={"order": number, "why": why}))
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
            sign.worked_s = max(sign.worked_s, now - self.ledger.open_orders[number].since)

    def _clients(self) -> Mapping[int, str]:
        """By order: who took it."""
        return self.ledger.view(TakenView()).clients

    def _taken(self) -> Mapping[int, str]:
        """Open orders that clients of a desk have, and who has them."""
        clients = self._clients()
        return {number: clients[number] for number in self.ledger.open_orders if number in clients}

    def _order_of(self, client: str) -> Order | None:
        return next((self.ledger.orders[number] for number, name in self._taken().items() if name == client), None)

    def _held(self, number: int) -> int:
        """The step that the trial of this order can go on from."""
        return self.ledger.trials[self.ledger.orders[number].trial].held

    def _present(self, number: int) -> dict[str, Any]:
        """Where an order stands: the step to be told next, None if there is none."""
        is_open = number in self.ledger.open_orders
        return {"number": number, "open": is_open, "next_step": self._held(number) + 1 if is_open else None}

    def _purse(self) -> dict[str, Any]:
        ledger = self.ledger
        return {"unit": ledger.budget.unit, "spent": ledger.spent, "left": ledger.left}

    def _require_client(self, client: Any) -> None:
        if not isinstance(client, str) or not 0 < len(client) <= MOST_CLIENT_CHARS or not client.isprintable():
            shown = printable(str(client))[:40]
            raise StudyError(
                f"client={shown!r} must be a name of 1 to {MOST_CLIENT_CHARS} printable characters, another one for each "
                "client, as 'gpu-7'"
            )

    def _require_order(self, given: Any) -> int:
        count, number = len(self.ledger.orders), whole("order", given, 0)
        if number >= count:
            known = f"orders 0 to {count - 1}" if count else "no orders yet"
            raise StudyError(f"order={number} is unknown: there are {known}; tell the number that ask gave")
        return number

    def _require_open(self, given: Any) -> int:
        number = self._require_order(given)
        require_open(self.ledger, number)
        return number


def _answer(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # of this one alone: the others go on
        return error


class Turns:
    """`with Turns(desk) as turns`: closes the desk too."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self._waiting: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._news, self._is_closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._run, name="shoestring-desk", daemon=True)
        self._thread.start()

    def __enter__(self) -> Turns:
        return self

    def __exit__(self, *raised: object) -> None:
        """Those whose turn has begun are answered; the others are to ask again when somebody serves again."""
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join()
        for _, answer in self._waiting:
            answer.set_exception(StoreError("the server is closing: send the same again later, nothing was done"))
        self.desk.close()

    def take(self, work: Callable[[], Any], timeout_s: float) -> Any:
        """What a method of the desk answers, when its turn has come; TimeoutError if that takes too long."""
        answer: Future[Any] = Future()
        with self._news:
            self._waiting.append((work, answer))
            self._news.notify()
        return answer.result(timeout=timeout_s)

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(lambda: self._waiting or self._is_closed)
                if self._is_closed:
                    return
                works = [work for work, _ in self._waiting]
            try:
                answers = self.desk.take_turns(works)
            except Exception as error:  # nothing could be stored: all of them are told
                answers = [error] * len(works)
            for result in answers:
                with self._news:
                    _, answer = self._waiting.popleft()
                if isinstance(result, Exception):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)
