"""A study outlives the version of shoestring that began it: what was stored once is readable for ever.

`data/format-N.sql` are studies as format N wrote them. They are never made anew: a change that cannot read them needs a
migration in `core/ledger/formats.py`, and a new format a new file here.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.ledger import formats
from shoestring.core.ledger.entries import FORMAT, Cost, Lost, Note, Receipt
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.space.space import Config, Space
from shoestring.errors import StudyError
from shoestring.runners.simulated.simulated_runner import Simulated, StepOutcome
from shoestring.stores.rows import BEGIN, Link, checksum
from shoestring.stores.sql import Sql
from shoestring.study.loop import run_in_memory
from shoestring.testing.ledger_stores import a_step, entries_as_text
from shoestring.testing.policies import seams

DATA = Path(__file__).parent / "data"


def restore(dump: str, file: Path) -> Sql:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(dump)
    return Sql(f"sqlite:///{file}")


def test_every_format_has_its_studies() -> None:
    assert [path.name for path in sorted(DATA.glob("format-*.sql"))] == [f"format-{n + 1}.sql" for n in range(FORMAT)]


def test_format_1(tmp_path: Path) -> None:
    store = restore((DATA / "format-1.sql").read_text(encoding="utf-8"), tmp_path / "store.db")
    assert store.studies() == ["first", "second"]
    ledger = store.load("first")
    assert ledger is not None
    assert len(ledger) == 19
    assert [entry.kind for entry in ledger.entries()][:6] == ["opened", "note", "order", "receipt", "receipt", "order"]
    assert str(ledger.budget) == "90.0s"
    assert ledger.spent == 18.84375
    spent_on = {"setup": 1.0, "train": 11.0, "validate": 0.875, "repeated": 1.625, "check": 1.75}
    assert {kind: ledger.books.by_kind[kind] for kind in spent_on} == spent_on
    assert ledger.books.by_kind["lost"] == 2.5
    assert ledger.books.by_kind["thinking"] == 0.09375
    assert ledger.best is not None
    assert (ledger.best.number, ledger.best.best_step, ledger.best.values) == (1, 3, [None, None, 0.875])
    assert ledger.best.config == {"lr": 0.1, "layers": 3, "kind": "sgd", "momentum": 0.9}
    assert ledger.orders[1].memo == {"kernel": [0.5, -float("inf"), 1e-300]}
    assert ledger.orders[1].why == {"score": float("inf"), "note": "~nan"}
    assert ledger.trials[2].diverged
    assert ledger.trials[2].config["kind"] == "~odd"
    assert ledger.trials[3].failure.endswith("MemoryError: no more")
    assert ledger.books.policy == "random_search"
    assert list(ledger.open_orders) == [4]
    second = store.load("second")
    assert second is not None
    assert second.space.rows is not None
    assert [dict(row) for row in second.space.rows] == [{"x": 1}, {"x": 2}]


def test_format_1_goes_on(tmp_path: Path) -> None:
    store = restore((DATA / "format-1.sql").read_text(encoding="utf-8"), tmp_path / "store.db")
    ledger = store.load("first")
    assert ledger is not None
    with store.lease("first"):
        grown = store.append("first", ledger, Note(topic="enqueue", facts={"config": {"lr": 0.5}}))
    assert entries_as_text(Sql(f"sqlite:///{tmp_path}/store.db").load("first")) == entries_as_text(grown)


def test_format_1_put_wide_columns_on_a_log_scale_and_so_they_stay(tmp_path: Path) -> None:
    """`data/listed-1.sql`: a study of cost-aware EI on 60 rows, to its end. Cut on the way, it goes on with the same orders."""
    store = restore((DATA / "listed-1.sql").read_text(encoding="utf-8"), tmp_path / "store.db")
    ledger = store.load("cost_aware_ei")
    assert ledger is not None
    assert ledger.space.log_names == ["rate", "rounds"]
    assert ledger.opened.format == FORMAT
    policy = policies.restore(ledger.books.policy, ledger.books.settings)
    cuts = seams(ledger)
    half = ledger.fork(cuts[2 * len(cuts) // 3])  # before it, the model of prices has fewer features than it had then
    resumed = run_in_memory(half, policy, Simulated(Rounds(), ledger.workers)).ledger
    assert [(o.trial, o.config, o.until) for o in resumed.orders] == [
        (o.trial, o.config, o.until) for o in ledger.orders
    ]
    linear = replace(ledger.opened, space=Space.listed([dict(row) for row in ledger.space.rows or ()]))
    other = run_in_memory(Ledger([linear]), policy, Simulated(Rounds(), ledger.workers)).ledger
    assert [o.config for o in other.orders] != [o.config for o in ledger.orders], "the scale matters here"


class Rounds:
    """The formula that the study in `listed-1.sql` was trained on."""

    def step(self, config: Config, step: int) -> StepOutcome:
        off = math.log10(config["rate"]) + 1.7
        loss = 0.2 * off * off + 1.0 / math.sqrt(config["rounds"]) + (0.1 if config["kind"] == "a" else 0.0)
        return StepOutcome(loss, Cost(train=0.02 * config["rounds"] * (2.0 if config["kind"] == "a" else 1.0)))


def test_format_2(tmp_path: Path) -> None:
    store = restore((DATA / "format-2.sql").read_text(encoding="utf-8"), tmp_path / "store.db")
    ledger = store.load("first")
    assert ledger is not None
    kinds = " ".join(entry.kind for entry in ledger.entries())
    assert kinds == "opened note order lost receipt note receipt order receipt receipt amended order note"
    lost, receipt = ledger.entries()[3:5]
    assert lost == Lost(
        trial=0,
        held=0,
        seconds=0.5,
        why="the worker process was ended by SIGSEGV",
        death=True,
        worker="1",
        price_factor=2.0,
    )
    assert isinstance(receipt, Receipt)
    assert (receipt.worker, receipt.price_factor) == ("2 on gpu-7", 0.5)
    assert receipt.metrics == {"accuracy": 0.875, "gradient": float("inf")}
    # a dollar a second: thinking, the lost half second twice as dear, the first step half as dear, then at the plain rate
    assert ledger.spent == 0.0625 + 2 * 0.5 + 0.5 * 1.375 + 0.375 + 1.0 + 0.5 + 0.5 + 0.03125
    assert (ledger.trials[0].deaths, ledger.trials[0].step_orders) == (0, [0, 0])
    second = store.load("second")
    assert second is not None
    assert second.space.parameters["x"] == Float(1e-3, 1.0, log=True)


# an older format that never was --------------------------------------------------------------------------------------

OLD = FORMAT - 1
OLD_BODIES: list[tuple[str, dict[str, Any]]] = [
    (
        "opened",
        {
            "format": OLD,
            "space": {"lr": {"float": [0.0, 1.0]}},
            "budget": "10 epochs",
            "policy": "random_search",
            "settings": {},
            "random_seed": 5,  # now `seed`
            "max_steps": 4,
        },
    ),
    ("order", {"number": 0, "trial": 0, "config": {"lr": 0.5}, "until": 4}),
    ("receipt", {"order": 0, "trial": 0, "step": 1, "loss": 0.25, "cost": [0, 1, 0]}),  # now `value`
]


def newer(kind: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A migration that renames two fields."""
    renamed = {("opened", "random_seed"): "seed", ("receipt", "loss"): "value"}
    body = {renamed.get((kind, name), name): value for name, value in body.items()}
    return {"prices": {}, **body} if kind == "opened" else body


