"""`ServeSession`: one order per worker, each step charged once however often it is reported, and workers that fall silent."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from shoestring import Study
from shoestring.core.ledger.accounting import StudyStateView
from shoestring.core.ledger.entries import Receipt, StateLoss
from shoestring.core.ledger.pricing import place_order
from shoestring.errors import StudyError, StudyInUse
from shoestring.stores.addresses import open_store
from shoestring.stores.ledger_store import HEARTBEAT_S, Lease
from shoestring.study import ask
from shoestring.study.ask import StepReport
from shoestring.study.journal import Journal
from shoestring.study.serving import session
from shoestring.study.serving.session import HEARTBEATS_PER_TIMEOUT, OrderNotOpen, ServeSession

SPACE = {"lr": {"float": [0.001, 1.0], "log": True}}
GIVE_UP_AFTER_S = 50.0
WORKER_HEARTBEAT_S = GIVE_UP_AFTER_S / HEARTBEATS_PER_TIMEOUT


class Clock:
    """The monotonic clock, and that of the machine, which somebody may have set."""

    def __init__(self) -> None:
        self.now, self.set_by_s = 1_000_000.0, 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.time", lambda: clock.now + clock.set_by_s)
    for module in (ask, session):
        monkeypatch.setattr(module, "time", SimpleNamespace(time=time.time, monotonic=clock))
    return clock


@pytest.fixture
def where(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/served.db"


class OneByOne:
    """A session whose methods are called one at a time; each call is stored before the next."""

    def __init__(self, session: ServeSession) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._session, name)
        if name not in ("ask", "tell", "heartbeat", "lose", "status", "best"):
            return found

        def call(*given: Any) -> Any:
            (answer,) = self._session.run_batch([partial(found, *given)])
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


class SessionProcess:
    """A session that can be closed, or left as a killed process leaves it, and opened again."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.session: OneByOne
        self.lease: Any
        self.open()

    def open(self) -> OneByOne:
        study = Study.open(store=open_store(self.where))
        self.lease = study.store.lease(study.name)
        self.session = OneByOne(ServeSession(study, self.lease, GIVE_UP_AFTER_S))
        return self.session

    def close(self) -> None:
        self.session.close()
        self.lease.__exit__(None, None, None)

    def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session._heart.stop()
        monkeypatch.setattr("shoestring.stores.lease.Process.is_dead", lambda process: True)


@pytest.fixture
def opened(where: str, request: pytest.FixtureRequest) -> Iterator[SessionProcess]:
    budget = getattr(request, "param", "12 epochs")
    Study.begin(SPACE, budget, max_steps=3, policy="random_search", store=where, seed=1)
    opened = SessionProcess(where)
    yield opened
    opened.close()


def value(number: float, **more: Any) -> StepReport:
    return StepReport.read(number, more.pop("cost_s", 1.0), None, **more)


def entries(opened: SessionProcess, kind: type) -> list[Any]:
    return [entry for entry in opened.session.study.ledger.entries() if isinstance(entry, kind)]


# asking for orders ---------------------------------------------------------------------------------------------------


def test_workers_ask_and_tell_until_the_budget_is_spent(opened: SessionProcess) -> None:
    session = opened.session
    while (answer := session.ask("a"))["order"] is not None:
        order = answer["order"]
        assert list(order["config"]) == ["lr"]
        for step in range(order["resumable_step"] + 1, order["until"] + 1):
            reported = session.tell(order["number"], step, value(order["config"]["lr"]))
            assert reported["new"]
            assert reported["next_step"] == (step + 1 if step < order["until"] else None)
    assert answer == {"order": None, "over": True, "retry_after_s": None, "unit": "epochs", "spent": 12.0, "left": 0.0}
    assert session.best()["best"]["value"] == session.study.best.value
    assert {receipt.worker for receipt in entries(opened, Receipt)} == {"a"}


def test_a_worker_that_asks_again_gets_the_same_order(opened: SessionProcess) -> None:
    first = opened.session.ask("a")
    assert opened.session.ask("a") == first
    other = opened.session.ask("b")
    assert other["order"]["number"] == 1
    assert opened.session.ask("a")["order"]["number"] == 0
    assert len(opened.session.study.ledger.orders) == 2
    opened.session.tell(0, 1, value(0.5))
    assert opened.session.ask("a")["order"] == first["order"] | {"resumable_step": 1}


