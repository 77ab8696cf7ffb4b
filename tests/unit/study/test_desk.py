"""The desk: one order a client, each step charged once however often it is told, and what becomes of those who fall silent."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from shoestring import Study
from shoestring.core.ledger.accounting import BooksView
from shoestring.core.ledger.entries import Lost, Receipt
from shoestring.errors import Leased, StudyError
from shoestring.stores.addresses import open_store
from shoestring.stores.store import HEARTBEAT_S, Lease
from shoestring.study.ask import Told
from shoestring.study.journal import Journal
from shoestring.study.serving.client_orders import OrderGone
from shoestring.study.serving.session import BEATS_PER_PATIENCE, Desk

SPACE = {"lr": {"float": [0.001, 1.0], "log": True}}
PATIENCE_S = 50.0
BEAT_S = PATIENCE_S / BEATS_PER_PATIENCE


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("time.time", made)
    return made


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/desk.db"


class OneByOne:
    """A desk whose methods are called one at a time, each stored before the next."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._desk, name)
        if name not in ("ask", "tell", "beat", "lose", "status", "best"):
            return found

        def call(*given: Any) -> Any:
            (answer,) = self._desk.take_turns([partial(found, *given)])
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class Opened:
    """A desk that can be closed, or left as a process leaves it that is killed, and opened again."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.desk: OneByOne
        self.lease: Any
        self.open()

    def open(self) -> OneByOne:
        study = Study.open(store=open_store(self.where))
        self.lease = study.store.lease(study.name)
        self.desk = OneByOne(Desk(study, self.lease, PATIENCE_S))
        return self.desk

    def close(self) -> None:
        self.desk.close()
        self.lease.__exit__(None, None, None)

    def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.desk._heart.stop()
        monkeypatch.setattr("shoestring.stores.lease.Process.is_dead", lambda process: True)


@pytest.fixture
def opened(where: str, request: pytest.FixtureRequest) -> Iterator[Opened]:
    budget = getattr(request, "param", "12 epochs")
    Study.begin(SPACE, budget, max_steps=3, policy="random_search", store=where, seed=1)
    made = Opened(where)
    yield made
    made.close()


def value(number: float, **more: Any) -> Told:
    return Told.read(number, more.pop("cost_s", 1.0), None, **more)


def entries(opened: Opened, kind: type) -> list[Any]:
    return [entry for entry in opened.desk.study.ledger.entries() if isinstance(entry, kind)]


# asking --------------------------------------------------------------------------------------------------------------


def test_clients_ask_and_tell_until_the_money_is_gone(opened: Opened) -> None:
    desk = opened.desk
    while (answer := desk.ask("a"))["order"] is not None:
        order = answer["order"]
        assert list(order["config"]) == ["lr"]
        for step in range(order["held"] + 1, order["until"] + 1):
            told = desk.tell(order["number"], step, value(order["config"]["lr"]))
            assert told["new"]
            assert told["next_step"] == (step + 1 if step < order["until"] else None)
    assert answer == {"order": None, "over": True, "again_s": None, "unit": "epochs", "spent": 12.0, "left": 0.0}
    assert desk.best()["best"]["value"] == desk.study.best.value
    assert {receipt.worker for receipt in entries(opened, Receipt)} == {"a"}


def test_who_asks_again_gets_the_same_order(opened: Opened) -> None:
    first = opened.desk.ask("a")
    assert opened.desk.ask("a") == first
    other = opened.desk.ask("b")
    assert other["order"]["number"] == 1
    assert opened.desk.ask("a")["order"]["number"] == 0
    assert len(opened.desk.study.ledger.orders) == 2
    opened.desk.tell(0, 1, value(0.5))
    assert opened.desk.ask("a")["order"] == first["order"] | {"held": 1}


def test_who_has_to_wait_is_told_so(opened: Opened) -> None:
    answers = [opened.desk.ask(name) for name in "abcde"]
    assert [answer["order"] is None for answer in answers] == [False] * 4 + [True]
    assert not answers[-1]["over"]
    assert answers[-1]["again_s"] > 0


@pytest.mark.parametrize("client", ["", None, 7, "a\nb", "x" * 101, "\ud800", ["a"]])
def test_clients_have_names(opened: Opened, client: Any) -> None:
    with pytest.raises(StudyError, match=r"client=.* must be a name of 1 to 100 printable characters"):
        opened.desk.ask(client)
    assert not opened.desk.study.ledger.orders


def test_one_desk_at_a_time(opened: Opened) -> None:
    with pytest.raises(Leased, match="is being run by process"):
        Opened(opened.where)


# telling -------------------------------------------------------------------------------------------------------------


def test_a_step_told_again_is_known_and_charged_once(opened: Opened) -> None:
    desk = opened.desk
    desk.ask("a")
    for step in (1, 2, 3):
        first = desk.tell(0, step, value(0.5 / step, cost_s=7.0))
        again = desk.tell(0, step, value(0.5 / step, cost_s=7.0))
        assert first["new"]
        assert again == first | {"new": False}
    books = desk.study.ledger.books
    assert (books.receipts, desk.study.spent, books.by_kind["train"]) == (3, 3, 21.0)


def test_a_step_told_with_another_value_is_a_mistake(opened: Opened) -> None:
    opened.desk.ask("a")
    opened.desk.tell(0, 1, value(0.5))
    with pytest.raises(StudyError, match=r"value=0.25 is told for step 1 of order 0, which was told as 0.5"):
        opened.desk.tell(0, 1, value(0.25))
    assert opened.desk.study.spent == 1


def test_steps_come_one_by_one(opened: Opened) -> None:
    opened.desk.ask("a")
    with pytest.raises(StudyError, match=r"step=2 of order 0 does not come next: .* now 1"):
        opened.desk.tell(0, 2, value(0.5))
    for wrong in (0, -1, 1.5, "1", True, None):
        with pytest.raises(StudyError, match=r"step=.* must be a whole number, 1 or more"):
            opened.desk.tell(0, wrong, value(0.5))
    for unknown in (1, 10**30):
        with pytest.raises(StudyError, match=f"order={unknown} is unknown: there are orders 0 to 0"):
            opened.desk.tell(unknown, 1, value(0.5))


def test_a_failure_told_again_is_charged_once(opened: Opened) -> None:
    opened.desk.ask("a")
    failed = Told.read(None, 1.0, "out of memory")
    assert opened.desk.tell(0, 1, failed)["new"]
    assert opened.desk.tell(0, 1, failed) == opened.desk.tell(0, 1, failed)
    trial = opened.desk.study.trials[0]
    assert (trial.failures, trial.failure, opened.desk.study.spent) == (1, "out of memory", 1)
    with pytest.raises(OrderGone, match="order 0 is not open any more"):
        opened.desk.tell(0, 2, value(0.5))


def test_code_that_always_fails_is_not_bought_on_and_a_new_server_tries_again(opened: Opened) -> None:
    for number in range(3):
        assert "failing" not in opened.desk.ask("a")
        opened.desk.tell(number, 1, Told.read(None, 1.0, f"no module named 'torch' (seen {number} times)"))
    answer = opened.desk.ask("a")
    assert (answer["order"], answer["over"], answer["spent"]) == (None, True, 3.0)
    assert answer["failing"] == "no module named 'torch' (seen 2 times)"
    opened.close()
    assert opened.open().ask("a")["order"]["number"] == 3


def test_values_that_are_no_numbers_end_the_trial(opened: Opened) -> None:
    opened.desk.ask("a")
    assert not opened.desk.tell(0, 1, value(math.nan))["open"]
    assert not opened.desk.tell(0, 1, value(math.nan))["new"]
    assert opened.desk.study.trials[0].diverged


def test_orders_of_a_loop_are_its_own(where: str) -> None:
    """An order that `run` left open is not for clients to tell about."""
    study = Study.begin(SPACE, "12 epochs", max_steps=3, policy="random_search", store=where, seed=1)
    train = study.policy.decide(study.ledger, study.ledger.decision_rng())
    order = study.ledger.accept(train)  # type: ignore[arg-type]
    assert order is not None
    study.journal.append(order)
    opened = Opened(where)
    with pytest.raises(StudyError, match="order 0 was not asked for"):
        opened.desk.tell(0, 1, value(0.5))
    with pytest.raises(StudyError, match="order 0 was not asked for"):
        opened.desk.beat(0)
    opened.close()


# turns -----------------------------------------------------------------------------------------------------------------


def test_those_who_wait_together_are_stored_together(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoestring.study.serving.session._TURNS_S", 60.0)  # however busy this machine is
    desk, stored = opened.desk, []
    real = Journal.append

    def append(journal: Journal, *added: Any, **how: Any) -> None:
        stored.append(len(added))
        real(journal, *added, **how)

    monkeypatch.setattr(Journal, "append", append)
    asked = [partial(desk._desk.ask, name) for name in "abac"]
    answers = desk.take_turns(asked)
    assert [answer["order"]["number"] for answer in answers] == [0, 1, 0, 2]
    assert stored == [6], "three orders, and who took each"
    told = [partial(desk._desk.tell, 0, step, value(0.5 / step)) for step in (1, 2, 2, 9)]
    *good, bad = desk.take_turns([*told, partial(desk._desk.ask, "c")])
    assert [answer["new"] for answer in good[:3]] == [True, True, False]
    assert isinstance(good[3], StudyError)
    assert bad["order"]["number"] == 2, "one that is refused does not harm the others"
    assert stored == [6, 2]
    again = Study.open(store=opened.where).ledger
    assert (len(again.orders), again.spent) == (3, 2)


def test_what_is_stored_is_not_folded_again_for_every_turn(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger that is stored gives its views to the one that is proposed: who asked it would count from the beginning."""
    desk, absorbed = opened.desk._desk, []
    real = BooksView.absorb

    def absorb(view: BooksView, books: Any, entry: Any) -> Any:
        absorbed.append(entry)
        return real(view, books, entry)

    monkeypatch.setattr(BooksView, "absorb", absorb)
    before = len(desk.ledger)
    desk.take_turns([partial(desk.ask, name) for name in "abcd"])
    assert len(absorbed) == len(desk.ledger) - before == 8


