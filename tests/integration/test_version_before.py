"""What the version before wrote is read, shown, replayed and gone on with.

`data/before.sqlite.gz` holds a study of every policy on made-up curves, to the end of its budget, written before the
methods got folders of their own. Policies that fit nothing must go on with exactly the orders that were stored.
"""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shoestring import policies
from shoestring.core.ledger.entries import Order
from shoestring.core.ledger.ledger import Ledger
from shoestring.stores.sql import Sql
from shoestring.study.decide import REST
from shoestring.testing.curves import Decaying, Noisy
from shoestring.testing.policies import seams, simulate, small

STORED = Path(__file__).parent / "data" / "before.sqlite.gz"
CURVES = Noisy(Decaying(setup_s=0.5), 0.2)
TWO_WORKERS = "two workers, seconds"
EXACT = {"asha", "grid", "hyperband", "random_search", "replay_fixed", "sequential_halving", "successive_halving"}
EXACT |= {"top_k_after_one", "epsilon_greedy", "softmax", "exp3s", "ucb1", TWO_WORKERS}
STUDIES = sorted({*policies.REGISTRY, TWO_WORKERS})


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("before") / "before.db"
    copy.write_bytes(gzip.decompress(STORED.read_bytes()))
    return copy


@pytest.fixture(scope="module")
def store(file: Path) -> Sql:
    return Sql(f"sqlite:///{file}")


def load(store: Sql, study: str) -> Ledger:
    ledger = store.load(study)
    assert ledger is not None
    return ledger


def bought(orders: list[Order]) -> list[tuple[Any, ...]]:
    return [(order.trial, dict(order.config), order.until, order.validate, order.at) for order in orders]


def test_every_policy_of_that_version_is_still_there(store: Sql) -> None:
    stored = set(store.studies())
    assert {*stored} - {TWO_WORKERS} <= set(policies.REGISTRY)
    assert stored >= EXACT


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_loads_and_its_policy_comes_back(store: Sql, study: str) -> None:
    if study not in store.studies():
        pytest.skip("a newer policy")
    ledger = load(store, study)
    assert 0 < ledger.spent <= ledger.budget.total
    assert ledger.open_orders == {}
    assert ledger.best is not None
    policy = policies.restore(ledger.books.policy, ledger.books.settings)
    assert policies.settings_of(policy).keys() >= ledger.books.settings.keys()


@pytest.mark.parametrize("study", STUDIES)
def test_cut_half_way_it_goes_on(store: Sql, study: str) -> None:
    if study not in store.studies():
        pytest.skip("a newer policy")
    whole = load(store, study)
    cuts = seams(whole)
    past = whole.entries()[: cuts[len(cuts) // 2]]
    again = simulate(small(whole.books.policy), CURVES, *past).ledger
    assert again.entries()[: len(past)] == past
    assert again.spent <= again.budget.total
    assert again.open_orders == {}
    assert len(again) > len(past)
    if study in EXACT:
        orders, rest = list(again.orders)[: len(whole.orders)], list(again.orders)[len(whole.orders) :]
        assert bought(orders) == bought(list(whole.orders))
        assert all(order.why["stage"] == REST for order in rest), "that version left it unspent"


# the command line ----------------------------------------------------------------------------------------------------


def say(file: Path, *words: str) -> str:
    command = [sys.executable, "-m", "shoestring", *words, "--store", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_status_says_what_was_spent(file: Path, store: Sql) -> None:
    told = json.loads(say(file, "status", "--study", "bhpt", "--json"))
    ledger = load(store, "bhpt")
    assert (told["study"], told["policy"], told["spent"]) == ("bhpt", "bhpt", ledger.spent)
    assert ledger.best is not None
    assert told["best"]["trial"] == ledger.best.number


def test_explain_says_why(file: Path, store: Sql) -> None:
    told = json.loads(say(file, "explain", "3", "--study", "sequential_halving", "--json"))
    order = load(store, "sequential_halving").orders[3]
    assert (told["trial"], told["until"], told["why"]) == (order.trial, order.until, dict(order.why))


def test_export_has_a_row_for_each_step(file: Path, store: Sql) -> None:
    rows = say(file, "export", "--study", TWO_WORKERS).splitlines()
    assert len(rows) == load(store, TWO_WORKERS).books.receipts
    assert all(json.loads(row) for row in rows)


def test_another_policy_replays_it(file: Path, store: Sql) -> None:
    told = json.loads(say(file, "replay", "--policy", "random_search", "--study", "asha", "--json"))
    best = load(store, "asha").best
    assert best is not None
    assert (told["winner"], told["real_best"]) == (best.number, best.best_loss)
    assert 0 < told["spent"] <= 40
