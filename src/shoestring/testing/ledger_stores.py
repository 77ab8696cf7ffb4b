"""The contract of a ledger store, as checks that its author can run.

The author calls each check with a function that opens the same store again:

    @pytest.mark.parametrize("check", LEDGER_STORE_CHECKS, ids=lambda check: check.__name__)
    def test_my_store(check, tmp_path):
        check(lambda: MyStore(tmp_path))

Each call of that function stands for another process that opens the store. Each check begins with an empty store.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from shoestring.core.deciding.decision import Why
from shoestring.core.ledger.budget import Budget
from shoestring.core.ledger.entries import (
    Amendment,
    Cost,
    Entry,
    Note,
    Order,
    Receipt,
    StateLoss,
    Status,
    StudyDefinition,
)
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Choice, Float
from shoestring.core.space.space import Space
from shoestring.core.values.strict_json import dumps
from shoestring.errors import Conflict, DecisionError, ShoestringError, StoreError, StudyInUse
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.ledger_store import Heartbeat, LedgerStore

OpenStore = Callable[[], LedgerStore]


class WatchedMemory(MemoryStore):
    """A store in memory that calls `look` with the ledger after each entry.

    `lengths` lists the numbers of entries that a killed process can leave. Entries of one append are stored together.
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


def an_opening(budget: str = "100 epochs") -> StudyDefinition:
    """Return the first entry of a small study."""
    space = Space({"lr": Float(1e-4, 1.0, log=True), "kind": Choice(["~odd", "naïve", "\u2028 \\ \" '"])})
    return StudyDefinition(space=space, budget=Budget(budget), policy="random_search", settings={}, seed=7, max_steps=4)


def an_order(number: int, until: int = 2) -> Order:
    """Return the order with this number in that study; it starts the trial with the same number."""
    config = {"lr": 0.1 + number / 1000, "kind": "~odd"}
    why: Why = {"score": math.inf, "text": "~nan", "sure": True}
    return Order(number=number, trial=number, config=config, until=until, why=why, memo={"chain": [0.1, -math.inf]})


def a_step(order: int, step: int, value: float | None = 0.5) -> Receipt:
    """Return the receipt of a step of the order with this number."""
    status: Status = "ok" if value is not None and math.isfinite(value) else "diverged"
    cost = Cost(setup=1e-300, train=0.1 + 0.2, validate=2.0**-40)
    return Receipt(order=order, trial=order, step=step, value=value, cost=cost, status=status, at=float(step))


def entries_of_all_kinds() -> list[Entry]:
    """Return the entries of a study, of every kind, with values that are difficult to store."""
    return [
        an_opening("1h"),
        Note(topic="enqueue", facts={"config": {"lr": 0.25, "kind": "naïve"}}),
        an_order(0),
        a_step(0, 1),
        StateLoss(trial=0, resumable_step=0, seconds=1.5, why="a process ended: \x00 😀 \udcff 日本"),
        a_step(0, 1),
        a_step(0, 2, math.nan),
        an_order(1),
        a_step(1, 1, -math.inf),
        Amendment(budget=Budget("2h"), policy="grid", settings={"points": [1, None, "~"]}, workers=3),
        an_order(2, until=4),
    ]


def entries_as_text(ledger: Ledger | None) -> list[str]:
    """Return all entries as text, for comparisons in which NaN equals NaN."""
    return [] if ledger is None else [f"{entry.kind} {dumps(entry.body())}" for entry in ledger.entries()]


def expect_refusal(kind: type[ShoestringError], call: Callable[[], object]) -> str:
    """Return the text of the one-line error that `call` must raise."""
    text = None
    try:
        call()
    except kind as error:
        text = str(error)
    assert text is not None, f"{kind.__name__} was expected"
    assert "\n" not in text, f"an error is one line: {text}"
    return text


# the checks ----------------------------------------------------------------------------------------------------------