def test_turns_give_the_same_orders_as_one_by_one(tmp_path: Path) -> None:
    orders = []
    for together in (True, False):
        where = f"sqlite:///{tmp_path}/{together}.db"
        Study.begin(SPACE, "30 epochs", max_steps=3, policy="asha", store=where, seed=1)
        opened = Opened(where)
        desk = opened.desk._desk
        for _ in range(8):
            asks = [partial(desk.ask, name) for name in "abcd"]
            answers = desk.take_turns(asks) if together else [desk.take_turns([ask])[0] for ask in asks]
            given = [answer["order"] for answer in answers if answer["order"]]
            for order in given:
                for step in range(order["held"] + 1, order["until"] + 1):
                    desk.take_turns([partial(desk.tell, order["number"], step, value(order["config"]["lr"] / step))])
        orders.append([(o.trial, o.until, o.config, o.why) for o in desk.ledger.orders])
        opened.close()
    assert orders[0] == orders[1]
    assert len(orders[0]) > 12


def test_long_thinking_keeps_nobody_waiting(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    desk = opened.desk._desk
    seconds = iter(range(100))
    monkeypatch.setattr("shoestring.study.serving.session.time.monotonic", lambda: float(next(seconds)))
    assert len(desk.take_turns([partial(desk.ask, name) for name in "abc"])) == 1


def test_somebody_else_who_writes_meanwhile_is_no_harm(opened: Opened) -> None:
    desk = opened.desk._desk
    other = Study.open(store=opened.where)
    taken: list[Any] = []

    def ask_between() -> Any:
        if not taken:
            taken.append(other.ask())
        return desk.ask("a")

    (answer,) = desk.take_turns([ask_between])
    assert taken[0].number == 0
    assert answer["order"]["number"] == 1
    assert len(Study.open(store=opened.where).ledger.orders) == 2


# state -----------------------------------------------------------------------------------------------------------------


def test_a_state_that_was_lost_is_trained_again_and_epochs_are_charged_once(opened: Opened) -> None:
    desk = opened.desk
    desk.ask("a")
    desk.tell(0, 1, value(0.5))
    desk.tell(0, 2, value(0.4))
    assert desk.lose(0, 0) == desk.lose(0, 0) == {"number": 0, "open": True, "next_step": 1}
    assert len(entries(opened, Lost)) == 1
    assert desk.ask("a")["order"]["held"] == 0
    for step in (1, 2, 3):
        assert desk.tell(0, step, value(0.9))["new"]
        assert not desk.tell(0, step, value(0.9))["new"]
    assert desk.study.spent == 3
    assert desk.study.trials[0].values == [0.5, 0.4, 0.9]
    for held in (4, -1, 1.5):
        with pytest.raises((StudyError, OrderGone)):
            desk.lose(0, held)


def test_no_more_can_be_saved_than_was_told(opened: Opened) -> None:
    opened.desk.ask("a")
    for saved in (2, -1, "1", 0.5):
        with pytest.raises(StudyError, match="saved="):
            opened.desk.tell(0, 1, value(0.5, saved=saved))
    opened.desk.tell(0, 1, value(0.5, saved=0))
    assert opened.desk.study.trials[0].saved == 0


# silence ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
def test_a_silent_client_is_charged_what_was_heard_and_one_beat(opened: Opened, clock: Clock) -> None:
    opened.desk.ask("a")
    opened.desk.tell(0, 1, value(0.5, cost_s=3.0))
    for _ in range(4):
        clock.now += BEAT_S
        assert opened.desk.beat(0) == {"number": 0, "open": True, "next_step": 2}
    clock.now += PATIENCE_S
    opened.desk.ask("b")
    assert 0 in opened.desk.study.ledger.open_orders, "so long it may be silent"
    assert opened.desk.status()["clients"][0] == {"client": "a", "order": 0, "silent_s": PATIENCE_S}
    clock.now += 1.0
    opened.desk.ask("b")
    assert 0 not in opened.desk.study.ledger.open_orders
    (loss,) = entries(opened, Lost)
    assert (loss.trial, loss.held, loss.worker) == (0, 1, "a")
    assert loss.seconds == pytest.approx(4 * BEAT_S + BEAT_S)
    assert loss.why == "nothing was heard of a for 51 s"
    assert opened.desk.study.ledger.books.by_kind["lost"] == loss.seconds
    with pytest.raises(OrderGone, match="given up; ask for another"):
        opened.desk.tell(0, 2, value(0.4))
    with pytest.raises(OrderGone, match="given up; ask for another"):
        opened.desk.beat(0)


def test_a_silent_client_costs_no_epoch(opened: Opened, clock: Clock) -> None:
    opened.desk.ask("a")
    opened.desk.tell(0, 1, value(0.5, saved=0))
    clock.now += PATIENCE_S + 1
    opened.desk.ask("b")
    assert opened.desk.study.spent == 1
    assert opened.desk.study.trials[0].held == 0, "the state that was not saved is gone"


def test_a_trial_that_silences_three_clients_has_failed(where: str, clock: Clock) -> None:
    """Else one that kills whoever trains it would be given out for ever, and cost nothing."""
    study = Study.begin({"listed": [{"lr": 0.1}]}, "3 epochs", max_steps=3, policy="asha", store=where, seed=1)
    opened = Opened(where)
    for name in "abc":
        assert opened.desk.ask(name)["order"]["trial"] == 0
        clock.now += PATIENCE_S + 1
    assert opened.desk.ask("d") == {
        "order": None,
        "over": True,
        "again_s": None,
        "unit": "epochs",
        "spent": 1.0,
        "left": 2.0,
    }
    assert "nothing was heard of c" in Study.open(store=study.store).trials[0].failure
    opened.close()


def test_who_asked_without_a_desk_is_not_given_up(opened: Opened, clock: Clock) -> None:
    assert Study.open(store=opened.where).ask() is not None
    clock.now += 10 * PATIENCE_S
    opened.desk.ask("a")
    assert set(opened.desk.study.ledger.open_orders) == {0, 1}
    assert opened.desk.status()["clients"] == [{"client": "a", "order": 1, "silent_s": 0.0}]


# servers that end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_new_desk_knows_clients_orders_steps_and_seconds(
    opened: Opened, clock: Clock, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = opened.desk.ask("a")
    opened.desk.tell(0, 1, value(0.5, cost_s=3.0))
    clock.now += 30.0
    opened.desk.beat(0)
    opened.desk.beat_heart()
    opened.kill(monkeypatch) if is_killed else opened.close()
    clock.now += 10 * PATIENCE_S  # nobody could be heard meanwhile: that is no silence
    desk = opened.open()
    assert desk.ask("a")["order"] == asked["order"] | {"held": 1}
    assert not desk.tell(0, 1, value(0.5, cost_s=3.0))["new"]
    clock.now += PATIENCE_S + 1
    desk.ask("b")
    (loss,) = entries(opened, Lost)
    unheard_s = HEARTBEAT_S if is_killed else 0.0  # a server that is killed may have heard more in its last second
    assert loss.seconds == pytest.approx(30.0 + BEAT_S + unheard_s)
    assert desk.study.ledger.books.by_kind["train"] == 3.0


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
def test_seconds_heard_of_are_not_charged_beside_the_receipt_of_their_step(
    opened: Opened, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.desk.ask("a")
    clock.now += 30.0
    opened.desk.beat(0)
    opened.desk.beat_heart()
    opened.desk.tell(0, 1, Told.read(0.5, None, None))  # by the clock: these 30 s
    opened.kill(monkeypatch)
    clock.now += 2.0
    desk = opened.open()
    clock.now += PATIENCE_S + 1
    desk.ask("b")
    books = desk.study.ledger.books
    assert books.by_kind["train"] == pytest.approx(30.0)
    assert books.by_kind["lost"] == pytest.approx(BEAT_S + HEARTBEAT_S)


def test_a_desk_whose_lease_is_gone_records_nothing(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened.desk
    monkeypatch.setattr("shoestring.stores.lease.Process.is_dead", lambda process: True)
    after: Lease = Study.open(store=opened.where).store.lease("study")
    with pytest.raises(Leased, match="taken over by another process"):
        before.ask("a")
    assert not Study.open(store=opened.where).ledger.orders
    after.__exit__(None, None, None)
