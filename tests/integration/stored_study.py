"""The stored studies in `data/studies.sql`, as the present code records them.

    python tests/integration/stored_study.py

records the file again. Do this whenever a change of the ledger format is intended, before the format is released: the test
`test_stored_study.py` fails if the present code records other rows than the file has.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from shoestring.core.ledger.budget import Budget, Prices
from shoestring.core.ledger.entries import Amendment, Cost, Entry, Note, Order, Receipt, StateLoss, StudyDefinition
from shoestring.core.space.parameters import Choice, Float, Int
from shoestring.core.space.space import Config, Space
from shoestring.runners.simulated.simulated_runner import StepOutcome
from shoestring.stores.rows import NO_SUM, Row, write
from shoestring.stores.sql import SqlStore
from shoestring.testing.policies import make_small_policy, simulate

FILE = Path(__file__).parent / "data" / "studies.sql"
_RECORDED_AT = 1_700_000_000.5
_INF = float("inf")


class HarmonicCurves:
    """Training curves of plain arithmetic, so that they are the same on every machine."""

    def step(self, config: Config, step: int) -> StepOutcome:
        """Return a loss that falls from 1 + x to x, at one second per step."""
        return StepOutcome(config["x"] + 1.0 / step, Cost(train=1.0))


def make_full_study() -> list[Entry]:
    """Return a study with every kind of entry and every field."""
    space = Space(
        {
            "lr": Float(1e-4, 1.0, log=True),
            "layers": Int(1, 8),
            "kind": Choice(["sgd", "adam", "~odd"]),
            "momentum": Float(0.0, 0.99, when={"kind": "sgd"}),
        }
    )
    first = {"lr": 0.1, "layers": 3, "kind": "sgd", "momentum": 0.9}
    second = {"lr": 0.01, "layers": 1, "kind": "~odd"}
    return [
        StudyDefinition(
            space=space,
            budget=Budget("$10 at 3600/h"),
            policy="asha",
            settings={"reduction_factor": 3},
            seed=5,
            direction="max",
            max_steps=9,
            prices=Prices(0.25),
            workers=2,
            target={"kind": "python", "where": "train.py:train", "fingerprint": "0123abcd"},
        ),
        Note(topic="enqueue", facts={"config": first}),
        Order(
            number=0,
            trial=0,
            config=first,
            until=2,
            expected_cost=0.5,
            reserve=1.5,
            why={"compared": 0, "score": _INF, "text": "~nan", "is_new": True},
            memo={"kernel": [0.5, -_INF, 1e-300]},
            check=True,
            thinking_s=0.0625,
            at=0.5,
        ),
        StateLoss(
            trial=0,
            resumable_step=0,
            seconds=0.5,
            why="the worker process was ended by SIGSEGV",
            death=True,
            worker="1",
            price_factor=2.0,
        ),
        Receipt(
            order=0,
            trial=0,
            step=1,
            value=0.5,
            cost=Cost(setup=0.25, train=1.0, validate=0.125),
            saved_step=1,
            at=2.0,
            worker="2 on gpu-7",
            price_factor=0.5,
            metrics={"accuracy": 0.875, "gradient": _INF},
        ),
        Note(
            topic="check",
            facts={
                "order": 0,
                "trial": 0,
                "step": 2,
                "seconds": 0.375,
                "continued": 0.625,
                "resumed": 0.625,
                "same": True,
            },
        ),
        Receipt(order=0, trial=0, step=2, value=0.625, cost=Cost(train=1.0), saved_step=2, at=3.5, worker="2"),
        Order(number=1, trial=1, config=second, until=3, validate="last"),
        Receipt(order=1, trial=1, step=1, cost=Cost(train=0.5), at=4.0),
        Receipt(
            order=1,
            trial=1,
            step=2,
            cost=Cost(train=0.5),
            status="failed",
            text="Traceback\nMemoryError: \udcff",
            at=4.5,
        ),
        Amendment(budget=Budget("$12 at 3600/h"), policy="random_search", settings={}, workers=1),
        Order(number=2, trial=0, config=first, until=9, is_external=True),
        Note(topic="assigned", facts={"order": 2, "worker": "a"}),
        Note(topic="thinking", facts={"seconds": 0.03125}),
    ]


def make_listed_study() -> list[Entry]:
    """Return a study of a listed space with a logarithmic column, in which training ended by itself and an order expired."""
    space = Space.from_configs([{"x": 0.001}, {"x": 1.0}], log=["x"])
    return [
        StudyDefinition(space=space, budget=Budget("5 epochs"), policy="grid", settings={}, seed=0, max_steps=4),
        Order(number=0, trial=0, config={"x": 1.0}, until=4),
        Receipt(order=0, trial=0, step=1, value=float("nan"), cost=Cost(train=1.0), status="diverged"),
        Order(number=1, trial=1, config={"x": 0.001}, until=4),
        Receipt(order=1, trial=1, step=1, value=0.25, cost=Cost(train=1.0)),
        Note(topic="ended", facts={"order": 1, "trial": 1, "step": 1, "seconds": 0.0}),
    ]


def make_simulated_study() -> list[Entry]:
    """Return a study of ASHA on two workers, from its first decision to the end of its budget."""
    definition = StudyDefinition(
        space=Space.from_configs([{"x": row / 32} for row in (9, 3, 7, 12, 1, 30, 22, 17, 5, 28)]),
        budget=Budget("40 epochs"),
        policy="asha",
        settings={},
        seed=2,
        max_steps=9,
        workers=2,
    )
    return simulate(make_small_policy("asha"), HarmonicCurves(), definition).ledger.entries()


STUDIES = {"every entry": make_full_study, "listed": make_listed_study, "simulated": make_simulated_study}


def as_rows(study: str, entries: list[Entry]) -> list[Row]:
    """Return the rows of a study."""
    rows: list[Row] = []
    for seq, entry in enumerate(entries):
        rows.append(write(study, seq, entry, rows[-1].sum if rows else NO_SUM, _RECORDED_AT + len(study)))
    return rows


def record() -> str:
    """Return the SQL text of a store that the present code has written."""
    with TemporaryDirectory() as folder:
        store = SqlStore(f"sqlite:///{folder}/store.db")
        for study, make in STUDIES.items():
            store.insert_rows(as_rows(study, make()))
        store.close()
        with closing(sqlite3.connect(f"{folder}/store.db")) as connection:
            return "\n".join(connection.iterdump()) + "\n"


def restore(file: Path) -> SqlStore:
    """Return a store in `file` with the recorded studies."""
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.executescript(FILE.read_text(encoding="utf-8"))
    return SqlStore(f"sqlite:///{file}")


if __name__ == "__main__":
    FILE.write_text(record(), encoding="utf-8")
