"""Each step is charged once, whatever workers repeat, forget or lose, and however often the server is replaced."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st
from thoroughness import examples

from shoestring import Study
from shoestring.core.ledger.entries import Receipt
from shoestring.stores.in_memory import MemoryStore
from shoestring.study.ask import StepReport
from shoestring.study.serving.session import OrderNotOpen, ServeSession

SPACE = {"x": {"float": [0.0, 1.0]}}
EPOCHS, MAX_STEPS, GIVE_UP_AFTER_S = 30, 4, 60.0
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["work", "work", "work", "heartbeat", "repeat", "fail", "lose", "die", "restart", "sleep"]),
        st.integers(0, 3),
    ),
    max_size=80,
)


def call(work: Callable[..., Any], *given: Any) -> Any:
    session: ServeSession = work.__self__  # type: ignore[attr-defined]
    (answer,) = session.run_batch([partial(work, *given)])
    if isinstance(answer, Exception):
        raise answer
    return answer


def value_of(config: Any, step: int) -> float:
    return float(config["x"]) + 1.0 / step


class Worker:
    """A worker that trains one order at a time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order: Any = None
        self.done_step = 0
        self.last_report: tuple[int, int, StepReport] | None = None

    def train_step(self, session: ServeSession, *, failed: str | None = None) -> None:
        if self.order is None:
            self.order = call(session.ask, self.name)["order"]
            self.done_step = 0 if self.order is None else self.order["resumable_step"]
        if self.order is None:
            return
        value = value_of(self.order["config"], self.done_step + 1)
        report = StepReport.read(None if failed else value, 1.0, failed)
        self.last_report = (self.order["number"], self.done_step + 1, report)
        try:
            answer = call(session.tell, *self.last_report)
        except OrderNotOpen:  # the order was given up meanwhile
            self.order = self.last_report = None
            return
        self.done_step += 1
        if not answer["open"]:
            self.order = None


def act(session: ServeSession, worker: Worker, action: str) -> None:
    if action == "work":
        worker.train_step(session)
    elif action == "fail":
        worker.train_step(session, failed="boom")
    elif action == "repeat" and worker.last_report is not None:
        assert not call(session.tell, *worker.last_report)["new"]
    elif action == "die":  # and start again: the session finds the order by the worker's name
        worker.order = None
    elif worker.order is not None and worker.order["number"] in session.study.ledger.open_orders:
        if action == "heartbeat":
            call(session.heartbeat, worker.order["number"])
        elif action == "lose":
            worker.done_step = max(0, worker.done_step - 2)
            call(session.lose, worker.order["number"], worker.done_step)


@examples(15, thorough=60)
@given(actions=ACTIONS)
def test_each_step_is_charged_once_and_the_budget_holds(actions: list[tuple[str, int]]) -> None:
    study = Study.begin(SPACE, f"{EPOCHS} epochs", max_steps=MAX_STEPS, policy="asha", store=MemoryStore(), seed=1)
    workers = [Worker(name) for name in "abcd"]
    now = 1_000_000.0
    with mock.patch("time.time", lambda: now), mock.patch("shoestring.study.serving.session.HeartbeatThread"):  # noqa: PT008  now changes
        lease = study.store.lease(study.name)
        session = ServeSession(study, lease, GIVE_UP_AFTER_S)
        for action, number in actions:
            now += 1.0
            if action == "restart":
                lease.__exit__(None, None, None)
                lease = study.store.lease(study.name)
                session = ServeSession(Study.open(store=study.store), lease, GIVE_UP_AFTER_S)
            elif action == "sleep":
                now += GIVE_UP_AFTER_S / 2
            else:
                act(session, workers[number], action)
            ledger = session.study.ledger
            assert ledger.spent + ledger.reserved <= EPOCHS
            require_charged_once(session)


def require_charged_once(session: ServeSession) -> None:
    """Check the spent epochs: one for each finished step, each failed step, and each trial that failed by silence."""
    ledger = session.study.ledger
    receipts = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    steps = {(one.trial, one.step) for one in receipts if one.is_finished}
    failed = Counter((one.order, one.step) for one in receipts if one.status == "failed")
    assert set(failed.values()) <= {1}
    failed_by_silence = sum(trial.failures for trial in ledger.trials) - len(failed)
    assert ledger.spent == len(steps) + len(failed) + failed_by_silence
    best = min(
        (value_of(ledger.orders[one.order].config, one.step) for one in receipts if one.is_finished), default=math.inf
    )
    assert best == ledger.state.best_loss
