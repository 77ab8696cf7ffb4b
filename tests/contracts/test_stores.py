"""Every store keeps the contract that ships with the library."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_server import new_database

from shoestring.stores import snapshots
from shoestring.stores.in_memory import MemoryStore
from shoestring.stores.sql import SqlStore
from shoestring.testing.ledger_stores import LEDGER_STORE_CHECKS, OpenStore


@pytest.fixture(params=["memory", "sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def open_store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenStore:
    monkeypatch.setattr(snapshots, "_MIN_NEW_ENTRIES_AT_END", 1)  # so that small studies have one, too
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    address = f"sqlite:///{tmp_path}/store.db" if request.param == "sqlite" else new_database()
    return lambda: SqlStore(address)


@pytest.mark.parametrize("check", LEDGER_STORE_CHECKS, ids=lambda check: check.__name__)
def test_every_store_keeps_the_contract(check: object, open_store: OpenStore) -> None:
    assert callable(check)
    check(open_store)