@pytest.fixture
def old_store(tmp_path: Path) -> Sql:
    Sql(f"sqlite:///{tmp_path}/store.db").database.make_tables()
    link: Link = BEGIN
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection, connection:
        for seq, (kind, fields) in enumerate(OLD_BODIES):
            body = json.dumps(fields)
            link = Link(checksum(link.sum, "s", seq, kind, body, 0.5), OLD)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?)", ("s", seq, kind, body, link.sum, 0.5))
    return Sql(f"sqlite:///{tmp_path}/store.db")


def bodies(store: Sql) -> list[str]:
    return [row.body for seq in range(store.table.count("s")) if (row := store.table.row("s", seq)) is not None]


def test_an_older_study_is_read_and_taken_up(old_store: Sql, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formats.MIGRATIONS, OLD, newer)
    stored = bodies(old_store)
    ledger = old_store.load("s")
    assert ledger is not None
    assert ledger.opened.seed == 5
    assert ledger.trials[0].values == [0.25]
    assert old_store.append("s", ledger) is ledger
    assert bodies(old_store) == stored

    grown = old_store.append("s", ledger, a_step(0, 2, value=0.125))
    assert len(grown) == len(ledger) + 2, "a note says that another format begins"
    assert grown.entries(3)[0] == Note(topic="format", facts={"format": FORMAT})
    assert bodies(old_store)[:3] == stored, "what is stored is never rewritten"
    grown = old_store.append("s", grown, a_step(0, 3, value=0.0625))
    assert len(grown) == len(ledger) + 3, "once is enough"

    other = Sql(f"sqlite:///{old_store.path}")
    again = other.load("s")
    assert again is not None
    assert again.trials[0].values == [0.25, 0.125, 0.0625]
    assert entries_as_text(again) == entries_as_text(grown)
    assert entries_as_text(old_store.refresh("s", Ledger(again.entries()[:3]))) == entries_as_text(grown), (
        "from the middle, with its format"
    )
    assert entries_as_text(other.append("s", again, a_step(0, 4))) == entries_as_text(old_store.refresh("s", grown))


def test_a_study_of_a_newer_format_is_left_alone(old_store: Sql) -> None:
    assert old_store.path is not None
    with closing(sqlite3.connect(old_store.path)) as connection, connection:
        body = json.dumps({"topic": "format", "format": FORMAT + 1})
        sum_ = checksum("", "t", 0, "note", body, 0.5)
        connection.execute("INSERT INTO entries VALUES ('t', 0, 'note', ?, ?, 0.5)", (body, sum_))
    with pytest.raises(StudyError, match=f"format {FORMAT + 1}.*install a newer one"):
        old_store.load("t")