def test_a_worker_gets_a_retry_time_when_there_is_no_order(opened: SessionProcess) -> None:
    answers = [opened.session.ask(name) for name in "abcde"]
    assert [answer["order"] is None for answer in answers] == [False] * 4 + [True]
    assert not answers[-1]["over"]
    assert answers[-1]["retry_after_s"] > 0


@pytest.mark.parametrize("worker", ["", None, 7, "a\nb", "x" * 101, "\ud800", ["a"]])
def test_a_worker_must_give_a_name(opened: SessionProcess, worker: Any) -> None:
    with pytest.raises(StudyError, match=r"worker=.* must be a name of 1 to 100 printable characters"):
        opened.session.ask(worker)
    assert not opened.session.study.ledger.orders


def test_a_second_session_of_the_same_study_is_refused(opened: SessionProcess) -> None:
    with pytest.raises(StudyInUse, match=f"'study' .*{os.getpid()}"):
        SessionProcess(opened.where)


# reporting steps -----------------------------------------------------------------------------------------------------


def test_a_step_that_is_reported_again_is_charged_once(opened: SessionProcess) -> None:
    session = opened.session
    session.ask("a")
    for step in (1, 2, 3):
        first = session.tell(0, step, value(0.5 / step, cost_s=7.0))
        again = session.tell(0, step, value(0.5 / step, cost_s=7.0))
        assert first["new"]
        assert again == first | {"new": False}
    state = session.study.ledger.state
    assert (state.receipts, session.study.spent, state.by_kind["train"]) == (3, 3, 21.0)


def test_a_step_that_is_reported_again_with_another_value_is_an_error(opened: SessionProcess) -> None:
    opened.session.ask("a")
    opened.session.tell(0, 1, value(0.5))
    with pytest.raises(StudyError, match=r"value=0.25 differs from 0.5, .* step 1 of order 0"):
        opened.session.tell(0, 1, value(0.25))
    assert opened.session.study.spent == 1


def test_steps_must_be_reported_in_order(opened: SessionProcess) -> None:
    opened.session.ask("a")
    with pytest.raises(StudyError, match=r"step=2 of order 0 must be 1"):
        opened.session.tell(0, 2, value(0.5))
    for wrong in (0, -1, 1.5, "1", True, None):
        with pytest.raises(StudyError, match=r"step=.* must be a whole number, 1 or more"):
            opened.session.tell(0, wrong, value(0.5))
    for unknown in (1, 10**30):
        with pytest.raises(StudyError, match=f"order={unknown} is unknown: there are orders 0 to 0"):
            opened.session.tell(unknown, 1, value(0.5))


def test_a_failure_that_is_reported_again_is_charged_once(opened: SessionProcess) -> None:
    opened.session.ask("a")
    failed = StepReport.read(None, 1.0, "out of memory")
    assert opened.session.tell(0, 1, failed)["new"]
    assert opened.session.tell(0, 1, failed) == opened.session.tell(0, 1, failed)
    trial = opened.session.study.trials[0]
    assert (trial.failures, trial.failure, opened.session.study.spent) == (1, "out of memory", 1)
    with pytest.raises(OrderNotOpen, match="order 0"):
        opened.session.tell(0, 2, value(0.5))


def test_code_that_always_fails_gets_no_more_orders_until_a_new_server_starts(opened: SessionProcess) -> None:
    for number in range(3):
        assert "failing" not in opened.session.ask("a")
        opened.session.tell(number, 1, StepReport.read(None, 1.0, f"no module named 'torch' (seen {number} times)"))
    answer = opened.session.ask("a")
    assert (answer["order"], answer["over"], answer["spent"]) == (None, True, 3.0)
    assert answer["failing"] == "no module named 'torch' (seen 2 times)"
    opened.close()
    assert opened.open().ask("a")["order"]["number"] == 3


def test_a_value_that_is_not_finite_ends_the_trial(opened: SessionProcess) -> None:
    opened.session.ask("a")
    assert not opened.session.tell(0, 1, value(math.nan))["open"]
    assert not opened.session.tell(0, 1, value(math.nan))["new"]
    assert opened.session.study.trials[0].diverged


