"""What every store must do. An author of a store runs each check with a function that opens the same store again:

    @pytest.mark.parametrize("check", STORE_CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check, tmp_path):
        check(lambda: MyStore(tmp_path))

Every call of that function stands for one more process that opens the store; a check needs a store that is empty at first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shoestring.core.deciding.decision import Why
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import Amended, Cost, Entry, Lost, Note, Opened, Order, Receipt, Status
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import Conflict, DecisionError, Leased, ShoestringError, StoreError
from shoestring.stores.in_memory import Memory
from shoestring.stores.store import Heartbeat, Store

OpenStore = Callable[[], Store]


class WatchedMemory(Memory):
    """A store in memory that has every ledger looked at as it grows entry by entry.

    `lengths` are those that a killed process can leave behind: what is appended together is there or not.
    """

    def __init__(self, look: Callable[[Ledger], None]) -> None:
        super().__init__()
        self.lengths: list[int] = []
        self._look = look

    def append(self, study: str, ledger: Ledger | None, *entries: Entry, **how: Any) -> Ledger:
        for entry in entries:
            ledger = super().append(study, ledger, entry)
            self._look(ledger)
        assert ledger is not None
        self.lengths.append(len(ledger))
        return ledger


def an_opening(budget: str = "100 epochs") -> Opened:
    """The first entry of a small study."""
    space = Space({"lr": Float(1e-4, 1.0, log=True), "kind": Choice(["~odd", "naïve", "\u2028 \\ \" '"])})
    return Opened(space=space, budget=Budget(budget), policy="random_search", settings={}, seed=7, max_steps=4)


def an_order(number: int, until: int = 2) -> Order:
    """Order `number` of that study, which begins the trial of the same number."""
    config = {"lr": 0.1 + number / 1000, "kind": "~odd"}
    why: Why = {"score": math.inf, "text": "~nan", "sure": True}
    return Order(number=number, trial=number, config=config, until=until, why=why, memo={"chain": [0.1, -math.inf]})


def a_step(order: int, step: int, value: float | None = 0.5) -> Receipt:
    status: Status = "ok" if value is not None and math.isfinite(value) else "diverged"
    cost = Cost(setup=1e-300, train=0.1 + 0.2, validate=2.0**-40)
    return Receipt(order=order, trial=order, step=step, value=value, cost=cost, status=status, at=float(step))


def a_life() -> list[Entry]:
    """Entries of every kind, with everything in them that is awkward to write down."""
    return [
        an_opening("1h"),
        Note(topic="enqueue", facts={"config": {"lr": 0.25, "kind": "naïve"}}),
        an_order(0),
        a_step(0, 1),
        Lost(trial=0, held=0, seconds=1.5, why="a process ended: \x00 😀 \udcff 日本"),
        a_step(0, 1),
        a_step(0, 2, math.nan),
        an_order(1),
        a_step(1, 1, -math.inf),
        Amended(budget=Budget("2h"), policy="grid", settings={"points": [1, None, "~"]}, workers=3),
        an_order(2, until=4),
    ]


def entries_as_text(ledger: Ledger | None) -> list[str]:
    """All entries as text, to be compared: nan equals nan here."""
    return [] if ledger is None else [f"{entry.kind} {dumps(entry.body())}" for entry in ledger.entries()]


def expect_refusal(kind: type[ShoestringError], call: Callable[[], object]) -> str:
    """The text of the one-line error that `call` must raise."""
    text = None
    try:
        call()
    except kind as error:
        text = str(error)
    assert text is not None, f"{kind.__name__} was expected"
    assert "\n" not in text, f"an error is one line: {text}"
    return text


# the checks ----------------------------------------------------------------------------------------------------------


def what_is_written_is_read(open_store: OpenStore) -> None:
    first, *rest = a_life()
    store = open_store()
    ledger = store.append("s", None, first)
    for entry in rest:
        ledger = store.append("s", ledger, entry)
    read = open_store().load("s")
    assert read is not None
    assert (
        entries_as_text(read)
        == entries_as_text(ledger)
        == [f"{entry.kind} {dumps(entry.body())}" for entry in a_life()]
    )
    assert read.spent == ledger.spent
    assert [trial.held for trial in read.trials] == [trial.held for trial in ledger.trials]


def an_unknown_study_is_none(open_store: OpenStore) -> None:
    store = open_store()
    assert store.load("s") is None
    assert store.studies() == []
    store.append("s", None, an_opening())
    assert store.load("S") is None
    assert store.load("") is None


def studies_are_kept_apart(open_store: OpenStore) -> None:
    store = open_store()
    names = ["zebra", "ant; DROP TABLE entries --", "日本 %s ? :study"]
    ledgers = {name: store.append(name, None, an_opening(f"{i + 50} epochs")) for i, name in enumerate(names)}
    store.append(names[1], ledgers[names[1]], an_order(0))
    again = open_store()
    assert again.studies() == names, "studies are listed in the order they were opened"
    found = [again.load(name) for name in names]
    assert [ledger and ledger.budget.total for ledger in found] == [50, 51, 52]
    assert [len(ledger.orders) for ledger in found if ledger] == [0, 1, 0]


def a_study_begins_once(open_store: OpenStore) -> None:
    expect_refusal(StoreError, lambda: open_store().append("s", None))
    assert open_store().load("s") is None
    late = open_store()
    began = open_store().append("s", None, an_opening(), an_order(0))
    expect_refusal(Conflict, lambda: late.append("s", None, an_opening("5 epochs")))
    assert entries_as_text(open_store().load("s")) == entries_as_text(began)


def several_entries_are_stored_as_a_whole(open_store: OpenStore) -> None:
    store = open_store()
    ledger = store.append("s", None, an_opening(), an_order(0))
    # The last entry breaks a rule: its step is not the next one.
    expect_refusal(DecisionError, lambda: store.append("s", ledger, a_step(0, 1), a_step(0, 3)))
    assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)
    assert len(ledger) == 2
    assert ledger.trials[0].steps == 0
    grown = store.append("s", ledger, a_step(0, 1), a_step(0, 2))
    assert entries_as_text(open_store().load("s")) == entries_as_text(grown)
    assert grown.trials[0].steps == 2
    assert store.append("s", grown) is grown, "nothing to append changes nothing"


def of_two_writers_one_gets_a_conflict(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    ledger = ours.append("s", None, an_opening())
    stale = theirs.load("s")
    assert stale is not None
    won = ours.append("s", ledger, an_order(0))
    expect_refusal(Conflict, lambda: theirs.append("s", stale, an_order(0, until=3)))
    expect_refusal(Conflict, lambda: ours.append("s", ledger, an_order(0, until=3)))
    assert entries_as_text(open_store().load("s")) == entries_as_text(won)
    fresh = theirs.refresh("s", stale)
    assert entries_as_text(fresh) == entries_as_text(won)
    after = theirs.append("s", fresh, an_order(1))
    assert entries_as_text(ours.refresh("s", won)) == entries_as_text(after)


def refreshing_equals_loading(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    first, *rest = a_life()
    written = ours.append("s", None, first)
    seen = theirs.load("s")
    assert seen is not None
    for start in range(0, len(rest), 3):
        written = ours.append("s", written, *rest[start : start + 3])
        seen = theirs.refresh("s", seen)
        assert entries_as_text(seen) == entries_as_text(theirs.load("s")) == entries_as_text(written)
        assert (seen.spent, seen.reserved) == (written.spent, written.reserved)
    assert entries_as_text(theirs.refresh("s", seen)) == entries_as_text(seen)


def a_ledger_may_come_from_another_handle(open_store: OpenStore) -> None:
    ledger = open_store().append("s", None, an_opening(), an_order(0))
    grown = open_store().append("s", ledger, a_step(0, 1))
    assert entries_as_text(open_store().refresh("s", ledger)) == entries_as_text(grown)
    assert entries_as_text(open_store().load("s")) == entries_as_text(grown)


def one_at_a_time_runs_a_study(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    for study in ("s", "t"):
        ours.append(study, None, an_opening())
    with ours.lease("s") as lease:
        assert dict(lease.cut_off) == {}
        assert "'s'" in expect_refusal(Leased, lambda: theirs.lease("s"))
        expect_refusal(Leased, lambda: ours.lease("s"))
        with theirs.lease("t"):
            lease.beat(1, {})
    with theirs.lease("s"):
        expect_refusal(Leased, lambda: ours.lease("s"))
    try:
        with ours.lease("s"):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    with theirs.lease("s"):
        pass


def a_heartbeat_goes_with_an_append(open_store: OpenStore) -> None:
    """Whoever comes after a holder that stopped in peace learns what its last append said was under way, and no more."""
    ours = open_store()
    ledger = ours.append("s", None, an_opening("1h"), an_order(0))
    with ours.lease("s") as lease:
        ledger = ours.append("s", ledger, an_order(1), beat=Heartbeat(lease, {0: 2.5, 1: 0.0}))
    assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)
    with open_store().lease("s") as lease:
        assert dict(lease.cut_off) in ({}, {0: 2.5}), "nothing outlives a process in memory"


def what_need_not_last_is_read_all_the_same(open_store: OpenStore) -> None:
    store = open_store()
    ledger = store.append("s", None, an_opening(), an_order(0), durable=False)
    ledger = store.append("s", ledger, a_step(0, 1), durable=False)
    ledger = store.append("s", ledger, a_step(0, 2))
    assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)


def settling_changes_nothing(open_store: OpenStore) -> None:
    store = open_store()
    ledger = store.append("s", None, *a_life())
    for _ in range(2):
        store.settle("s", ledger)
        assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)
    ledger = store.append("s", ledger, a_step(2, 1))
    read = open_store().load("s")
    assert read is not None
    assert entries_as_text(read) == entries_as_text(ledger)
    assert (read.spent, read.reserved, len(read.orders)) == (ledger.spent, ledger.reserved, len(ledger.orders))


STORE_CHECKS: tuple[Callable[[OpenStore], None], ...] = (
    what_is_written_is_read,
    an_unknown_study_is_none,
    studies_are_kept_apart,
    a_study_begins_once,
    several_entries_are_stored_as_a_whole,
    of_two_writers_one_gets_a_conflict,
    refreshing_equals_loading,
    a_ledger_may_come_from_another_handle,
    one_at_a_time_runs_a_study,
    a_heartbeat_goes_with_an_append,
    what_need_not_last_is_read_all_the_same,
    settling_changes_nothing,
)
