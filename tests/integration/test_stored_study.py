"""The present code reads the studies in `data/studies.sql`, and would record the same file (see `stored_study.py`)."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stored_study import FILE, STUDIES, HarmonicCurves, record, restore

from shoestring import policies
from shoestring.core.ledger.entries import Note, Order, Receipt, StateLoss
from shoestring.core.ledger.ledger import Ledger
from shoestring.core.space.parameters import Float
from shoestring.core.values.strict_json import dumps
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import entries_as_text
from shoestring.testing.policies import list_cuts, make_small_policy, simulate


def read_tables(sql: str) -> dict[str, list[tuple[Any, ...]]]:
    """Return the schema and the rows of each table; versions of SQLite write the same database as different SQL."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(sql)
        schema = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        return {"schema": schema} | {
            table: connection.execute(f'SELECT * FROM "{table}" ORDER BY 1, 2').fetchall() for table, _ in schema
        }


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
def store(file: Path) -> SqlStore:
    return restore(file)


def load(store: SqlStore, study: str) -> Ledger:
    ledger = store.load(study)
    assert ledger is not None
    return ledger


def test_the_present_code_records_the_same_file() -> None:
    recorded, stored = read_tables(record()), read_tables(FILE.read_text(encoding="utf-8"))
    assert recorded == stored, "run `python tests/integration/stored_study.py` if this is intended"
    assert len(stored["entries"]) > 30


@pytest.mark.parametrize("study", STUDIES)
def test_every_entry_is_read_back(store: SqlStore, study: str) -> None:
    assert entries_as_text(load(store, study)) == [f"{entry.kind} {dumps(entry.body())}" for entry in STUDIES[study]()]


def test_the_studies_are_listed_in_the_order_of_their_first_entries(store: SqlStore) -> None:
    assert store.studies() == ["listed", "simulated", "every entry"]


def test_what_follows_from_the_entries(store: SqlStore) -> None:
    ledger = load(store, "every entry")
    lost, receipt = ledger.entries()[3:5]
    assert isinstance(lost, StateLoss)
    assert (lost.resumable_step, lost.death, lost.price_factor) == (0, True, 2.0)
    assert isinstance(receipt, Receipt)
    assert (receipt.saved_step, receipt.worker, receipt.metrics["gradient"]) == (1, "2 on gpu-7", float("inf"))
    # One dollar per second: thinking, the lost half second at twice the price, step 1 at half the price, check, step 2,
    # two steps of trial 1, thinking.
    assert ledger.spent == 0.0625 + 2 * 0.5 + 0.5 * 1.375 + 0.375 + 1.0 + 0.5 + 0.5 + 0.03125
    assert (ledger.trials[0].deaths, ledger.trials[0].step_orders) == (0, [0, 0])
    assert ledger.trials[1].failure.startswith("Traceback")
    assert ledger.orders[0].memo == {"kernel": [0.5, -float("inf"), 1e-300]}
    assert (ledger.state.policy, str(ledger.budget), list(ledger.open_orders)) == (
        "random_search",
        "$12.0 at 3600.0/h",
        [2],
    )
    assert load(store, "listed").space.parameters["x"] == Float(1e-3, 1.0, log=True)


def test_a_stored_study_can_be_continued(store: SqlStore, file: Path) -> None:
    ledger = load(store, "every entry")
    with store.lease("every entry"):
        grown = store.append("every entry", ledger, Note(topic="thinking", facts={"seconds": 1.0}))
    assert entries_as_text(SqlStore(f"sqlite:///{file}").load("every entry")) == entries_as_text(grown)


def test_cut_in_half_the_simulated_study_ends_with_the_same_orders(store: SqlStore) -> None:
    whole = load(store, "simulated")
    cuts = list_cuts(whole)
    first_half = whole.entries()[: cuts[len(cuts) // 2]]
    again = simulate(make_small_policy("asha"), HarmonicCurves(), *first_half).ledger
    assert [essentials(order) for order in again.orders] == [essentials(order) for order in whole.orders]
    assert policies.restore(whole.state.policy, whole.state.settings).name == "asha"


def essentials(order: Order) -> tuple[Any, ...]:
    return order.trial, dict(order.config), order.until, order.validate, order.at


# the command line ----------------------------------------------------------------------------------------------------


def shoestring(file: Path, *words: str) -> str:
    command = [sys.executable, "-m", "shoestring", *words, "--store", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_shows_what_was_spent(file: Path, store: SqlStore) -> None:
    shown = json.loads(shoestring(file, "status", "--study", "simulated", "--json"))
    ledger = load(store, "simulated")
    assert ledger.best is not None
    assert (shown["policy"], shown["spent"], shown["best"]["trial"]) == ("asha", ledger.spent, ledger.best.number)


def test_explain_shows_the_reasons_of_an_order(file: Path, store: SqlStore) -> None:
    shown = json.loads(shoestring(file, "explain", "3", "--study", "simulated", "--json"))
    order = load(store, "simulated").orders[3]
    assert (shown["trial"], shown["until"], shown["why"]) == (order.trial, order.until, dict(order.why))


def test_export_has_a_row_for_each_step(file: Path, store: SqlStore) -> None:
    rows = [json.loads(row) for row in shoestring(file, "export", "--study", "simulated").splitlines()]
    assert len(rows) == load(store, "simulated").state.receipts


def test_another_policy_can_replay_it(file: Path, store: SqlStore) -> None:
    shown = json.loads(shoestring(file, "replay", "--policy", "random_search", "--study", "simulated", "--json"))
    best = load(store, "simulated").best
    assert best is not None
    assert (shown["winner"], shown["real_best"]) == (best.number, best.best_loss)