def test_workers_cannot_report_on_the_order_of_a_run(where: str) -> None:
    """`run` left this order open."""
    study = Study.begin(SPACE, "12 epochs", max_steps=3, policy="random_search", store=where, seed=1)
    train = study.policy.decide(study.ledger, study.ledger.decision_rng())
    order = place_order(study.ledger, train)  # type: ignore[arg-type]
    assert order is not None
    study.journal.append(order)
    opened = SessionProcess(where)
    with pytest.raises(StudyError, match="order 0 belongs to a run"):
        opened.session.tell(0, 1, value(0.5))
    with pytest.raises(StudyError, match="order 0 belongs to a run"):
        opened.session.heartbeat(0)
    opened.close()


# batches ---------------------------------------------------------------------------------------------------------------


def test_a_batch_is_stored_with_one_write(opened: SessionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoestring.study.serving.session._BATCH_LIMIT_S", 60.0)  # long enough on a busy machine
    session, stored = opened.session, []
    real = Journal.append

    def append(journal: Journal, *added: Any, **how: Any) -> None:
        stored.append(len(added))
        real(journal, *added, **how)

    monkeypatch.setattr(Journal, "append", append)
    requests = [partial(session._session.ask, name) for name in "abac"]
    answers = session.run_batch(requests)
    assert [answer["order"]["number"] for answer in answers] == [0, 1, 0, 2]
    assert stored == [6], "three orders, each with its worker"
    reports = [partial(session._session.tell, 0, step, value(0.5 / step)) for step in (1, 2, 2, 9)]
    *accepted, bad = session.run_batch([*reports, partial(session._session.ask, "c")])
    assert [answer["new"] for answer in accepted[:3]] == [True, True, False]
    assert isinstance(accepted[3], StudyError)
    assert bad["order"]["number"] == 2, "a request that fails does not harm the others"
    assert stored == [6, 2]
    again = Study.open(store=opened.where).ledger
    assert (len(again.orders), again.spent) == (3, 2)


def test_each_new_entry_is_read_once_by_a_view(opened: SessionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored ledger hands its views to the proposed one; a view of the stored one would be computed from the beginning."""
    monkeypatch.setattr(
        "shoestring.study.serving.session._BATCH_LIMIT_S", math.inf
    )  # however slow the first decision is
    session, read_entries = opened.session._session, []
    real = StudyStateView.absorb

    def absorb(view: StudyStateView, state: Any, entry: Any) -> Any:
        read_entries.append(entry)
        return real(view, state, entry)

    monkeypatch.setattr(StudyStateView, "absorb", absorb)
    before = len(session.ledger)
    session.run_batch([partial(session.ask, name) for name in "abcd"])
    assert len(read_entries) == len(session.ledger) - before == 8


def test_a_batch_gives_the_same_orders_as_single_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoestring.study.serving.session._BATCH_LIMIT_S", math.inf)  # a batch ends early otherwise
    orders = []
    for together in (True, False):
        where = f"sqlite:///{tmp_path}/{together}.db"
        Study.begin(SPACE, "30 epochs", max_steps=3, policy="asha", store=where, seed=1)
        opened = SessionProcess(where)
        session = opened.session._session
        for _ in range(8):
            requests = [partial(session.ask, name) for name in "abcd"]
            answers = session.run_batch(requests) if together else [session.run_batch([ask])[0] for ask in requests]
            given = [answer["order"] for answer in answers if answer["order"]]
            for order in given:
                for step in range(order["resumable_step"] + 1, order["until"] + 1):
                    session.run_batch(
                        [partial(session.tell, order["number"], step, value(order["config"]["lr"] / step))]
                    )
        orders.append([(o.trial, o.until, o.config, o.why) for o in session.ledger.orders])
        opened.close()
    assert orders[0] == orders[1]
    assert len(orders[0]) > 12


def test_a_batch_ends_when_its_time_is_over(opened: SessionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened.session._session
    seconds = iter(range(100))
    monkeypatch.setattr("shoestring.study.serving.session.time.monotonic", lambda: float(next(seconds)))
    assert len(session.run_batch([partial(session.ask, name) for name in "abc"])) == 1


def test_a_batch_is_decided_again_when_another_process_appends_meanwhile(opened: SessionProcess) -> None:
    session = opened.session._session
    other = Study.open(store=opened.where)
    orders: list[Any] = []

    def ask_between() -> Any:
        if not orders:
            orders.append(other.ask())
        return session.ask("a")

    (answer,) = session.run_batch([ask_between])
    assert orders[0].number == 0
    assert answer["order"]["number"] == 1
    assert len(Study.open(store=opened.where).ledger.orders) == 2


# state -----------------------------------------------------------------------------------------------------------------


def test_lost_steps_are_trained_again_and_charged_once(opened: SessionProcess) -> None:
    session = opened.session
    session.ask("a")
    session.tell(0, 1, value(0.5))
    session.tell(0, 2, value(0.4))
    assert session.lose(0, 0) == session.lose(0, 0) == {"number": 0, "open": True, "next_step": 1}
    assert len(entries(opened, StateLoss)) == 1
    assert session.ask("a")["order"]["resumable_step"] == 0
    for step in (1, 2, 3):
        assert session.tell(0, step, value(0.9))["new"]
        assert not session.tell(0, step, value(0.9))["new"]
    assert session.study.spent == 3
    assert session.study.trials[0].values == [0.5, 0.4, 0.9]
    for resumable_step in (4, -1, 1.5):
        with pytest.raises((StudyError, OrderNotOpen)):
            session.lose(0, resumable_step)


def test_the_saved_step_cannot_be_later_than_the_reported_one(opened: SessionProcess) -> None:
    opened.session.ask("a")
    for saved_step in (2, -1, "1", 0.5):
        with pytest.raises(StudyError, match="saved_step="):
            opened.session.tell(0, 1, value(0.5, saved_step=saved_step))
    opened.session.tell(0, 1, value(0.5, saved_step=0))
    assert opened.session.study.trials[0].saved_step == 0


# silence ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
def test_a_silent_worker_is_charged_up_to_its_last_heartbeat_and_one_interval(
    opened: SessionProcess, clock: Clock
) -> None:
    opened.session.ask("a")
    opened.session.tell(0, 1, value(0.5, cost_s=3.0))
    for _ in range(4):
        clock.now += WORKER_HEARTBEAT_S
        assert opened.session.heartbeat(0) == {"number": 0, "open": True, "next_step": 2}
    clock.now += GIVE_UP_AFTER_S
    opened.session.ask("b")
    assert 0 in opened.session.study.ledger.open_orders, "silence of this length is allowed"
    assert opened.session.status()["busy_workers"][0] == {"worker": "a", "order": 0, "silent_s": GIVE_UP_AFTER_S}
    clock.now += 1.0
    opened.session.ask("b")
    assert 0 not in opened.session.study.ledger.open_orders
    (loss,) = entries(opened, StateLoss)
    assert (loss.trial, loss.resumable_step, loss.worker) == (0, 1, "a")
    assert loss.seconds == pytest.approx(4 * WORKER_HEARTBEAT_S + WORKER_HEARTBEAT_S)
    assert loss.why == "a sent nothing for 51 s"
    assert opened.session.study.ledger.state.by_kind["lost"] == loss.seconds
    with pytest.raises(
        OrderNotOpen, match="order 0 is not open any more: its last step was reported, or it was given up; ask again"
    ):
        opened.session.tell(0, 2, value(0.4))
    with pytest.raises(OrderNotOpen, match="order 0"):
        opened.session.heartbeat(0)


def test_the_unfinished_step_of_a_silent_worker_costs_no_epoch(opened: SessionProcess, clock: Clock) -> None:
    opened.session.ask("a")
    opened.session.tell(0, 1, value(0.5, saved_step=0))
    clock.now += GIVE_UP_AFTER_S + 1
    opened.session.ask("b")
    assert opened.session.study.spent == 1
    assert opened.session.study.trials[0].resumable_step == 0, "the state that was not saved is gone"


def test_a_trial_fails_after_three_silent_workers(where: str, clock: Clock) -> None:
    """Otherwise a trial that kills its workers would be given out for ever, and cost nothing."""
    study = Study.begin({"listed": [{"lr": 0.1}]}, "3 epochs", max_steps=3, policy="asha", store=where, seed=1)
    opened = SessionProcess(where)
    for name in "abc":
        assert opened.session.ask(name)["order"]["trial"] == 0
        clock.now += GIVE_UP_AFTER_S + 1
    assert opened.session.ask("d") == {
        "order": None,
        "over": True,
        "retry_after_s": None,
        "unit": "epochs",
        "spent": 1.0,
        "left": 2.0,
    }
    assert "c" in Study.open(store=study.store).trials[0].failure.split(), "the name of the third worker"
    opened.close()


def test_an_order_placed_without_a_server_is_not_given_up(opened: SessionProcess, clock: Clock) -> None:
    assert Study.open(store=opened.where).ask() is not None
    clock.now += 10 * GIVE_UP_AFTER_S
    opened.session.ask("a")
    assert set(opened.session.study.ledger.open_orders) == {0, 1}
    assert opened.session.status()["busy_workers"] == [{"worker": "a", "order": 1, "silent_s": 0.0}]


@pytest.mark.parametrize("opened", ["100000s"], indirect=True)
@pytest.mark.parametrize("set_by_s", [7200.0, -3600.0])
@pytest.mark.parametrize("is_new_server", [False, True])
def test_setting_the_clock_of_the_machine_changes_no_cost(
    opened: SessionProcess, clock: Clock, set_by_s: float, is_new_server: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.session.ask("a")
    clock.now += 30.0
    opened.session.heartbeat(0)
    opened.session.write_heartbeat()
    clock.set_by_s = set_by_s
    if is_new_server:
        opened.kill(monkeypatch)
        opened.open()
    clock.now += 2.0
    opened.session.heartbeat(0)
    opened.session.tell(0, 1, StepReport.read(0.5, None, None))
    clock.now += 5.0
    opened.session.tell(0, 2, StepReport.read(0.5, None, None))
    heartbeat_s = HEARTBEAT_S if is_new_server else 0.0
    assert opened.session.study.ledger.state.by_kind["train"] == pytest.approx(37.0 + heartbeat_s)
    assert not entries(opened, StateLoss), "nobody was silent"


# servers that end ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
@pytest.mark.parametrize("is_killed", [True, False])
def test_a_new_session_knows_workers_orders_steps_and_seconds(
    opened: SessionProcess, clock: Clock, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = opened.session.ask("a")
    opened.session.tell(0, 1, value(0.5, cost_s=3.0))
    clock.now += 30.0
    opened.session.heartbeat(0)
    opened.session.write_heartbeat()
    opened.kill(monkeypatch) if is_killed else opened.close()
    clock.now += 10 * GIVE_UP_AFTER_S  # no server was there to hear the worker: this does not count as silence
    session = opened.open()
    assert session.ask("a")["order"] == answer["order"] | {"resumable_step": 1}
    assert not session.tell(0, 1, value(0.5, cost_s=3.0))["new"]
    clock.now += GIVE_UP_AFTER_S + 1
    session.ask("b")
    (loss,) = entries(opened, StateLoss)
    heartbeat_s = HEARTBEAT_S if is_killed else 0.0  # a killed server may have heard more since its last heartbeat
    assert loss.seconds == pytest.approx(30.0 + WORKER_HEARTBEAT_S + heartbeat_s)
    assert session.study.ledger.state.by_kind["train"] == 3.0


@pytest.mark.parametrize("opened", ["1000s"], indirect=True)
def test_seconds_of_heartbeats_are_not_charged_again_with_the_receipt_of_their_step(
    opened: SessionProcess, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.session.ask("a")
    clock.now += 30.0
    opened.session.heartbeat(0)
    opened.session.write_heartbeat()
    opened.session.tell(0, 1, StepReport.read(0.5, None, None))  # no cost is reported, so these 30 s are charged
    opened.kill(monkeypatch)
    clock.now += 2.0
    session = opened.open()
    clock.now += GIVE_UP_AFTER_S + 1
    session.ask("b")
    state = session.study.ledger.state
    assert state.by_kind["train"] == pytest.approx(30.0)
    assert state.by_kind["lost"] == pytest.approx(WORKER_HEARTBEAT_S + HEARTBEAT_S)


def test_a_session_that_lost_its_lease_records_nothing(opened: SessionProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    before = opened.session
    monkeypatch.setattr("shoestring.stores.lease.Process.is_dead", lambda process: True)
    after: Lease = Study.open(store=opened.where).store.lease("study")
    with pytest.raises(StudyInUse, match="'study'"):
        before.ask("a")
    assert not Study.open(store=opened.where).ledger.orders
    after.__exit__(None, None, None)