def check_entries_are_read_back(open_store: OpenStore) -> None:
    first, *rest = entries_of_all_kinds()
    store = open_store()
    ledger = store.append("s", None, first)
    for entry in rest:
        ledger = store.append("s", ledger, entry)
    read = open_store().load("s")
    assert read is not None
    assert (
        entries_as_text(read)
        == entries_as_text(ledger)
        == [f"{entry.kind} {dumps(entry.body())}" for entry in entries_of_all_kinds()]
    )
    assert read.spent == ledger.spent
    assert [trial.resumable_step for trial in read.trials] == [trial.resumable_step for trial in ledger.trials]


def check_unknown_study_is_none(open_store: OpenStore) -> None:
    store = open_store()
    assert store.load("s") is None
    assert store.studies() == []
    store.append("s", None, an_opening())
    assert store.load("S") is None
    assert store.load("") is None


def check_studies_are_separate(open_store: OpenStore) -> None:
    store = open_store()
    names = ["zebra", "ant; DROP TABLE entries --", "日本 %s ? :study"]
    ledgers = {name: store.append(name, None, an_opening(f"{i + 50} epochs")) for i, name in enumerate(names)}
    store.append(names[1], ledgers[names[1]], an_order(0))
    again = open_store()
    assert again.studies() == names, "studies are listed in the order they were opened"
    found = [again.load(name) for name in names]
    assert [ledger and ledger.budget.total for ledger in found] == [50, 51, 52]
    assert [len(ledger.orders) for ledger in found if ledger] == [0, 1, 0]


def check_study_begins_once(open_store: OpenStore) -> None:
    expect_refusal(StoreError, lambda: open_store().append("s", None))
    assert open_store().load("s") is None
    late = open_store()
    began = open_store().append("s", None, an_opening(), an_order(0))
    expect_refusal(Conflict, lambda: late.append("s", None, an_opening("5 epochs")))
    assert entries_as_text(open_store().load("s")) == entries_as_text(began)


def check_entries_are_stored_together(open_store: OpenStore) -> None:
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


def check_second_writer_gets_a_conflict(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    ledger = ours.append("s", None, an_opening())
    stale = theirs.load("s")
    assert stale is not None
    won = ours.append("s", ledger, an_order(0))
    expect_refusal(Conflict, lambda: theirs.append("s", stale, an_order(0, until=3)))
    expect_refusal(Conflict, lambda: ours.append("s", ledger, an_order(0, until=3)))
    assert entries_as_text(open_store().load("s")) == entries_as_text(won)
    assert len(stale.trials) == 0, "a conflict does not consume the ledger"
    fresh = theirs.refresh("s", stale)
    assert entries_as_text(fresh) == entries_as_text(won)
    after = theirs.append("s", fresh, an_order(1))
    assert entries_as_text(ours.refresh("s", won)) == entries_as_text(after)


def check_refreshing_equals_loading(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    first, *rest = entries_of_all_kinds()
    written = ours.append("s", None, first)
    seen = theirs.load("s")
    assert seen is not None
    for start in range(0, len(rest), 3):
        written = ours.append("s", written, *rest[start : start + 3])
        seen = theirs.refresh("s", seen)
        assert entries_as_text(seen) == entries_as_text(theirs.load("s")) == entries_as_text(written)
        assert (seen.spent, seen.reserved) == (written.spent, written.reserved)
    assert entries_as_text(theirs.refresh("s", seen)) == entries_as_text(seen)


def check_ledger_of_another_handle(open_store: OpenStore) -> None:
    ledger = open_store().append("s", None, an_opening(), an_order(0))
    grown = open_store().append("s", ledger, a_step(0, 1))
    assert entries_as_text(open_store().refresh("s", ledger)) == entries_as_text(grown)
    assert entries_as_text(open_store().load("s")) == entries_as_text(grown)


def check_one_process_runs_a_study(open_store: OpenStore) -> None:
    ours, theirs = open_store(), open_store()
    for study in ("s", "t"):
        ours.append(study, None, an_opening())
    with ours.lease("s") as lease:
        assert dict(lease.uncharged_s) == {}
        assert "'s'" in expect_refusal(StudyInUse, lambda: theirs.lease("s"))
        expect_refusal(StudyInUse, lambda: ours.lease("s"))
        with theirs.lease("t"):
            lease.beat(1, {})
    with theirs.lease("s"):
        expect_refusal(StudyInUse, lambda: ours.lease("s"))
    try:
        with ours.lease("s"):
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    with theirs.lease("s"):
        pass


def check_heartbeat_with_an_append(open_store: OpenStore) -> None:
    """When a process has released the lease, the next one reads the heartbeat of the last append."""
    ours = open_store()
    ledger = ours.append("s", None, an_opening("1h"), an_order(0))
    with ours.lease("s") as lease:
        ledger = ours.append("s", ledger, an_order(1), heartbeat=Heartbeat(lease, {0: 2.5, 1: 0.0}))
    assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)
    with open_store().lease("s") as lease:
        assert dict(lease.uncharged_s) in ({}, {0: 2.5}), "the heartbeat of the append was lost"


def check_entries_that_are_not_durable(open_store: OpenStore) -> None:
    store = open_store()
    ledger = store.append("s", None, an_opening(), an_order(0), durable=False)
    ledger = store.append("s", ledger, a_step(0, 1), durable=False)
    ledger = store.append("s", ledger, a_step(0, 2))
    assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)


