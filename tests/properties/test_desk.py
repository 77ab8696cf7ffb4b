"""Whatever clients repeat, forget or lose, and however often the server is replaced: each step is charged once."""

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
from shoestring.stores.in_memory import Memory
from shoestring.study.ask import Told
from shoestring.study.serving.client_orders import OrderGone
from shoestring.study.serving.session import Desk

SPACE = {"x": {"float": [0.0, 1.0]}}
EPOCHS, MAX_STEPS, PATIENCE_S = 30, 4, 60.0
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["work", "work", "work", "beat", "repeat", "fail", "lose", "die", "restart", "sleep"]),
        st.integers(0, 3),
    ),
    max_size=80,
)


def one(work: Callable[..., Any], *given: Any) -> Any:
    desk: Desk = work.__self__  # type: ignore[attr-defined]
    (answer,) = desk.take_turns([partial(work, *given)])
    if isinstance(answer, Exception):
        raise answer
    return answer


def value_of(config: Any, step: int) -> float:
    return float(config["x"]) + 1.0 / step


class Client:
    """Works on one order at a time, as a worker of a cluster does."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.order: Any = None
        self.step = 0  # done
        self.said: tuple[int, int, Told] | None = None  # last

    def work(self, desk: Desk, *, failed: str | None = None) -> None:
        if self.order is None:
            self.order = one(desk.ask, self.name)["order"]
            self.step = 0 if self.order is None else self.order["held"]
        if self.order is None:
            return
        value = value_of(self.order["config"], self.step + 1)
        told = Told.read(None if failed else value, 1.0, failed)
        self.said = (self.order["number"], self.step + 1, told)
        try:
            answer = one(desk.tell, *self.said)
        except OrderGone:  # given up meanwhile
            self.order = self.said = None
            return
        self.step += 1
        if not answer["open"]:
            self.order = None


def act(desk: Desk, client: Client, action: str) -> None:
    if action == "work":
        client.work(desk)
    elif action == "fail":
        client.work(desk, failed="boom")
    elif action == "repeat" and client.said is not None:
        assert not one(desk.tell, *client.said)["new"]
    elif action == "die":  # and start again: its order is found by its name
        client.order = None
    elif client.order is not None and client.order["number"] in desk.study.ledger.open_orders:
        if action == "beat":
            one(desk.beat, client.order["number"])
        elif action == "lose":
            client.step = max(0, client.step - 2)
            one(desk.lose, client.order["number"], client.step)


@examples(15, thorough=60)
@given(actions=ACTIONS)
def test_each_step_is_charged_once_and_the_budget_holds(actions: list[tuple[str, int]]) -> None:
    study = Study.begin(SPACE, f"{EPOCHS} epochs", max_steps=MAX_STEPS, policy="asha", store=Memory(), seed=1)
    clients = [Client(name) for name in "abcd"]
    now = 1_000_000.0
    with mock.patch("time.time", lambda: now), mock.patch("shoestring.study.serving.session.Heart"):  # noqa: PT008  it moves
        lease = study.store.lease(study.name)
        desk = Desk(study, lease, PATIENCE_S)
        for action, number in actions:
            now += 1.0
            if action == "restart":
                lease.__exit__(None, None, None)
                lease = study.store.lease(study.name)
                desk = Desk(Study.open(store=study.store), lease, PATIENCE_S)
            elif action == "sleep":
                now += PATIENCE_S / 2
            else:
                act(desk, clients[number], action)
            ledger = desk.study.ledger
            assert ledger.spent + ledger.reserved <= EPOCHS
            require_charged_once(desk)


def require_charged_once(desk: Desk) -> None:
    """Epochs: one for each step that was seen, each that failed, and each trial that silenced three clients."""
    ledger = desk.study.ledger
    receipts = [entry for entry in ledger.entries() if isinstance(entry, Receipt)]
    steps = {(one.trial, one.step) for one in receipts if one.is_finished}
    failed = Counter((one.order, one.step) for one in receipts if one.status == "failed")
    assert set(failed.values()) <= {1}
    silenced = sum(trial.failures for trial in ledger.trials) - len(failed)
    assert ledger.spent == len(steps) + len(failed) + silenced
    best = min(
        (value_of(ledger.orders[one.order].config, one.step) for one in receipts if one.is_finished), default=math.inf
    )
    assert best == ledger.books.best_loss