def check_finishing_a_run_changes_no_entry(open_store: OpenStore) -> None:
    store = open_store()
    ledger = store.append("s", None, *entries_of_all_kinds())
    for _ in range(2):
        store.finish_run("s", ledger)
        assert entries_as_text(open_store().load("s")) == entries_as_text(ledger)
    ledger = store.append("s", ledger, a_step(2, 1))
    read = open_store().load("s")
    assert read is not None
    assert entries_as_text(read) == entries_as_text(ledger)
    assert (read.spent, read.reserved, len(read.orders)) == (ledger.spent, ledger.reserved, len(ledger.orders))


def store_two_studies(ours: LedgerStore, theirs: LedgerStore) -> Ledger:
    """Store the studies "s" and "t" in `ours`, and return the ledger of "s" as `theirs` reads it."""
    ours.finish_run("s", ours.append("s", None, *entries_of_all_kinds()))
    ours.append("t", None, an_opening())
    read = theirs.load("s")
    assert read is not None
    return read


def check_renaming(open_store: OpenStore) -> None:
    """A renamed study has the same entries, and a process that knows the old name gets an error."""
    ours, theirs = open_store(), open_store()
    old = store_two_studies(ours, theirs)
    texts = entries_as_text(old)
    expect_refusal(StoreError, lambda: ours.rename("s", "t"))
    expect_refusal(StoreError, lambda: ours.rename("unknown", "u"))
    with ours.lease("s"):
        ours.rename("s", "new name")
    assert sorted(open_store().studies()) == ["new name", "t"]
    assert entries_as_text(open_store().load("new name")) == texts
    assert open_store().load("s") is None
    assert "'s'" in expect_refusal(StoreError, lambda: theirs.refresh("s", old))
    with theirs.lease("new name"):
        renamed = ours.load("new name")
        assert renamed is not None
        ours.append("new name", renamed, a_step(2, 1))


def check_deleting(open_store: OpenStore) -> None:
    """A deleted study is gone, another study of its name can begin, and the other studies stay."""
    ours, theirs = open_store(), open_store()
    old = store_two_studies(ours, theirs)
    with ours.lease("s"):
        ours.delete("s")
    assert open_store().studies() == ["t"]
    assert open_store().load("s") is None
    assert "'s'" in expect_refusal(StoreError, lambda: theirs.refresh("s", old))
    ours.append("s", None, an_opening("7 epochs"))
    read = open_store().load("s")
    assert read is not None
    assert (len(read), read.budget) == (1, Budget("7 epochs"))


LEDGER_STORE_CHECKS: tuple[Callable[[OpenStore], None], ...] = (
    check_entries_are_read_back,
    check_unknown_study_is_none,
    check_studies_are_separate,
    check_study_begins_once,
    check_entries_are_stored_together,
    check_second_writer_gets_a_conflict,
    check_refreshing_equals_loading,
    check_ledger_of_another_handle,
    check_one_process_runs_a_study,
    check_heartbeat_with_an_append,
    check_entries_that_are_not_durable,
    check_finishing_a_run_changes_no_entry,
    check_renaming,
    check_deleting,
)
